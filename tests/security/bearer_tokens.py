"""Signed tokens and key sets for tests, written by hand so that they may be wrong."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

NOW_S = 1_700_000_000
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600}


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: object) -> str:
    return base64url(json.dumps(value).encode())


@cache
def key(name: str) -> ec.EllipticCurvePrivateKey:
    """Return a private key on P-256, the same for the same name."""
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_row(name: str, **fields: Any) -> dict[str, Any]:
    """Return a key as a row of a key set; its id is its name."""
    numbers = key(name).public_key().public_numbers()
    x, y = (base64url(n.to_bytes(32, "big")) for n in (numbers.x, numbers.y))
    return {"kty": "EC", "crv": "P-256", "kid": name, "x": x, "y": y} | fields


def ed_row() -> dict[str, Any]:
    public = ed_key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": base64url(public)}


def key_set(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(rows)}).encode()


def signed(
    claims: object, name: str = "one", header: dict[str, Any] | None = None, **fields: Any
) -> str:
    """Return a token that the key of a name has signed with ES256, whatever the header says.

    Args:
        header: the whole header; by default ES256, the name as the id of the key, and `fields`.
    """
    text = header if header is not None else {"alg": "ES256", "kid": name} | fields
    content = f"{part(text)}.{part(claims)}"
    signature = key(name).sign(content.encode(), ec.ECDSA(hashes.SHA256()))
    r, s = decode_dss_signature(signature)
    return f"{content}.{base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def signed_by_ed(claims: object) -> str:
    content = f"{part({'alg': 'EdDSA', 'kid': 'ed'})}.{part(claims)}"
    return f"{content}.{base64url(ed_key().sign(content.encode()))}"


def hashed(claims: object, secret: bytes) -> str:
    """Return a token with an HMAC in place of a signature."""
    content = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims)}"
    return f"{content}.{base64url(hmac.digest(secret, content.encode(), hashlib.sha256))}"


def unsecured(claims: object) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."
