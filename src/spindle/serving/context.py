"""The type of a handler, and the context of a request: its header and its client."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from spindle.protocol.message import Message
from spindle.serving.fetch.sendfile_response import PartialResponse, SocketOwner


@dataclass(slots=True)
class RequestContext:
    """One request: its header, and the client that sent it.

    Attributes:
        socket_owner: the connection, if a directory's thread may use its socket for the response.
        is_token_authenticated: the client has logged in with a delegation token (KIP-48).
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    client_address: str
    listener: str
    principal: str = "User:ANONYMOUS"
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    socket_owner: SocketOwner | None = None
    is_token_authenticated: bool = False


Answered = Message | None
Response = Answered | PartialResponse
"""None: no response is sent, as for a produce request with acks=0."""

Handler = Callable[[RequestContext, Any], Answered | Awaitable[Response]]
