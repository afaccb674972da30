"""The types of an export: its source, its progress and its result."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid


class ExportRefused(Exception):
    """The run would leave a gap, repeat rows or mix topics of one name; nothing was changed."""


class ExportConflict(Exception):
    """Another export committed to the same table first; run again. Nothing was changed."""


class PartitionIdentity(NamedTuple):
    """The lasting identity of a partition: a topic that is created again has another topic id."""

    topic_id: Uuid
    partition: int


class Coverage(NamedTuple):
    """Offsets [start, end) of a partition that a table holds."""

    start: int
    end: int


class PlannedRange(Protocol):
    """Offsets [start_offset, end_offset) of a partition, as a source plans them."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> Uuid: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class ExportSource(Protocol):
    """A source of rows. It is pickled into tasks, so it holds plain values only."""

    columns: tuple[str, ...]
    start_is_explicit: bool
    fail_on_data_loss: bool

    def ranges(self) -> Sequence[PlannedRange]:
        """Return all ranges to read now, by partition and offset, without gaps in a partition."""
        ...

    def tasks(self, ranges: Sequence[PlannedRange]) -> list[tuple[PlannedRange, ...]]:
        """Return the ranges as tasks of about equal size."""
        ...

    def read(self, piece: Any) -> Iterator[Any]:
        """Return the rows of a range as Arrow RecordBatches. Runs in a task."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file of one range that is not committed yet. `name` is relative to the table."""

    name: str
    partition: TopicPartition
    topic_id: Uuid
    start_offset: int
    end_offset: int
    rows: int
    size_bytes: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """The progress of an export: finished tasks and the rows they wrote."""

    tasks_done: int
    tasks_total: int
    rows: int


ProgressCallback: TypeAlias = Callable[[ExportProgress], None]


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """The offsets [start_offset, end_offset) of a partition that one run added."""

    partition: TopicPartition
    topic_id: Uuid
    start_offset: int
    end_offset: int
    rows: int


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The outcome of a run. `version` is that of the table, None while there is no table."""

    path: str
    version: int | None
    rows: int
    files: int
    size_bytes: int
    partitions: tuple[ExportedPartition, ...]

    @property
    def is_empty(self) -> bool:
        """True if there were no new records, so that no commit was made."""
        return not self.partitions
