"""Get the tokens of OAUTHBEARER: make them, read them from a file, or ask an endpoint."""

import http.client
import json
import re
import socket
import ssl
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

from spindle.client.errors import ConnectionLost, SaslFailed, TlsFailed
from spindle.client.security.tls_failures import handshake_failure
from spindle.client.security.token_settings import (
    TokenEndpoint,
    TokenFile,
    TokenLogin,
    TokenOrigin,
    UnsecuredToken,
)
from spindle.common.errors import ConfigError
from spindle.common.text import error_text
from spindle.security.bounded_read import read_small_file
from spindle.security.http_client import exchange
from spindle.security.secret import Secret

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_USED_SHARE: Final = 0.8
"""The share of its life after which a token is replaced, `sasl.login.refresh.window.factor`."""
_OK: Final = 200
_SERVER_ERROR: Final = 500
_LATEST_EXPIRY_S: Final = 253_402_300_799
"""The end of the year 9999, in seconds since 1970."""


def post(endpoint: TokenEndpoint) -> tuple[int, bytes]:
    """Send the client credentials; return status and body of the answer.

    Raises:
        TimeoutError: the answer was not complete in time.
        OSError, http.client.HTTPException: the endpoint cannot be reached, or does not speak HTTP.
    """
    form = {"grant_type": "client_credentials"}
    if endpoint.scope:
        form["scope"] = endpoint.scope
    return exchange(
        "POST",
        endpoint.url,
        timeout_ms=endpoint.timeout_ms,
        tls=endpoint.tls,
        headers={
            "Authorization": f"Basic {_basic(endpoint)}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
        body=urlencode(form),
    )


def _basic(endpoint: TokenEndpoint) -> str:
    pair = (endpoint.client_id, endpoint.client_secret.text)
    if endpoint.is_header_url_encoded:
        pair = (quote(pair[0], safe=""), quote(pair[1], safe=""))
    return b64encode(":".join(pair).encode()).decode()


class TokenSource:
    """The tokens of one client. A token of an endpoint is used again for most of its life.

    Args:
        clock: as `time.time`.
    """

    def __init__(self, login: TokenLogin, clock: Callable[[], float] = time.time) -> None:
        self._origin: TokenOrigin = login.origin
        self._clock = clock
        self._kept: Secret | None = None
        self._kept_until = 0.0

    def token(self) -> Secret:
        """Return a token for a login now.

        Raises:
            ConfigError: the token file cannot be read, or has no token.
            SaslFailed: the endpoint refuses, or its answer has no token.
            ConnectionLost: the endpoint cannot be reached, or has a failure that may pass.
        """
        now = self._clock()
        match self._origin:
            case UnsecuredToken() as origin:
                return Secret(_unsecured(origin, now))
            case TokenFile(path):
                return Secret(_from_file(path))
            case TokenEndpoint() as endpoint:
                if self._kept is None or now >= self._kept_until:
                    token = _from_endpoint(endpoint)
                    expiry = _expiry(token, now, endpoint.url)
                    self._kept = Secret(token)
                    self._kept_until = now + _USED_SHARE * (expiry - now)
                return self._kept


def _unsecured(origin: UnsecuredToken, now: float) -> str:
    """Return an unsigned JSON web token."""
    claims = {"iat": now, "exp": now + origin.lifetime_s, **json.loads(origin.claims_json)}
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _encoded(value: dict[str, object]) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _expiry(token: str, now: float, url: str) -> float:
    """Return when a token ends, in seconds; now if it does not say.

    Raises:
        SaslFailed: the end time in the token is malformed.
    """
    try:
        text = token.split(".")[1]
        claims = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        expiry = claims["exp"]
    except (IndexError, ValueError, TypeError, KeyError, RecursionError):
        return now
    is_number = isinstance(expiry, int | float) and not isinstance(expiry, bool)
    if not is_number or not 0 <= expiry <= _LATEST_EXPIRY_S:
        raise SaslFailed(
            f"the token of token endpoint {url} has the claim exp {str(expiry)[:40]}, want seconds "
            f"since 1970, at most {_LATEST_EXPIRY_S}"
        )
    return float(expiry)


def _from_file(path: str) -> str:
    try:
        token = read_small_file(path).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(
            f"sasl.oauthbearer.token.endpoint.url: {path} cannot be read on "
            f"{socket.gethostname()}: {error.strerror}. The file has to be on every machine that "
            "connects"
        ) from None
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"sasl.oauthbearer.token.endpoint.url: {path} does not hold one token")
    return token


def _from_endpoint(endpoint: TokenEndpoint) -> str:
    """Ask for a token with client credentials (RFC 6749, section 4.4)."""
    try:
        status, body = post(endpoint)
    except ssl.SSLError as error:
        raise TlsFailed(f"token endpoint {handshake_failure(error, endpoint.url)}") from None
    except TimeoutError:
        raise ConnectionLost(
            f"token endpoint {endpoint.url} did not answer within {endpoint.timeout_ms} ms "
            "(sasl.login.read.timeout.ms)"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"token endpoint {endpoint.url} failed: {error_text(error)}") from None
    if status >= _SERVER_ERROR:
        raise ConnectionLost(f"token endpoint {endpoint.url} answered with status {status}")
    answer = _json_object(body)
    if status != _OK:
        reason = answer.get("error", "no reason given")
        raise SaslFailed(
            f"token endpoint {endpoint.url} answered with status {status} ({str(reason)[:200]!r}): "
            "check client id, client secret and scope"
        )
    token = answer.get("access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise SaslFailed(f"the answer of token endpoint {endpoint.url} has no usable access_token")
    return token


def _json_object(body: bytes) -> dict[str, object]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
