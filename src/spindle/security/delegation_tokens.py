"""The secret part of delegation tokens (KIP-48): an HMAC of the token's id.

All nodes have the same `delegation.token.secret.key`, so each of them can compute the HMAC of a
token, and the metadata need not contain it. In base64 it is the password of a login with SCRAM.
"""

import hmac
from base64 import b64encode
from collections.abc import Iterable

from spindle.security.secret import Secret


def token_hmac(secret: Secret, token_id: str) -> bytes:
    """Return the HMAC of a token, 64 bytes (SHA-512)."""
    return hmac.digest(secret.text.encode(), token_id.encode(), "sha512")


def token_password(secret: Secret, token_id: str) -> str:
    """Return the password of a login with this token."""
    return b64encode(token_hmac(secret, token_id)).decode()


def find_token(secret: Secret, token_ids: Iterable[str], wanted: bytes) -> str | None:
    """Return the id of the token with an HMAC, None if there is none."""
    for token_id in token_ids:
        if hmac.compare_digest(token_hmac(secret, token_id), wanted):
            return token_id
    return None
