"""The settings of OAUTHBEARER on a listener: how its tokens are checked (KIP-255, KIP-768).

Kafka's name of a callback handler selects the form. Without a class, Kafka accepts unsecured
tokens. Spindle requires the name of their class, because with it any client can be any user.
"""

from dataclasses import dataclass
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.mechanism_config import MechanismConfig
from spindle.security.jaas import LoginModule
from spindle.security.mechanism_names import LOGIN_MODULES, OAUTHBEARER
from spindle.security.server.key_set_source import KeySetSource, check_key_set_url
from spindle.security.server.token_claims import TokenRules
from spindle.security.server.unsecured_tokens import UnsecuredRules, unsecured_rules
from spindle.security.tls_settings import TlsSettings, tls_settings

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_SIGNED: Final = (
    f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
)
_UNSECURED: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_VALIDATORS: Final = (f"{_PACKAGE}DefaultJwtValidator", f"{_PACKAGE}BrokerJwtValidator")
_HANDLER: Final = "sasl.server.callback.handler.class"
_VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """Tokens with a signature, which a key of the key set verifies."""

    rules: TokenRules
    keys: KeySetSource


def token_settings(
    config: MechanismConfig, module: LoginModule | None
) -> SignedTokens | UnsecuredRules:
    """Return how the tokens of a listener are checked.

    Args:
        module: the login module of the mechanism; None if there is none.

    Raises:
        ConfigError: a key is missing or has no usable value, or names Java code.
    """
    wanted = LOGIN_MODULES[OAUTHBEARER]
    if module is not None and module.class_name != wanted:
        raise ConfigError(f"{config.key_name('sasl.jaas.config')}: want the login module {wanted}")
    options = module.options if module is not None else {}
    handler = config.optional_text("sasl.server.callback.handler.class")
    if handler == _UNSECURED:
        return unsecured_rules(options)
    if handler not in _SIGNED:
        what = f"{config.key_name(_HANDLER)} {handler} names Java code"
        if handler is None:
            what = f"{config.own_key_name(_HANDLER)} is missing"
        raise ConfigError(
            f"{what}: want {_SIGNED[0]}, or, for tests with tokens that anyone can write, "
            f"{_UNSECURED}"
        )
    validator = config.optional_text("sasl.oauthbearer.jwt.validator.class")
    if validator not in _VALIDATORS:
        raise ConfigError(
            f"{config.key_name(_VALIDATOR)} {validator} names Java code, want {_VALIDATORS[0]}"
        )
    tls = tls_settings({k: v for k, v in options.items() if k.startswith("ssl.")})
    source = _source(config, tls)
    return SignedTokens(_rules(config), source)


def _rules(config: MechanismConfig) -> TokenRules:
    audiences = config.names("sasl.oauthbearer.expected.audience")
    issuer = config.optional_text("sasl.oauthbearer.expected.issuer") or None
    rules = TokenRules(
        audiences=audiences,
        issuer=issuer,
        clock_skew_s=_at_least(
            0,
            config,
            "sasl.oauthbearer.clock.skew.seconds",
            config.integer("sasl.oauthbearer.clock.skew.seconds"),
        ),
        scope_claim=_named(config.optional_text("sasl.oauthbearer.scope.claim.name"), "scope"),
        sub_claim=_named(config.optional_text("sasl.oauthbearer.sub.claim.name"), "sub"),
    )
    if not audiences and not config.flag("sasl.oauthbearer.allow.unverified.audience"):
        raise _not_expected(config, "audience")
    if issuer is None and not config.flag("sasl.oauthbearer.allow.unverified.issuer"):
        raise _not_expected(config, "issuer")
    return rules


def _not_expected(config: MechanismConfig, claim: str) -> ConfigError:
    expected = config.own_key_name(f"sasl.oauthbearer.expected.{claim}")
    unverified = config.own_key_name(f"sasl.oauthbearer.allow.unverified.{claim}")
    return ConfigError(
        f"{expected} is missing: set it, or set {unverified}=true to take tokens of every {claim}"
    )


def _source(config: MechanismConfig, tls: TlsSettings) -> KeySetSource:
    url = config.optional_text("sasl.oauthbearer.jwks.endpoint.url")
    if not url:
        raise ConfigError(
            f"{config.own_key_name(_URL)} is missing: want the https or file URL of a JWKS document"
        )
    check_key_set_url(url, config.key_name(_URL))
    refresh_ms = config.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms")
    retry_ms = config.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")
    max_retry_ms = config.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")
    prefix = "sasl.oauthbearer.jwks.endpoint."
    return KeySetSource(
        url=url,
        refresh_ms=_at_least(1, config, f"{prefix}refresh.ms", refresh_ms),
        retry_ms=_at_least(1, config, f"{prefix}retry.backoff.ms", retry_ms),
        max_retry_ms=_at_least(1, config, f"{prefix}retry.backoff.max.ms", max_retry_ms),
        tls=tls,
    )


def _named(text: str | None, claim: str) -> str:
    name = (text or "").strip()
    if not name:
        raise ConfigError(f"sasl.oauthbearer.{claim}.claim.name must not be empty")
    return name


def _at_least(least: int, config: MechanismConfig, key: str, value: int) -> int:
    if value < least:
        raise ConfigError(f"{config.key_name(key)} is {value}, want {least} or more")
    return value
