"""What a handler knows of the request beside its body."""

from dataclasses import dataclass


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
