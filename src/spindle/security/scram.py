"""Salted challenge response (SCRAM, RFC 5802 and 7677) with the rules of Kafka.

Kafka takes user names and passwords as UTF-8, without SASLprep, and knows no channel binding.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from enum import IntEnum
from typing import Final, NamedTuple

MIN_ITERATIONS: Final = 4096
DEFAULT_ITERATIONS: Final = 4096
MAX_STORED_ITERATIONS: Final = 16384
"""The most iterations of a credential that Kafka stores."""
MAX_ACCEPTED_ITERATIONS: Final = 1_000_000
"""The most iterations that a client computes for a server, about a second of work."""

_CHANNEL_BINDING: Final = "n,,"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_NAME: Final = r"(?:[^,=\x00]|=2C|=3D)+"
_EXTENSIONS: Final = r"((?:,[A-Za-z]+=[^,\x00]+)*)"
_CLIENT_FIRST: Final = re.compile(
    rf"(n,(?:a=({_NAME}))?,)((?:m=[^,\x00]+,)?n=({_NAME}),r=({_NONCE}){_EXTENSIONS})"
)
_CLIENT_FINAL: Final = re.compile(rf"(c=({_BASE64}),r=({_NONCE}){_EXTENSIONS}),p=({_BASE64})")
_SERVER_FIRST: Final = re.compile(rf"r=({_NONCE}),s=({_BASE64}),i=([1-9][0-9]{{0,9}})(?:,.*)?")
_SERVER_FINAL: Final = re.compile(rf"(?:e=([^,]*)|v=({_BASE64}))(?:,.*)?")


class ScramMechanism(IntEnum):
    """The mechanisms, by the numbers of the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        """The name in configurations."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash function."""
        return f"sha{self.name.rpartition('_')[2]}"

    @property
    def hash_bytes(self) -> int:
        """The size of a hash."""
        return hashlib.new(self.hash_name).digest_size


SCRAM_MECHANISMS: Final = {mechanism.text: mechanism for mechanism in ScramMechanism}


class ScramError(Exception):
    """A SCRAM message that is malformed or breaks a rule."""


class ScramCredential(NamedTuple):
    """The values with which a server checks a client's proof; they do not reveal the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


class ClientFirst(NamedTuple):
    """The first message of a client.

    Attributes:
        header: the beginning of the message, which the client repeats in its last message.
        bare: the rest.
        authorization_id: the user to act as, empty for the one that logs in.
        is_token: the user is the id of a delegation token (KIP-48).
    """

    header: str
    bare: str
    authorization_id: str
    user: str
    nonce: str
    is_token: bool


class ClientFinal(NamedTuple):
    """The last message of a client."""

    without_proof: str
    proof: bytes


class ChallengeAnswer(NamedTuple):
    """The values that a client computes from a server's challenge.

    Attributes:
        without_proof: the client's last message up to its proof.
        server_signature: the proof with which the server has to answer.
    """

    without_proof: str
    proof: bytes
    server_signature: bytes


class ServerFirst(NamedTuple):
    """The challenge of a server."""

    nonce: str
    salt: bytes
    iterations: int


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return the salted hash of a password, from which all keys come."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def stored_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key by which a server checks a client's proof."""
    return hashlib.new(mechanism.hash_name, _client_key(mechanism, salted)).digest()


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key with which a server proves that it knows the credential."""
    return _hmac(mechanism, salted, b"Server Key")


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: str) -> bytes:
    """Return the proof that a client knows the password."""
    signature = _hmac(mechanism, stored_key(mechanism, salted), auth_message.encode())
    return bytes(a ^ b for a, b in zip(_client_key(mechanism, salted), signature, strict=True))


def server_signature(mechanism: ScramMechanism, key: bytes, auth_message: str) -> bytes:
    """Return the proof that a server knows the credential, from its server key."""
    return _hmac(mechanism, key, auth_message.encode())


def client_first_bare(user: str, nonce: str, *, is_token: bool) -> str:
    """Return the client's first message without the header.

    Args:
        is_token: The user is the id of a delegation token, the password its HMAC (KIP-48).
    """
    name = user.replace("=", "=3D").replace(",", "=2C")
    return f"n={name},r={nonce}{',tokenauth=true' if is_token else ''}"


def client_first(bare: str) -> bytes:
    """Return the client's first message."""
    return f"{_CHANNEL_BINDING}{bare}".encode()


def client_final_without_proof(nonce: str) -> str:
    """Return the client's last message up to its proof."""
    return f"c={b64encode(_CHANNEL_BINDING.encode()).decode()},r={nonce}"


