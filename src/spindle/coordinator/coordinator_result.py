"""The result of one operation of a coordinator's shard, as data.

A shard is the coordinator of one partition of an internal topic (`spindle.coordinator.ports`). The
driver executes the result of an operation in this order: timers, answers, then one append of all
records. When the append is committed, the driver hands the records back to the shard
(`Shard.committed`) and sends `answers_after_commit`. When it fails, the tokens of
`answers_after_commit` get the error. In both cases `Shard.complete` is then called for each of the
`completions`.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from spindle.coordinator.records import CoordinatorRecord
from spindle.protocol.message import Message
from spindle.protocol.records.control import EndTransactionMarker

RecordT = TypeVar("RecordT")
TimerKeyT = TypeVar("TimerKeyT", bound=Hashable)
CompletionT = TypeVar("CompletionT")
MessageT = TypeVar("MessageT")

Token: TypeAlias = object
"""Names one waiting request. The coordinator only hands it back; it never looks into it."""


class Answer(NamedTuple):
    """A response, and the request that it answers."""

    token: Token
    response: Message


class TimerChange(NamedTuple, Generic[TimerKeyT]):
    """Set the timer to fire at `at_ms`, in place of an earlier time; None cancels it."""

    key: TimerKeyT
    at_ms: int | None


class InTransaction(NamedTuple):
    """The producer to whose transaction the records of an operation belong.

    They are appended as one transactional batch of this producer.
    """

    producer_id: int
    producer_epoch: int


class EndOfTransaction(NamedTuple):
    """A producer's transaction that an operation ends: its batch is this marker.

    Such an operation has no records.
    """

    producer_id: int
    producer_epoch: int
    marker: EndTransactionMarker
    transaction_version: int = 0
    """Version of the transaction's coordinator; from 2 on, the marker has a higher epoch."""


Transaction: TypeAlias = InTransaction | EndOfTransaction | None
"""None if the operation has nothing to do with a transaction: its records are plain ones."""


class CoordinatorResult(Generic[RecordT, TimerKeyT, CompletionT]):
    """The result of one operation; the functions of the operation add to it.

    Attributes:
        now_ms: time of the operation.
        is_atomic: False if the records are independent of each other, so that several batches may
            hold them.
    """

    __slots__ = (
        "answers",
        "answers_after_commit",
        "completions",
        "is_atomic",
        "now_ms",
        "records",
        "timers",
        "transaction",
    )

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[RecordT] = []
        self.answers: list[Answer] = []
        self.answers_after_commit: list[Answer] = []
        self.completions: list[CompletionT] = []
        self.timers: list[TimerChange[TimerKeyT]] = []
        self.transaction: Transaction = None
        self.is_atomic = True

    @property
    def is_appended(self) -> bool:
        """True if the operation appends something to the log."""
        if self.records or self.transaction is None:
            return bool(self.records)
        return isinstance(self.transaction, EndOfTransaction)

    def answer(self, token: Token, response: Message) -> None:
        """Send a response that depends on no record."""
        self.answers.append(Answer(token, response))

    def answer_after_commit(self, token: Token, response: Message) -> None:
        """Send a response when this operation's batch is committed; at once if it has none."""
        if self.is_appended:
            self.answers_after_commit.append(Answer(token, response))
        else:
            self.answers.append(Answer(token, response))

    def set_timer(self, key: TimerKeyT, at_ms: int) -> None:
        self.timers.append(TimerChange(key, at_ms))

    def start_timer(self, key: TimerKeyT, delay_ms: int) -> None:
        """Set a timer to fire `delay_ms` after the time of the operation."""
        self.timers.append(TimerChange(key, self.now_ms + delay_ms))

    def cancel_timer(self, key: TimerKeyT) -> None:
        self.timers.append(TimerChange(key, None))


# ---------------------------------------------------------------- groups


class Client(NamedTuple):
    """The sender of a request, as the coordinator remembers it for a member."""

    client_id: str
    client_host: str
    """As Kafka writes it: a slash and the address, `/127.0.0.1`."""
    api_version: int
    """Version of the request: older clients get older error codes."""
    may_describe: Callable[[str], bool] | None = None
    """Whether the sender may describe a topic; None: all topics."""


NO_CLIENT: Final = Client("", "", 0)


class TimerKey(NamedTuple):
    """The subject of a timer.

    `heartbeat`: the session of a member or a pending member times out. `join`: the join phase of a
    rebalance ends. `sync`: members that have not sent SyncGroup are removed. `consumer_session`:
    the session of a consumer group's member times out. `revocation`: such a member has not given up
    partitions in time. `consumer_join`, `consumer_sync`: a classic member of a consumer group has
    not sent JoinGroup or SyncGroup in time. `share_session`: the session of a share group's member
    times out. `streams_session`: the session of a streams group's member times out.
    `streams_revocation`: such a member has not given up tasks in time. `streams_assignment`: the
    first target assignment of a streams group is due. `expiration`: expired offsets and empty
    groups of the shard are deleted.
    """

    kind: Literal[
        "heartbeat",
        "join",
        "sync",
        "consumer_session",
        "revocation",
        "consumer_join",
        "consumer_sync",
        "share_session",
        "streams_session",
        "streams_revocation",
        "streams_assignment",
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
GroupResult: TypeAlias = CoordinatorResult[CoordinatorRecord, TimerKey, Completion]


class GroupRequest(NamedTuple, Generic[MessageT]):
    """A request about a group, and the result to which the functions of its operation add."""

    token: Token
    message: MessageT
    out: GroupResult
    client: Client = NO_CLIENT
    """The sender, for the requests whose decision depends on it."""
