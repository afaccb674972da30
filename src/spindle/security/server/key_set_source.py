"""Read the key set of an identity provider (JWKS) from a file or over HTTPS. This blocks."""

import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from spindle.common.errors import ConfigError
from spindle.security.bounded_read import read_small_file
from spindle.security.server.signing_keys import SigningKeys, parse_signing_keys
from spindle.security.tls_settings import TlsSettings

_TIMEOUT_MS: Final = 10_000
_OK: Final = 200


class KeySetUnavailable(Exception):
    """The key set cannot be read now; a later attempt may succeed."""


@dataclass(frozen=True, slots=True)
class KeySetSource:
    """The source of the keys, and the times between reads: `sasl.oauthbearer.jwks.endpoint.*`.

    Attributes:
        url: a `file:` or an `https:` URL.
        refresh_ms: pause between two reads.
        retry_ms, max_retry_ms: first and longest pause after a read that failed.
    """

    url: str
    refresh_ms: int
    retry_ms: int
    max_retry_ms: int
    tls: TlsSettings

    @property
    def is_file(self) -> bool:
        return urlsplit(self.url).scheme == "file"


def read_key_set(source: KeySetSource) -> SigningKeys:
    """Return the keys.

    Raises:
        KeySetUnavailable: the file or the server cannot be read, or has no usable key.
        ConfigError: a trust store cannot be read, or a library is missing.
    """
    try:
        return parse_signing_keys(_file(source) if source.is_file else _answer(source))
    except ValueError as error:
        raise KeySetUnavailable(f"the key set of {source.url} cannot be used: {error}") from None


def check_key_set_url(url: str, key: str) -> None:
    """Raise ConfigError if the URL has no usable form; `key` is its name in the configuration."""
    try:
        parts = urlsplit(url)
        is_usable = parts.port != 0
    except ValueError:
        is_usable = False
    if is_usable and parts.username is None and parts.password is None:
        if parts.scheme == "file" and parts.path:
            return
        if parts.scheme == "https" and parts.hostname:
            return
    raise ConfigError(
        f"{key} must be an https or a file URL without user and password: anyone who can change "
        "the keys on their way can log in as every user"
    )


def _file(source: KeySetSource) -> bytes:
    path = unquote(urlsplit(source.url).path)
    try:
        return read_small_file(path)
    except OSError as error:
        raise KeySetUnavailable(f"the key set {path} cannot be read: {error.strerror}") from None


def _answer(source: KeySetSource) -> bytes:
    # Imported here, because http.client costs each node that starts 20 ms.
    from http.client import HTTPException

    from spindle.security.http_client import exchange

    headers = {"Accept": "application/json"}
    try:
        status, body = exchange(
            "GET", source.url, timeout_ms=_TIMEOUT_MS, tls=source.tls, headers=headers
        )
    except TimeoutError:
        raise KeySetUnavailable(f"{source.url} did not answer in {_TIMEOUT_MS} ms") from None
    except ssl.SSLCertVerificationError as error:
        raise KeySetUnavailable(
            f"the certificate of {source.url} is refused: {error.verify_message}"
        ) from None
    except (OSError, HTTPException) as error:
        raise KeySetUnavailable(f"{source.url} cannot be read: {error!r:.200}") from None
    if status != _OK:
        raise KeySetUnavailable(f"{source.url} answered with status {status}")
    return body
