"""The events of a history: the requests of clients, and their responses.

Note an event named `...Sent` or `...Asked` *before* the call, and any other *after* it. Then the
order of the events is the order in time wherever a rule depends on it.
"""

from typing import NamedTuple, TypeAlias

from spindle.common.ids import TopicPartition


class NumberedRecord(NamedTuple):
    """A record, named by its producer and a number that rises in the order of sending.

    The value or a header of the record has to contain both, so that it can be recognised.
    """

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}.{self.number}"


class RecordSent(NamedTuple):
    """A producer sends a record, in a transaction or without (None)."""

    record: NumberedRecord
    topic: str
    transaction: str | None = None


class Acknowledged(NamedTuple):
    """The broker confirmed to a producer that its record is stored at this offset.

    The offset is None if the producer did not receive it: a batch that was sent again, and was in
    the log already, may be acknowledged in this way.
    """

    record: NumberedRecord
    partition: TopicPartition
    offset: int | None
    transaction: str | None = None


class CommitAsked(NamedTuple):
    """A producer asks to commit a transaction. The name of a transaction is used only once."""

    transaction: str


class TransactionEnded(NamedTuple):
    """The outcome of a transaction is known.

    Leave the event out where the outcome is not known: the request was sent and nothing was
    answered. A transaction is aborted anyway if nobody has ever asked to commit it.
    """

    transaction: str
    is_committed: bool


class Assigned(NamedTuple):
    """A member of a group got a partition, or went back in it to the committed offset."""

    group: str
    member: str
    partition: TopicPartition


class Delivered(NamedTuple):
    """A member of a group got a record, with the isolation level read_committed or without it."""

    group: str
    member: str
    partition: TopicPartition
    offset: int
    record: NumberedRecord
    is_read_committed: bool = True


class OffsetSent(NamedTuple):
    """A member asks to commit this offset of its group, by itself or as a part of a transaction."""

    group: str
    partition: TopicPartition
    offset: int
    transaction: str | None = None


class OffsetCommitted(NamedTuple):
    """A commit of an offset was confirmed to a member; not for offsets in transactions."""

    group: str
    partition: TopicPartition
    offset: int


class OffsetsAsked(NamedTuple):
    """A client asks for the stable committed offsets of a group; `question` names the question."""

    group: str
    question: int


class OffsetRead(NamedTuple):
    """The answer for one partition; -1 for none."""

    group: str
    question: int
    partition: TopicPartition
    offset: int


Event: TypeAlias = (
    RecordSent
    | Acknowledged
    | CommitAsked
    | TransactionEnded
    | Assigned
    | Delivered
    | OffsetSent
    | OffsetCommitted
    | OffsetsAsked
    | OffsetRead
)
