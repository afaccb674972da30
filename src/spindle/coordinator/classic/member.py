"""A member of a classic group: the fields of its JoinGroup, and its parked requests."""

from collections.abc import Container, Sequence
from typing import TypeAlias

from spindle.coordinator.coordinator_result import Token
from spindle.protocol.messages.join_group import JoinGroupRequest

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Name and metadata of each protocol that a member speaks, in its order of preference."""


class ClassicMember:
    """One member. `awaiting_join` and `awaiting_sync` are its parked requests, or None.

    `is_new` is True until the member's first join is answered. Only while it is True does the
    session timeout remove a member whose join is parked.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Token | None = None
        self.awaiting_sync: Token | None = None
        self.is_new = False

    @property
    def is_static(self) -> bool:
        """True if the member has an instance id, which it keeps when it restarts (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """True if a parked request shows that the member is alive; a first join does not count."""
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol_name: str) -> bytes:
        """Return the member's metadata for a protocol that it speaks."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise LookupError(f"member {self.member_id} does not speak {protocol_name!r}")

    def vote(self, candidates: Container[str]) -> str:
        """Return the first of the member's protocols that is a candidate; there is at least one."""
        return next(name for name, _ in self.protocols if name in candidates)


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """Return name and metadata of each protocol; if a name comes twice, its first entry counts."""
    named: dict[str, bytes] = {}
    for protocol in request.protocols:
        named.setdefault(protocol.name, protocol.metadata)
    return tuple(named.items())


def protocol_names(protocols: Sequence[tuple[str, bytes]]) -> list[str]:
    """Return the names without metadata, in the member's order."""
    return [name for name, _ in protocols]
