"""The result of one operation of a coordinator's shard, as data, for every kind of coordinator.

A shard is the coordinator of one partition of an internal topic (`spindle.coordinator.shards`). The
driver executes the `Effects` of an operation in this order: timers, answers, then one append of all
records. When the append is committed, the driver hands the records back to the shard
(`Shard.committed`) and sends `answers_after_commit`. When it fails, the tokens of
`answers_after_commit` get the error. In both cases `Shard.complete` is then called for each of the
`completions`.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from spindle.protocol.message import Message
from spindle.protocol.records.control import EndTransactionMarker

RecordT = TypeVar("RecordT")
TimerKeyT = TypeVar("TimerKeyT", bound=Hashable)
CompletionT = TypeVar("CompletionT")

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


@dataclass(slots=True)
class Effects(Generic[RecordT, TimerKeyT, CompletionT]):
    """The effects of one operation; the functions of an operation add to it."""

    records: list[RecordT]
    answers: list[Answer]
    answers_after_commit: list[Answer]
    completions: list[CompletionT]
    timers: list[TimerChange[TimerKeyT]]
    transaction: Transaction
    is_atomic: bool
    """False if the records are independent of each other, so that several batches may hold them."""

    def __init__(self, transaction: Transaction = None) -> None:
        self.records = []
        self.answers = []
        self.answers_after_commit = []
        self.completions = []
        self.timers = []
        self.transaction = transaction
        self.is_atomic = True

    @property
    def is_appended(self) -> bool:
        """True if the operation appends something to the log."""
        return bool(self.records) or isinstance(self.transaction, EndOfTransaction)

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

    def cancel_timer(self, key: TimerKeyT) -> None:
        self.timers.append(TimerChange(key, None))
