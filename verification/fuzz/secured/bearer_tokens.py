"""An identity provider for one run: a key set in a file, and signed tokens (RFC 7519)."""

import json
import time
from base64 import urlsafe_b64encode
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_KEY_ID: Final = "fuzz"
_NUMBER_BYTES: Final = 32
_LIFE_S: Final = 24 * 3600


class TokenIssuer:
    """Signs tokens with a key of its own (ES256)."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._tokens: dict[str, str] = {}

    def key_set(self) -> str:
        """Return the JWKS document with the public key."""
        numbers = self._key.public_key().public_numbers()
        x, y = (_base64url(n.to_bytes(_NUMBER_BYTES, "big")) for n in (numbers.x, numbers.y))
        row = {"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": _KEY_ID, "x": x, "y": y}
        return json.dumps({"keys": [row]})

    def token(self, user: str) -> str:
        """Return a token that is valid for hours, the same for each login of a user."""
        if user not in self._tokens:
            now_s = int(time.time())
            claims = {"sub": user, "iat": now_s - 10, "exp": now_s + _LIFE_S}
            self._tokens[user] = self.signed(claims)
        return self._tokens[user]

    def signed(self, claims: dict[str, Any], algorithm: str = "ES256") -> str:
        """Return a token with these claims; the signature is that of ES256 in any case."""
        content = f"{_part({'alg': algorithm, 'kid': _KEY_ID})}.{_part(claims)}"
        signature = self._key.sign(content.encode(), ec.ECDSA(hashes.SHA256()))
        r, s = decode_dss_signature(signature)
        numbers = r.to_bytes(_NUMBER_BYTES, "big") + s.to_bytes(_NUMBER_BYTES, "big")
        return f"{content}.{_base64url(numbers)}"


def unsigned_token(user: str) -> str:
    """Return a token that claims to need no signature."""
    return f"{_part({'alg': 'none'})}.{_part({'sub': user, 'exp': 2**40})}."


def _part(value: dict[str, Any]) -> str:
    return _base64url(json.dumps(value).encode())


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
