"""The properties of the mechanism OAUTHBEARER: the source of the token.

Without a callback handler the token is unsecured, for tests, with the claims of the login module's
options. With Kafka's `OAuthBearerLoginCallbackHandler` it comes from a file or from a client
credentials endpoint (`sasl.oauthbearer.token.endpoint.url`).
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from spindle.common.errors import ConfigError
from spindle.security.secret import Secret
from spindle.security.tls_settings import TlsSettings, tls_settings

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_HANDLERS: Final = (
    f"{_PACKAGE}OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
)
_RETRIEVERS: Final = ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
_HANDLER: Final = "sasl.login.callback.handler.class"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_DEFAULT_LIFETIME_S: Final = 3600
_MAX_INT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """An unsigned token with these claims, as JSON; `iat` and `exp` are added."""

    claims_json: str
    lifetime_s: int


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file, which is read for every login."""

    path: str


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """An endpoint that gives tokens for client credentials (RFC 6749, section 4.4)."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str | None
    is_header_url_encoded: bool
    timeout_ms: int
    tls: TlsSettings


TokenOrigin: TypeAlias = UnsecuredToken | TokenFile | TokenEndpoint


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A login by token. `extensions` are pairs of name and value (KIP-342)."""

    origin: TokenOrigin
    extensions: tuple[tuple[str, str], ...] = ()


def token_login(options: Mapping[str, str], properties: Mapping[str, str]) -> TokenLogin:
    """Return the login of a login module's options and the client's properties.

    Raises:
        ConfigError: a property or an option is missing, unknown or has no usable value.
    """
    handler = properties.get(_HANDLER, "").removeprefix("kafkashaded.")
    if not handler:
        return TokenLogin(_unsecured(options), _extensions(options, "unsecuredLoginExtension_"))
    if handler not in _HANDLERS:
        raise ConfigError(
            f"{_HANDLER} is {handler!r}, which is Java code and cannot run here: "
            f"want {_HANDLERS[0]}"
        )
    retriever = properties.get(_RETRIEVER, _RETRIEVERS[0]).removeprefix(_PACKAGE)
    if retriever not in _RETRIEVERS:
        known = " or ".join(_PACKAGE + name for name in _RETRIEVERS)
        raise ConfigError(f"{_RETRIEVER} {retriever!r} is not supported: want {known}")
    text = properties.get(_URL, "")
    if not text:
        raise ConfigError(f"{_URL} is missing: want an https or a file URL")
    url = _split(text)
    extensions = _extensions(options, "extension_")
    if url.scheme == "file":
        return TokenLogin(TokenFile(unquote(url.path)), extensions)
    return TokenLogin(_endpoint(url, options, properties), extensions)


def _split(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        if url.port == 0:
            raise ValueError
    except ValueError:
        raise ConfigError(f"{_URL} is malformed: want an https or a file URL") from None
    return url


def _endpoint(
    url: SplitResult, options: Mapping[str, str], properties: Mapping[str, str]
) -> TokenEndpoint:
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"{_URL} is malformed: want an https or a file URL")
    if url.username is not None or url.password is not None:
        raise ConfigError(f"{_URL} has a user or a password: use {_CLIENT_ID}")
    client_id = properties.get(_CLIENT_ID) or options.get("clientId")
    secret = properties.get(_CLIENT_SECRET) or options.get("clientSecret")
    if not client_id or not secret:
        missing = _CLIENT_SECRET if client_id else _CLIENT_ID
        raise ConfigError(f"{missing} is missing (or the option of the login module)")
    return TokenEndpoint(
        url=url.geturl(),
        client_id=client_id,
        client_secret=Secret(secret),
        scope=properties.get("sasl.oauthbearer.scope") or options.get("scope"),
        is_header_url_encoded=properties.get("sasl.oauthbearer.header.urlencode", "").lower()
        == "true",
        timeout_ms=_milliseconds(properties, "sasl.login.read.timeout.ms", 10_000),
        # As in Kafka, this connection has the ssl.* options of the login module, not the client's.
        tls=tls_settings(options),
    )


def _unsecured(options: Mapping[str, str]) -> UnsecuredToken:
    claims: dict[str, object] = {}
    for option, value in options.items():
        kind, _, name = option.partition("_")
        match kind:
            case "unsecuredLoginStringClaim":
                claims[name] = value
            case "unsecuredLoginNumberClaim":
                claims[name] = _number(option, value)
            case "unsecuredLoginListClaim":
                claims[name] = _list_claim(value)
    principal = options.get("unsecuredLoginPrincipalClaimName", "sub")
    if not claims.get(principal):
        raise ConfigError(
            "sasl.jaas.config: an unsecured token needs a principal, want the option "
            f'unsecuredLoginStringClaim_{principal}="..." (a real token needs {_HANDLER}='
            f"{_HANDLERS[0]})"
        )
    lifetime = options.get("unsecuredLoginLifetimeSeconds", str(_DEFAULT_LIFETIME_S))
    if not _is_positive(lifetime):
        raise ConfigError(
            f"sasl.jaas.config: unsecuredLoginLifetimeSeconds is {lifetime[:40]!r}, want 1 to "
            f"{_MAX_INT}"
        )
    return UnsecuredToken(json.dumps(claims), int(lifetime))


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):  # JSON has neither NaN nor Infinity.
        raise ConfigError(f"sasl.jaas.config: {option} is {text!r}, want a finite number")
    return number


def _list_claim(text: str) -> list[str]:
    """Return the values of a list whose first character separates them, as in Kafka."""
    return text[1:].split(text[0]) if text else []


def _extensions(options: Mapping[str, str], prefix: str) -> tuple[tuple[str, str], ...]:
    extensions = tuple(
        (option.removeprefix(prefix), value)
        for option, value in options.items()
        if option.startswith(prefix)
    )
    for name, value in extensions:
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name):
            raise ConfigError(f"sasl.jaas.config: {prefix}{name} has a name that is not allowed")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(f"sasl.jaas.config: {prefix}{name} has a value that is not allowed")
    return extensions


def _milliseconds(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, str(default))
    if not _is_positive(text):
        raise ConfigError(f"{key} is {text[:40]!r}, want an integer from 1 to {_MAX_INT}")
    return int(text)


def _is_positive(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(_MAX_INT)) and 1 <= int(text) <= _MAX_INT
