"""The shape of a handler, and what it knows of a request beside its body."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from spindle.protocol.message import Message


@dataclass(slots=True)
class RequestContext:
    """One request. `api_version` decides how its answer is written."""

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
"""None: nothing is sent, e.g. to a produce request with acks=0."""

Handler = Callable[[RequestContext, Any], Response | Awaitable[Response]]
