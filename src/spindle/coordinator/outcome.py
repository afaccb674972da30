"""The result of a group coordinator's operation, as data.

The driver executes an `Outcome` in this order: timers, answers, then one append of all records.
When the append is committed, the driver hands the records back to the shard
(`GroupShard.committed`) and sends `answers_after_commit`. When it fails, the tokens of
`answers_after_commit` get the error. In both cases `GroupShard.complete` is then called for each of
the `completions`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from spindle.coordinator.records import CoordinatorRecord
from spindle.protocol.message import Message

Token: TypeAlias = object
"""Names one waiting request. The coordinator only hands it back; it never looks into it."""


class Client(NamedTuple):
    """The sender of a request, as the coordinator remembers it for a member."""

    client_id: str
    client_host: str
    """As Kafka writes it: a slash and the address, `/127.0.0.1`."""
    api_version: int
    """Version of the request: older clients get older error codes."""


class Answer(NamedTuple):
    """A response, and the request that it answers."""

    token: Token
    response: Message


class TimerKey(NamedTuple):
    """The subject of a timer.

    `heartbeat`: the session of a member or a pending member times out. `join`: the join phase of a
    rebalance ends. `sync`: members that have not sent SyncGroup are removed. `consumer_session`:
    the session of a consumer group's member times out. `revocation`: such a member has not given up
    partitions in time. `expiration`: expired offsets and empty groups of the shard are deleted.
    """

    kind: Literal["heartbeat", "join", "sync", "consumer_session", "revocation", "expiration"]
    group_id: str = ""
    member_id: str = ""


class TimerChange(NamedTuple):
    """Set the timer to fire at `at_ms`, in place of an earlier time; None cancels it."""

    key: TimerKey
    at_ms: int | None


class GroupCreated(NamedTuple):
    """A group was created by a join, and its first record is appended."""

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


@dataclass(slots=True)
class Outcome:
    """The effects of one operation; the functions of an operation add to it."""

    records: list[CoordinatorRecord]
    answers: list[Answer]
    answers_after_commit: list[Answer]
    completions: list[Completion]
    timers: list[TimerChange]
    is_atomic: bool
    """False if the records are independent of each other, so that several batches may hold them."""

    def __init__(self) -> None:
        self.records = []
        self.answers = []
        self.answers_after_commit = []
        self.completions = []
        self.timers = []
        self.is_atomic = True

    def answer(self, token: Token, response: Message) -> None:
        """Send a response that depends on no record."""
        self.answers.append(Answer(token, response))

    def answer_after_commit(self, token: Token, response: Message) -> None:
        """Send a response when this operation's records are committed; at once if it has none."""
        if self.records:
            self.answers_after_commit.append(Answer(token, response))
        else:
            self.answers.append(Answer(token, response))

    def set_timer(self, key: TimerKey, at_ms: int) -> None:
        self.timers.append(TimerChange(key, at_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append(TimerChange(key, None))
