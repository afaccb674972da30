"""A history: all events, the logs at the end, and the goals of the clients."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from spindle.common.ids import TopicPartition
from spindle.testing.histories.events import Event, NumberedRecord

PartitionLogs: TypeAlias = dict[TopicPartition, dict[int, NumberedRecord]]


def same_record(record: NumberedRecord) -> NumberedRecord | None:
    """Return the record: the transformation of a plain copy."""
    return record


@dataclass(frozen=True, slots=True)
class Copy:
    """An application that writes one record into `target` for each record of `source`.

    Attributes:
        group: the group whose committed offsets are the progress of the application.
        transform: gives the record that is written for a record; None if none is written.
        is_finished: the application had the time to reach the end of `source`.
    """

    group: str
    source: str
    target: str
    transform: Callable[[NumberedRecord], NumberedRecord | None] = same_record
    is_finished: bool = True


@dataclass(slots=True)
class ClientHistory:
    """All events in their order, and the logs as they were at the end.

    Attributes:
        logs: the records of each partition by offset, read to the end with read_committed when
            everything was over. Nothing may have been compacted or deleted by then.
        must_read: groups that must have read everything, with their topics.
        copies: applications whose output must be exactly their input.
    """

    events: list[Event] = field(default_factory=list)
    logs: PartitionLogs = field(default_factory=dict)
    must_read: dict[str, list[str]] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
