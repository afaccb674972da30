"""The SASL settings of a listener: mechanisms, users of PLAIN, and limits.

They are read when the node starts, so that a mistake stops the start with the name of the key.
Dynamic values have no effect, except those with the users of PLAIN.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.broker_keys import BROKER_KEYS
from spindle.config.listener_config import ListenerConfig, listener_prefix
from spindle.config.mechanism_config import MechanismConfig
from spindle.config.node_values import NodeValues
from spindle.config.oauthbearer_settings import SignedTokens, token_settings
from spindle.security.jaas import LoginModule, parse_jaas
from spindle.security.mechanism_names import LOGIN_MODULES, MECHANISMS, OAUTHBEARER, PLAIN
from spindle.security.secret import Secret
from spindle.security.server.plain import plain_users
from spindle.security.server.unsecured_tokens import UnsecuredRules

_JAVA_CLASSES: Final = (
    "sasl.server.callback.handler.class",
    "sasl.login.class",
)


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """How a listener authenticates its clients.

    Attributes:
        mechanisms: the names of `sasl.enabled.mechanisms`, at least one.
        plain_users: passwords by user name; empty without PLAIN.
        tokens: how the tokens of OAUTHBEARER are checked; None without it.
        max_reauth_ms: `connections.max.reauth.ms` by mechanism, 0 for sessions without an end.
        max_receive_bytes: `sasl.server.max.receive.size`, the largest frame before authentication.
        failure_delay_ms: `connection.failed.authentication.delay.ms`.
    """

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, Secret]
    tokens: SignedTokens | UnsecuredRules | None
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failure_delay_ms: int


def sasl_settings(config: ListenerConfig) -> SaslSettings:
    """Return the settings of a listener with SASL.

    Raises:
        ConfigError: a mechanism is not supported, has no login module or a wrong one, or is to be
            carried out by Java code.
    """
    mechanisms = config.names("sasl.enabled.mechanisms")
    _check_mechanisms(config, mechanisms)
    for mechanism in mechanisms:
        _check_classes(config, mechanism)
    return SaslSettings(
        mechanisms=mechanisms,
        plain_users=users_of_plain(config) if PLAIN in mechanisms else {},
        tokens=_tokens(config) if OAUTHBEARER in mechanisms else None,
        max_reauth_ms={name: _max_reauth_ms(config, name) for name in mechanisms},
        max_receive_bytes=config.integer("sasl.server.max.receive.size"),
        failure_delay_ms=config.integer("connection.failed.authentication.delay.ms"),
    )


def check_sasl(node: NodeValues) -> None:
    """Refuse SASL listeners that this node cannot serve.

    Raises:
        ConfigError: see `sasl_settings`; or a Java class is configured that builds principals.
    """
    listening = [endpoint.listener for endpoint in node.listeners]
    secured = [name for name in listening if node.security_protocols[name].has_sasl]
    for name in secured:
        sasl_settings(ListenerConfig(node, name))
        _check_principals(ListenerConfig(node, name))


def check_dynamic_users(node: NodeValues, dynamic: Mapping[str, str]) -> None:
    """Refuse dynamic values with which a listener of this node has no users of PLAIN.

    Raises:
        ConfigError: see `users_of_plain`.
    """
    for name in (endpoint.listener for endpoint in node.listeners):
        if not node.security_protocols[name].has_sasl:
            continue
        # The mechanisms are those from the start of the node.
        if PLAIN in ListenerConfig(node, name).names("sasl.enabled.mechanisms"):
            users_of_plain(ListenerConfig(node, name, dynamic))


def _check_mechanisms(config: ListenerConfig, mechanisms: tuple[str, ...]) -> None:
    key = "sasl.enabled.mechanisms"
    known = ", ".join(MECHANISMS)
    own_key = f"{listener_prefix(config.listener)}{key}"
    if not mechanisms:
        raise ConfigError(f"{config.key_name(key)} is empty; name some of {known}")
    for name in mechanisms:
        if name in MECHANISMS:
            continue
        if key not in config.properties:
            raise ConfigError(
                f"{key} is missing, and GSSAPI (Kerberos), the default of Kafka, is not supported: "
                f"set {own_key} to some of {known}"
            )
        raise ConfigError(
            f"{config.key_name(key)} has {name}, which is not supported; want some of {known}"
        )


def _check_classes(config: ListenerConfig, mechanism: str) -> None:
    of_mechanism = MechanismConfig(config, mechanism)
    # The handler of OAUTHBEARER names the form of its tokens.
    for name in _JAVA_CLASSES[mechanism == OAUTHBEARER :]:
        if of_mechanism.optional_text(name):
            raise ConfigError(
                f"listener {config.listener}: {name} is not supported: it names Java code, which "
                "cannot run here"
            )


def _check_principals(config: ListenerConfig) -> None:
    key = "principal.builder.class"
    wanted = BROKER_KEYS[key].default
    class_name = config.properties.get(key, wanted)
    if class_name != wanted:
        raise ConfigError(
            f"{config.key_name(key)}={class_name} is not supported: it names Java code, which "
            "cannot run here, and without it principals would have other names"
        )


def _login_module(config: ListenerConfig, mechanism: str) -> LoginModule | None:
    """Return the login module of a mechanism, None if there is none."""
    values = MechanismConfig(config, mechanism)
    text = values.own_text("sasl.jaas.config")
    if not text:
        return None
    try:
        return parse_jaas(text)
    except ConfigError as error:
        raise ConfigError(f"{_jaas_key(config, mechanism)}: {error}") from None


def _jaas_key(config: ListenerConfig, mechanism: str) -> str:
    return MechanismConfig(config, mechanism).own_key_name("sasl.jaas.config")


def _tokens(config: ListenerConfig) -> SignedTokens | UnsecuredRules:
    return token_settings(MechanismConfig(config, OAUTHBEARER), _login_module(config, OAUTHBEARER))


def users_of_plain(config: ListenerConfig) -> dict[str, Secret]:
    """Return the passwords by user name of a listener that has PLAIN.

    Raises:
        ConfigError: the login module is missing, is another one, or cannot be read.
    """
    key = _jaas_key(config, PLAIN)
    module = _login_module(config, PLAIN)
    if module is None:
        raise ConfigError(
            f"{key} is missing: PLAIN needs the users, for example "
            f'`{LOGIN_MODULES[PLAIN]} required user_alice="...";`'
        )
    try:
        return plain_users(module)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def _max_reauth_ms(config: ListenerConfig, mechanism: str) -> int:
    return MechanismConfig(config, mechanism).integer("connections.max.reauth.ms")
