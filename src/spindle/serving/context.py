"""The type of a handler, and what it knows of a request apart from its body."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from spindle.protocol.message import Message


@dataclass(slots=True)
class RequestContext:
    """One request: its header, and the client that sent it."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    client_address: str
    listener: str
    principal: str = "User:ANONYMOUS"
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"


Response = Message | None
"""None sends nothing, such as for a produce request with acks=0."""

Handler = Callable[[RequestContext, Any], Response | Awaitable[Response]]
