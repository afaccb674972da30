"""The client side of the SASL mechanisms, without I/O.

An exchange is a generator: it yields the messages of the client, is sent those of the server, and
returns at the end. It raises `SaslFailed` if the server breaks a rule.
"""

import json
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from spindle.client.errors import SaslFailed
from spindle.client.security.settings import PlainLogin, SaslLogin, ScramLogin
from spindle.security.mechanism_names import OAUTHBEARER, PLAIN
from spindle.security.scram import (
    ScramError,
    answer_challenge,
    check_server_final,
    client_final,
    client_first,
    client_first_bare,
)
from spindle.security.secret import Secret

SaslExchange: TypeAlias = Generator[bytes, bytes, None]
_SEPARATOR: Final = "\x01"


def mechanism_of(login: SaslLogin) -> str:
    """Return the name of a login's mechanism."""
    match login:
        case PlainLogin():
            return PLAIN
        case ScramLogin(mechanism):
            return mechanism.text
        case _:
            return OAUTHBEARER


def plain_exchange(login: PlainLogin) -> SaslExchange:
    """Send user name and password (RFC 4616)."""
    answer = yield f"\0{login.username}\0{login.password.text}".encode()
    if answer:
        raise SaslFailed(f"the answer to PLAIN has {len(answer)} bytes, want none")


def scram_exchange(login: ScramLogin, new_nonce: Callable[[], str]) -> SaslExchange:
    """Prove that the client knows the password, and verify that the server does (RFC 5802)."""
    nonce = new_nonce()
    bare = client_first_bare(login.username, nonce, is_token=login.is_token)
    challenge = yield client_first(bare)
    try:
        answer = answer_challenge(login.mechanism, login.password.text, bare, nonce, challenge)
        outcome = yield client_final(answer.without_proof, answer.proof)
        check_server_final(outcome, answer.server_signature)
    except ScramError as error:
        raise SaslFailed(f"the broker broke {login.mechanism.text}: {error}") from None


def token_exchange(token: Secret, extensions: tuple[tuple[str, str], ...]) -> SaslExchange:
    """Send a token (RFC 7628). A refusal has the reason and must be acknowledged."""
    pairs = "".join(f"{name}={value}{_SEPARATOR}" for name, value in extensions)
    message = f"n,,{_SEPARATOR}auth=Bearer {token.text}{_SEPARATOR}{pairs}{_SEPARATOR}"
    refusal = yield message.encode()
    if refusal:
        yield _SEPARATOR.encode()
        raise SaslFailed(f"the broker refused the token: {_status(refusal)}")


def _status(refusal: bytes) -> str:
    try:
        status = json.loads(refusal)["status"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return "without a reason"
    return repr(status)
