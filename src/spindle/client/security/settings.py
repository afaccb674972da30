"""The security properties of a client, with Kafka's names and rules.

The settings are plain values that travel to executors. A store or token file is read where the
connection is made, so it has to be on the driver and on each executor, under the same path. PEM
texts inside properties travel with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from spindle.client.security.token_settings import TokenLogin, token_login
from spindle.common.errors import ConfigError
from spindle.common.security_protocol import SecurityProtocol
from spindle.security.jaas import LoginModule, parse_jaas
from spindle.security.mechanism_names import LOGIN_MODULES, MECHANISMS, OAUTHBEARER, PLAIN
from spindle.security.scram import SCRAM_MECHANISMS, ScramMechanism
from spindle.security.secret import Secret
from spindle.security.tls_settings import TlsSettings, tls_settings

_SHADED: Final = "kafkashaded."
"""The prefix of Kafka's packages in Databricks; jobs that move from there keep their properties."""
_JAAS: Final = "sasl.jaas.config"
_JAVA_CLASSES: Final = ("sasl.client.callback.handler.class", "sasl.login.class")


@dataclass(frozen=True, slots=True)
class PlainLogin:
    """User name and password of the mechanism PLAIN."""

    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class ScramLogin:
    """User name and password of a SCRAM mechanism, or id and HMAC of a delegation token."""

    mechanism: ScramMechanism
    username: str
    password: Secret
    is_token: bool = False


SaslLogin: TypeAlias = PlainLogin | ScramLogin | TokenLogin


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """How connections are secured. `tls` and `login` are None where the protocol has none."""

    protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    login: SaslLogin | None = None


def security_settings(properties: Mapping[str, str]) -> SecuritySettings:
    """Return the settings of properties with Kafka's names (`security.protocol`, ...).

    As in Kafka, `ssl.*` and `sasl.*` have no effect with a protocol that does not use them.

    Raises:
        ConfigError: a property is missing, has no usable value, or contradicts another one.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in SecurityProtocol.__members__:
        known = ", ".join(SecurityProtocol.__members__)
        raise ConfigError(f"security.protocol is {protocol!r}, want one of {known}")
    return SecuritySettings(
        protocol=protocol,
        tls=tls_settings(properties) if protocol.endswith("SSL") else None,
        login=_login(properties) if protocol.startswith("SASL") else None,
    )


def _login(properties: Mapping[str, str]) -> SaslLogin:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        if "sasl.mechanism" not in properties:
            raise ConfigError(
                "sasl.mechanism is missing, and GSSAPI (Kerberos), the default of Kafka, is not "
                f"supported: want one of {known}"
            )
        raise ConfigError(f"sasl.mechanism {mechanism!r} is not supported: want one of {known}")
    for key in _JAVA_CLASSES:
        if properties.get(key):
            raise ConfigError(f"{key} is not supported: it names Java code, which cannot run here")
    text = properties.get(_JAAS)
    if not text:
        raise ConfigError(
            f"{_JAAS} is missing: {mechanism} needs a login module, for example "
            f'`{LOGIN_MODULES[mechanism]} required username="..." password="...";`'
        )
    module = parse_jaas(text)
    _check_module(mechanism, module)
    if mechanism == OAUTHBEARER:
        return token_login(module.options, properties)
    if properties.get("sasl.login.callback.handler.class"):
        raise ConfigError(
            "sasl.login.callback.handler.class is not supported with this mechanism: it names "
            "Java code, which cannot run here"
        )
    return _password_login(mechanism, module)


def _check_module(mechanism: str, module: LoginModule) -> None:
    wanted = LOGIN_MODULES[mechanism]
    if module.class_name.removeprefix(_SHADED) != wanted:
        raise ConfigError(
            f"{_JAAS} has a login module that does not fit sasl.mechanism={mechanism}: want "
            f"{wanted}"
        )


def _password_login(mechanism: str, module: LoginModule) -> SaslLogin:
    for key in ("username", "password"):
        if not module.options.get(key):
            raise ConfigError(f'{_JAAS}: the option {key} is missing, want {key}="..."')
    username, password = module.options["username"], Secret(module.options["password"])
    if mechanism == PLAIN:
        if "\0" in username or "\0" in password.text:
            raise ConfigError(f"{_JAAS}: PLAIN takes no NUL characters")
        return PlainLogin(username, password)
    return ScramLogin(
        SCRAM_MECHANISMS[mechanism],
        username,
        password,
        is_token=module.options.get("tokenauth", "").lower() == "true",
    )
