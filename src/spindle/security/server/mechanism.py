"""A mechanism as a connection sees it: exchanges, and their two outcomes.

An exchange is a generator. It yields the messages of the server, is sent those of the client, and
returns a `LoggedIn`, or raises `LoginRefused`. Its first message is dropped, because the client
speaks first.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias


class LoggedIn(NamedTuple):
    """The outcome of an exchange that has succeeded.

    Attributes:
        user: the name of the user, without a type: the principal is `User:` and this name.
        answer: the last message of the server; it may be empty.
        expires_at_ms: the end of the credential as Unix time, None if it does not end.
        is_token: the client has shown a delegation token, so it may not create others (KIP-48).
    """

    user: str
    answer: bytes = b""
    expires_at_ms: int | None = None
    is_token: bool = False


class LoginRefused(Exception):
    """The client did not prove who it is.

    Attributes:
        user: the name that the client gave, for the log of this node.
        client_text: the reason that the client may see; None for a text that is the same for every
            cause, so that it does not reveal which users exist.
    """

    def __init__(self, reason: str, *, user: str = "", client_text: str | None = None) -> None:
        super().__init__(reason)
        self.user = user
        self.client_text = client_text


ServerExchange: TypeAlias = Generator[bytes, bytes, LoggedIn]
SaslMechanism: TypeAlias = Callable[[], ServerExchange]
"""Begins an exchange with one client."""
