"""The public keys of an identity provider (JWKS, RFC 7517), and the signatures they verify.

Only algorithms with a public and a private key are accepted: RSA, ECDSA and EdDSA. A key is used
only with the algorithms of its own type, so a public key is never taken for the secret of an HMAC.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from spindle.common.errors import ConfigError
from spindle.security.server.oauthbearer import TokenRefused
from spindle.security.server.token_json import from_base64url, json_object

if TYPE_CHECKING:
    from joserfc.jwk import Key

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_KEY_TYPES: Final = {
    **dict.fromkeys(_RSA, "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("EdDSA", "Ed25519"), "OKP"),
}
_CURVES: Final = {
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    **dict.fromkeys(("EdDSA", "Ed25519"), "Ed25519"),
}
_MAX_KEYS: Final = 1000
_MIN_RSA_BITS: Final = 2048
_SHOWN_CHARACTERS: Final = 100


class UnknownKey(TokenRefused):
    """No key fits a token. A newer set may have it.

    Attributes:
        key_id: that of the token, None if it has none.
    """

    def __init__(self, reason: str, key_id: str | None) -> None:
        super().__init__(reason)
        self.key_id = key_id


class SigningKeys:
    """The keys of one set. Keys of unknown types, and keys for encryption, are left out."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = list(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token after its signature has been checked.

        Raises:
            UnknownKey: no key fits.
            TokenRefused: the token is malformed, or its signature is wrong.
        """
        from joserfc import jws
        from joserfc.errors import JoseError

        header = _header(token)
        algorithm, key_id = header["alg"], header.get("kid")
        for key in self._fitting(algorithm, key_id):
            try:
                checked = jws.deserialize_compact(token, key, algorithms=[algorithm])
            except (JoseError, ValueError):
                continue
            try:
                return json_object(checked.payload)
            except ValueError as error:
                raise TokenRefused(f"the token's payload is malformed: {error}") from None
        raise TokenRefused(f"the signature of the token is wrong ({algorithm})")

    def _fitting(self, algorithm: str, key_id: str | None) -> list[Key]:
        fitting = [
            key
            for key in self._keys
            if key.key_type == _KEY_TYPES[algorithm]
            and (key_id is None or key.kid == key_id)
            and key.get("alg", algorithm) == algorithm
            and key.get("crv") == _CURVES.get(algorithm)
        ]
        if not fitting:
            shown = "none" if key_id is None else repr(key_id[:_SHOWN_CHARACTERS])
            raise UnknownKey(f"no key fits the token (alg {algorithm}, kid {shown})", key_id)
        return fitting


def parse_signing_keys(data: bytes) -> SigningKeys:
    """Return the keys of a JWKS document.

    Raises:
        ValueError: it is malformed, or has no key that can verify a token.
        ConfigError: the library for tokens is not installed.
    """
    try:
        from joserfc.errors import JoseError, SecurityWarning
        from joserfc.jwk import RSAKey, import_key
    except ImportError:
        raise ConfigError(
            "OAUTHBEARER needs a package that is not installed: pip install joserfc"
        ) from None
    # Providers sign with EdDSA, which the library calls by its newer name Ed25519 only.
    warnings.filterwarnings("ignore", "EdDSA is deprecated", SecurityWarning)
    rows = json_object(data).get("keys")
    if not isinstance(rows, list) or len(rows) > _MAX_KEYS:
        raise ValueError(f"it has no list of at most {_MAX_KEYS} keys")
    keys = []
    for row in rows:
        if not isinstance(row, Mapping) or row.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        if row.get("use", "sig") != "sig":
            continue
        try:
            key = import_key(dict(row))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, RSAKey) and key.public_key.key_size < _MIN_RSA_BITS:
            continue
        keys.append(key)
    if not keys:
        raise ValueError("it has no public key (RSA of 2,048 bits or more, EC, Ed25519)")
    return SigningKeys(keys)


def _header(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenRefused("the token is not a signed JWT of three parts")
    try:
        header = json_object(from_base64url(parts[0]))
    except ValueError as error:
        raise TokenRefused(f"the token's header is malformed: {error}") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _KEY_TYPES:
        raise TokenRefused(f"the token's algorithm {algorithm!r:.40} is not accepted")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("the token's kid is not text")
    return header
