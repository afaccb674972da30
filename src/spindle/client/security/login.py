"""The steps of a login on one connection, without I/O: SaslHandshake, then SaslAuthenticate.

`sasl_login` is a generator: it yields requests with the class of the answer and the oldest version
to send, is sent the answers, and returns how long the session lives. A session is renewed by the
same steps on the open connection (KIP-368).
"""

import random
from collections.abc import Generator
from typing import Final, NamedTuple, TypeAlias, cast

from spindle.client.errors import SaslFailed
from spindle.client.security.mechanisms import SaslExchange
from spindle.common.errors import ErrorCode
from spindle.protocol.message import Message
from spindle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_RENEWAL_SHARE: Final = (0.85, 0.95)
"""A session is renewed at a random share of its life between these two, as in Kafka (KIP-368)."""


class LoginRequest(NamedTuple):
    """A request of a login."""

    message: Message
    response: type[Message]
    first_version: int = 0


LoginFlow: TypeAlias = Generator[LoginRequest, Message, int]


def sasl_login(mechanism: str, exchange: SaslExchange) -> LoginFlow:
    """Log in.

    Returns:
        The lifetime of the session in ms; 0 if it does not end.

    Raises:
        SaslFailed: the broker refused, or broke a rule of the mechanism.
    """
    # Version 0 sends the messages of the mechanism without Kafka's headers.
    answer = yield LoginRequest(
        SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, first_version=1
    )
    _check_handshake(mechanism, cast(SaslHandshakeResponse, answer))
    message: bytes | None = next(exchange)
    while True:
        request = SaslAuthenticateRequest(auth_bytes=message or b"")
        response = cast(
            SaslAuthenticateResponse, (yield LoginRequest(request, SaslAuthenticateResponse))
        )
        if response.error_code:
            raise SaslFailed(_refusal(mechanism, response))
        try:
            message = exchange.send(bytes(response.auth_bytes))
        except StopIteration:
            return response.session_lifetime_ms


def renewal_due_s(began_s: float, lifetime_ms: int) -> float | None:
    """Return when to renew a session, in seconds; None for one that does not end.

    Args:
        began_s: when the login began.
        lifetime_ms: how long the session lives, 0 if it does not end.
    """
    if lifetime_ms <= 0:
        return None
    return began_s + lifetime_ms / 1000 * random.uniform(*_RENEWAL_SHARE)


def _check_handshake(mechanism: str, answer: SaslHandshakeResponse) -> None:
    match answer.error_code:
        case 0:
            return
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(sorted(answer.mechanisms)) or "none"
            raise SaslFailed(f"sasl.mechanism is {mechanism}, but this listener enables {enabled}")
        case ErrorCode.ILLEGAL_SASL_STATE:
            raise SaslFailed(
                "this listener does not use SASL: security.protocol has to be PLAINTEXT or SSL, or "
                "the port is that of another listener"
            )
        case code:
            raise SaslFailed(f"the broker refused SaslHandshake: {ErrorCode(code).name}")


def _refusal(mechanism: str, result: SaslAuthenticateResponse) -> str:
    text = (result.error_message or ErrorCode(result.error_code).name).rstrip(".")
    return f"the broker refused the login with {mechanism} ({text!r}): check sasl.jaas.config"
