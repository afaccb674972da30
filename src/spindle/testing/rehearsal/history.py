"""The history of clients at work: what they were told, in the order in which they were told it.

Each record has a number, counted up by its producer, so a record can be recognised wherever it is.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


class NumberedRecord(NamedTuple):
    """A record by its producer and its number there."""

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}.{self.number}"


class Acknowledged(NamedTuple):
    """A producer was told that its record is safe at this offset.

    The offset is None if the producer was not told it: a batch that was sent again, and was in the
    log already, may be acknowledged in this way.
    """

    record: NumberedRecord
    partition: int
    offset: int | None


class Assigned(NamedTuple):
    """A member of a group got a partition: it begins where the group has committed."""

    group: str
    member: str
    partition: int


class Delivered(NamedTuple):
    """A member of a group got a record."""

    group: str
    member: str
    partition: int
    offset: int
    record: NumberedRecord


class CommitSent(NamedTuple):
    """A member asks to commit this offset."""

    group: str
    partition: int
    offset: int


class Committed(NamedTuple):
    """A member was told that its offset is committed."""

    group: str
    partition: int
    offset: int


class OffsetsAsked(NamedTuple):
    """Somebody asks for the committed offsets of a group; `question` names the question."""

    group: str
    question: int


class OffsetRead(NamedTuple):
    """The answer for one partition; -1 for none."""

    group: str
    question: int
    partition: int
    offset: int


Event: TypeAlias = (
    Acknowledged | Assigned | Delivered | CommitSent | Committed | OffsetsAsked | OffsetRead
)


@dataclass(slots=True)
class ClientHistory:
    """All events in their order, and the log as it was at the end.

    Attributes:
        logs: the records of each partition by offset, read when everything was over.
        sent: how many records each producer has sent; a producer that does not tell is missing.
        groups: groups that were to read everything.
    """

    events: list[Event] = field(default_factory=list)
    logs: dict[int, dict[int, NumberedRecord]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
