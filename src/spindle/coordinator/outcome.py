"""The result of a group coordinator's operation, as data: what `Effects` mean for groups."""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from spindle.coordinator.effects import Effects
from spindle.coordinator.records import CoordinatorRecord


class Client(NamedTuple):
    """The sender of a request, as the coordinator remembers it for a member."""

    client_id: str
    client_host: str
    """As Kafka writes it: a slash and the address, `/127.0.0.1`."""
    api_version: int
    """Version of the request: older clients get older error codes."""
    may_describe: Callable[[str], bool] | None = None
    """Tells of a topic whether the sender may know of it; None if it may know of all."""


class TimerKey(NamedTuple):
    """The subject of a timer.

    `heartbeat`: the session of a member or a pending member times out. `join`: the join phase of a
    rebalance ends. `sync`: members that have not sent SyncGroup are removed. `consumer_session`:
    the session of a consumer group's member times out. `revocation`: such a member has not given up
    partitions in time. `consumer_join`, `consumer_sync`: a classic member of a consumer group has
    not sent JoinGroup or SyncGroup in time. `expiration`: expired offsets and empty groups of the
    shard are deleted.
    """

    kind: Literal[
        "heartbeat",
        "join",
        "sync",
        "consumer_session",
        "revocation",
        "consumer_join",
        "consumer_sync",
        "expiration",
    ]
    group_id: str = ""
    member_id: str = ""


CONSUMER_STEP_TIMERS: Final[
    tuple[Literal["revocation"], Literal["consumer_join"], Literal["consumer_sync"]]
] = ("revocation", "consumer_join", "consumer_sync")
"""Kinds of the timers with which a consumer group waits for the next step of a member."""


class GroupCreated(NamedTuple):
    """A classic group was created, by a join or from a consumer group; its record is appended."""

    group_id: str


class AssignmentStored(NamedTuple):
    """The leader's assignment by member id; `ClassicGroup.storing` until it is stored."""

    group_id: str
    assignment: dict[str, bytes]


class StaticMemberStored(NamedTuple):
    """A static member got a new member id without a rebalance (KIP-345, KIP-814)."""

    group_id: str
    group_instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader_id: str | None
    old_protocols: tuple[tuple[str, bytes], ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    can_skip_assignment: bool


Completion: TypeAlias = GroupCreated | AssignmentStored | StaticMemberStored


class Outcome(Effects[CoordinatorRecord, TimerKey, Completion]):
    """The effects of one operation; the functions of an operation add to it."""

    __slots__ = ()
