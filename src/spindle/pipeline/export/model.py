"""The types of an export: its source, its progress and its result."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.pipeline.user_errors import ReportedCause


class ExportRefused(Exception):
    """The run would leave a gap, repeat rows or mix topics of one name; nothing was changed."""


class ExportConflict(Exception):
    """Another export committed to the same table first; run again. Nothing was changed."""


class ExportFailed(Exception):
    """A task of the export failed. The portions that were committed before stay."""

    def __init__(self, cause: ReportedCause) -> None:
        super().__init__(cause.text)
        self.cause = cause


class PartitionIdentity(NamedTuple):
    """The lasting identity of a partition: a topic that is created again has another topic id."""

    topic_id: Uuid
    partition: int


class Coverage(NamedTuple):
    """Offsets [start, end) of a partition that a table holds."""

    start: int
    end: int


class CoverageChange(NamedTuple):
    """The coverage of a partition before and after a portion. It grows at its start, end or both.

    `before` is None for a partition that the table does not hold.
    """

    before: Coverage | None
    after: Coverage

    def apply_to(self, held: Coverage | None) -> Coverage | None:
        """Return the coverage after the portion of a table that holds `held` now.

        Return None if another writer has moved a side that this portion moves. The other side may
        have moved: new offsets can be appended while older ones are filled in.
        """
        if self.before is None or held is None:
            return self.after if self.before == held else None
        moves_start = self.after.start != self.before.start
        moves_end = self.after.end != self.before.end
        if moves_start and held.start != self.before.start:
            return None
        if moves_end and held.end != self.before.end:
            return None
        return Coverage(
            self.after.start if moves_start else held.start,
            self.after.end if moves_end else held.end,
        )


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
    """A source of rows. It is pickled into tasks, so it holds plain values only.

    `ends_at_log_end`: the ranges end where the cluster says that the logs end now.
    """

    columns: tuple[str, ...]
    start_is_explicit: bool
    ends_at_log_end: bool
    fail_on_data_loss: bool

    def ranges(self) -> Sequence[PlannedRange]:
        """Return the ranges to read now, one for each partition; some may be empty."""
        ...

    def log_bytes(self, ranges: Sequence[PlannedRange]) -> int:
        """Return the size of the ranges in the log, as far as it can be estimated."""
        ...

    def tasks(self, ranges: Sequence[PlannedRange]) -> list[tuple[PlannedRange, ...]]:
        """Return the ranges as tasks of about equal size."""
        ...

    def read(self, piece: Any) -> Iterator[Any]:
        """Return the rows of a range as Arrow RecordBatches. Runs in a task."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file of one range that is not committed yet.

    `name` is relative to the data directory of the table. `partition_values` has the value of every
    column by which the table is partitioned, as text; None is null. A file of dead letters belongs
    to the table beside the exported one.
    """

    name: str
    partition: TopicPartition
    topic_id: Uuid
    start_offset: int
    end_offset: int
    rows: int
    size_bytes: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    partition_values: tuple[tuple[str, str | None], ...] = ()
    is_dead_letter: bool = False


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """The progress of an export: rows written, and the shares of the work that are done.

    Tasks are those of the current portion. Offsets are those of finished portions and tasks; rows
    are fewer than offsets where a topic was compacted or has transactions.
    """

    tasks_done: int
    tasks_total: int
    rows: int
    size_bytes: int = 0
    offsets_done: int = 0
    offsets_total: int = 0
    portions_done: int = 0
    portions_total: int = 1


ProgressCallback: TypeAlias = Callable[[ExportProgress], None]


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """The offsets [start_offset, end_offset) of a partition that one run added.

    A run that appends and fills in older offsets has two of them for a partition.
    """

    partition: TopicPartition
    topic_id: Uuid
    start_offset: int
    end_offset: int
    rows: int


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The outcome of a run. `version` is that of the table, None while there is no table.

    `portions` is the number of commits. `dead_letters` are the records that could not be decoded;
    they are not among the `rows`. With mode `upsert`, `rows` and `deleted` are rows that were
    written and deleted, one for each key in a commit.
    """

    path: str
    version: int | None
    rows: int
    files: int
    size_bytes: int
    partitions: tuple[ExportedPartition, ...]
    portions: int = 0
    dead_letters: int = 0
    deleted: int = 0

    @property
    def is_empty(self) -> bool:
        """True if there were no new records, so that no commit was made."""
        return not self.partitions


def joined(exported: Sequence[ExportedPartition]) -> tuple[ExportedPartition, ...]:
    """Return the exported ranges with adjacent ones as one."""
    joined: list[ExportedPartition] = []
    for partition in sorted(exported, key=lambda each: (*_key(each), each.start_offset)):
        last = joined[-1] if joined else None
        if last and _key(last) == _key(partition) and last.end_offset == partition.start_offset:
            joined[-1] = ExportedPartition(
                partition.partition,
                partition.topic_id,
                last.start_offset,
                partition.end_offset,
                last.rows + partition.rows,
            )
        else:
            joined.append(partition)
    return tuple(joined)


def _key(partition: ExportedPartition) -> PartitionIdentity:
    return PartitionIdentity(partition.topic_id, partition.partition.partition)
