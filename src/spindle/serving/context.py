"""The type of a handler, and the context of a request: its header and its client."""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.message import Message
from spindle.serving.fetch.sendfile_response import PartialResponse, SocketOwner


@dataclass(slots=True)
class RequestContext:
    """One request: its header, and the client that sent it.

    Attributes:
        socket_owner: the connection, if a directory's thread may use its socket for the response.
        is_token_authenticated: the client has logged in with a delegation token (KIP-48).
        when_lost: calls back when the connection is lost; only the last callback of a key.
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
    when_lost: Callable[[Hashable, Callable[[], None]], None] | None = None
    client_port: int = 0


Answered = Message | None
Response = Answered | PartialResponse
"""None: no response is sent, as for a produce request with acks=0."""

Handler = Callable[[RequestContext, Any], Answered | Awaitable[Response]]


def fencing_code(context: RequestContext, code: ErrorCode, from_version: int) -> ErrorCode:
    """Return the code; before `from_version` PRODUCER_FENCED is INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < from_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def check_own_id(node_id: int, name: str, unexpected: str, noun: str = "Broker") -> None:
    """Refuse a request that names another node.

    Args:
        unexpected: the text for another node's id, in which `{}` stands for the id of this one.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not name.removeprefix("-").isdecimal():
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{noun} id must be an integer, but it is: {name}"
        )
    if int(name) != node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{unexpected.format(node_id)} received {name}",
        )