def client_final(without_proof: str, proof: bytes) -> bytes:
    """Return the client's last message."""
    return f"{without_proof},p={b64encode(proof).decode()}".encode()


def answer_challenge(
    mechanism: ScramMechanism, password: str, bare: str, nonce: str, challenge: bytes
) -> ChallengeAnswer:
    """Return a client's answer to a challenge.

    Args:
        bare: the client's first message without the header.
        nonce: the client's nonce in that message.

    Raises:
        ScramError: the challenge is malformed, or breaks a rule.
    """
    server = parse_server_first(challenge, nonce)
    salted = salted_password(mechanism, password, server.salt, server.iterations)
    without_proof = client_final_without_proof(server.nonce)
    auth_message = f"{bare},{challenge.decode()},{without_proof}"
    return ChallengeAnswer(
        without_proof,
        client_proof(mechanism, salted, auth_message),
        server_signature(mechanism, server_key(mechanism, salted), auth_message),
    )


def parse_client_first(message: bytes) -> ClientFirst:
    """Return a client's first message.

    Raises:
        ScramError: the message is malformed, or asks for channel binding.
    """
    match = _CLIENT_FIRST.fullmatch(_decoded(message))
    if match is None:
        raise ScramError("its first SCRAM message is malformed")
    header, authorization_id, bare, name, nonce, extensions = match.groups()
    return ClientFirst(
        header,
        bare,
        _from_name(authorization_id or ""),
        _from_name(name),
        nonce,
        "tokenauth=true" in extensions.lower().split(","),
    )


def server_first(nonce: str, credential: ScramCredential) -> str:
    """Return a server's challenge; the nonce begins with the client's."""
    salt = b64encode(credential.salt).decode()
    return f"r={nonce},s={salt},i={credential.iterations}"


def parse_client_final(message: bytes, header: str, nonce: str) -> ClientFinal:
    """Return a client's last message, checked against its first one and the server's nonce.

    Raises:
        ScramError: the message is malformed, or belongs to another exchange.
    """
    match = _CLIENT_FINAL.fullmatch(_decoded(message))
    if match is None:
        raise ScramError("its last SCRAM message is malformed")
    without_proof, binding, found_nonce, _, proof = match.groups()
    if found_nonce != nonce:
        raise ScramError("its last SCRAM message has another nonce than the challenge")
    if _from_base64(binding) != header.encode():
        raise ScramError("its last SCRAM message has another channel binding than its first one")
    return ClientFinal(without_proof, _from_base64(proof))


def is_proof(mechanism: ScramMechanism, stored: bytes, auth_message: str, proof: bytes) -> bool:
    """Return whether a client's proof fits the stored key, in constant time."""
    signature = _hmac(mechanism, stored, auth_message.encode())
    if len(proof) != len(signature):
        return False
    key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(mechanism.hash_name, key).digest(), stored)


def server_final(signature: bytes) -> bytes:
    """Return a server's last message."""
    return f"v={b64encode(signature).decode()}".encode()


def parse_server_first(message: bytes, client_nonce: str) -> ServerFirst:
    """Return a server's challenge, checked against the client's nonce and the limits.

    Raises:
        ScramError: the message is malformed, or breaks a rule.
    """
    match = _SERVER_FIRST.fullmatch(_decoded(message))
    if match is None:
        raise ScramError("its first SCRAM message is malformed")
    nonce, salt, iterations = match[1], match[2], int(match[3])
    if not nonce.startswith(client_nonce) or nonce == client_nonce:
        raise ScramError("its nonce does not extend the client's")
    if not MIN_ITERATIONS <= iterations <= MAX_ACCEPTED_ITERATIONS:
        raise ScramError(
            f"it asks for {iterations} iterations, {MIN_ITERATIONS} to "
            f"{MAX_ACCEPTED_ITERATIONS} are accepted"
        )
    return ServerFirst(nonce, _from_base64(salt), iterations)


def check_server_final(message: bytes, expected_signature: bytes) -> None:
    """Check a server's last message.

    Raises:
        ScramError: it is malformed, an error, or no proof that the server knows the credential.
    """
    match = _SERVER_FINAL.fullmatch(_decoded(message))
    if match is None:
        raise ScramError("its last SCRAM message is malformed")
    if match[1] is not None:
        raise ScramError(f"it refused the proof: {match[1]!r}")
    if not hmac.compare_digest(_from_base64(match[2]), expected_signature):
        raise ScramError(
            "its signature is wrong, so it does not know the credential and may be an impostor"
        )


def _decoded(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a SCRAM message is not UTF-8") from None


def _from_name(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("a value of a SCRAM message is not base64") from None


def _client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return _hmac(mechanism, salted, b"Client Key")


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)
