"""A member of a consumer group: its subscription, and its way to the target assignment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from spindle.common.uuids import Uuid

Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partition ids by topic id; no topic without partitions."""
Owned: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""By topic id and partition id, the epoch in which the member got the partition."""

LEAVING_EPOCH: Final = -1
"""Member epoch of a request with which a member leaves."""
STATIC_LEAVING_EPOCH: Final = -2
"""Member epoch of a static member that has left and may come back within its session timeout."""
JOINING_EPOCH: Final = 0


class ClassicSettings(NamedTuple):
    """The part of its last JoinGroup that only a member of the classic protocol has."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each protocol that it speaks, in its order of preference."""


class MemberState(Enum):
    """The states, by their numbers in the record.

    UNREVOKED_PARTITIONS: the member must give up partitions before it gets the next epoch.
    UNRELEASED_PARTITIONS: it has the epoch, and waits for partitions of other members.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member; a change makes a new object.

    Attributes:
        topic_names: topics that it subscribes to by name.
        topic_regex: RE2 expression of the topics that it subscribes to; empty if there is none.
        rebalance_timeout_ms: time for giving up partitions.
        server_assignor: the assignor that it asks for.
        epoch, previous_epoch: the epoch that it must send, and the one before. A member whose
            answer was lost still sends the latter.
        assigned: partitions that it may read.
        revoking: partitions that it has to give up.
        classic: settings of a member that uses the classic protocol, None for the others.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    classic: ClassicSettings | None = None

    @property
    def has_left(self) -> bool:
        """True for a static member that is away and may come back."""
        return self.epoch == STATIC_LEAVING_EPOCH

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return True if the member has exactly its target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def subscribes_like(self, other: "ConsumerMember") -> bool:
        """Return True if both subscribe to the same names and the same expression."""
        return (self.topic_names, self.topic_regex) == (other.topic_names, other.topic_regex)

    def epoch_of(self, topic_id: Uuid, partition: int) -> int | None:
        """Return the epoch in which the member got a partition that it still owns, or None."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def partitions_of(owned: Owned) -> dict[Uuid, frozenset[int]]:
    """Return the partitions without their epochs."""
    return {topic_id: frozenset(epochs) for topic_id, epochs in owned.items() if epochs}
