"""One run of an export: plan, cut into portions, and write and commit one portion after the other.

Every portion that is committed stays: a run that fails or is killed is continued by the next one.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from spindle.common.uuids import Uuid, uuid_text
from spindle.pipeline.export.continuation import extended, key_of, remaining_ranges
from spindle.pipeline.export.model import (
    Coverage,
    ExportedPartition,
    ExportProgress,
    ExportRefused,
    ExportResult,
    ExportSource,
    Growth,
    PartitionIdentity,
    PlannedRange,
    ProgressCallback,
    WrittenFile,
)
from spindle.pipeline.export.parquet_files import FileSettings
from spindle.pipeline.export.portions import DEFAULT_PORTION, PortionSize, cut_portions
from spindle.pipeline.export.row_format import RowFormat
from spindle.pipeline.export.spark_tasks import TaskProgress, write_files
from spindle.pipeline.export.table import ExportTable, Portion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPRESSIONS: Final = ("snappy", "zstd", "lz4", "gzip", "none")
RecreatedTopic = Literal["refuse", "append"]


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """The settings of an export that do not depend on the format of the table.

    Raises:
        ValueError: an unknown compression.
    """

    row_format: RowFormat
    compression: str = "snappy"
    recreated_topic: RecreatedTopic = "refuse"
    portion: PortionSize = DEFAULT_PORTION

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise ValueError(
                f"compression {self.compression!r} is none of {', '.join(COMPRESSIONS)}"
            )


def run_export(
    spark: "SparkSession",
    source: ExportSource,
    table: ExportTable,
    settings: ExportSettings,
    progress: ProgressCallback | None = None,
) -> ExportResult:
    """Add to the table what the source has and the table lacks.

    Raises:
        ExportRefused: the run would leave a gap, mix topics or change the columns.
        ExportConflict: another run committed first.
        DataLoss: offsets that had to come next are no longer in the log.
    """
    table.check_schema(settings.row_format.schema())
    planned = source.ranges()
    topics = {piece.partition.topic: piece.topic_id for piece in planned}
    if settings.recreated_topic == "refuse":
        _check_topics(table, topics)
    covered = _coverage(table, planned)
    remaining = remaining_ranges(source, planned, covered)
    if not remaining:
        return ExportResult(table.path, table.version, 0, 0, 0, ())
    portions = cut_portions(remaining, source.log_bytes(remaining), covered, settings.portion)
    run = _Run(spark, source, table, settings, topics, covered, portions, progress)
    return run.result()


@dataclass(slots=True)
class _Run:
    """The portions of one run, and what is done of them."""

    spark: "SparkSession"
    source: ExportSource
    table: ExportTable
    settings: ExportSettings
    topics: Mapping[str, Uuid]
    covered: dict[PartitionIdentity, Coverage]
    portions: Sequence[Sequence[PlannedRange]]
    progress: ProgressCallback | None
    run_id: str = field(default_factory=lambda: secrets.token_hex(6))
    portions_done: int = 0
    files: list[WrittenFile] = field(default_factory=list)
    exported: list[ExportedPartition] = field(default_factory=list)

    def result(self) -> ExportResult:
        """Write and commit all portions. A portion that fails leaves no file behind."""
        for portion in self.portions:
            directory = self.table.data_directory
            directory.mkdir(parents=True, exist_ok=True)
            try:
                self._export(directory, portion)
            except BaseException:
                remove_uncommitted(directory, self.run_id, {file.name for file in self.files})
                raise
        self._report(TaskProgress(0, 0, 0, 0, 0))
        return ExportResult(
            self.table.path,
            self.table.version,
            sum(file.rows for file in self.files),
            len(self.files),
            sum(file.size_bytes for file in self.files),
            _joined(self.exported),
            len(self.portions),
        )

    def _export(self, directory: Path, portion: Sequence[PlannedRange]) -> None:
        row_format = self.settings.row_format
        target = FileSettings(str(directory), self.run_id, self.settings.compression, row_format)
        files = write_files(self.spark, self.source, portion, target, self._report)
        growth: dict[PartitionIdentity, Growth] = {}
        for piece in portion:
            key = key_of(piece)
            before = self.covered.get(key)
            so_far = growth[key].after if key in growth else before
            growth[key] = Growth(before, extended(so_far, piece))
        self.table.commit(Portion(row_format.schema(), files, growth, self.topics))
        self.covered.update({key: each.after for key, each in growth.items()})
        self.files += files
        self.exported += _exported(portion, files)
        self.portions_done += 1

    def _report(self, tasks: TaskProgress) -> None:
        if self.progress is None:
            return
        done = sum(each.end_offset - each.start_offset for each in self.exported)
        total = sum(
            piece.end_offset - piece.start_offset for portion in self.portions for piece in portion
        )
        self.progress(
            ExportProgress(
                tasks.tasks_done,
                tasks.tasks_total,
                sum(file.rows for file in self.files) + tasks.rows,
                sum(file.size_bytes for file in self.files) + tasks.size_bytes,
                done + tasks.offsets,
                total,
                self.portions_done,
                len(self.portions),
            )
        )


def remove_uncommitted(directory: Path, run_id: str, committed: set[str]) -> None:
    """Remove the files of a run that were not committed.

    A cancelled task may still write one; it stays on the disk and is not part of the table.
    """
    for path in directory.glob(f"*.{run_id}-*"):
        if path.name not in committed:
            path.unlink(missing_ok=True)


def _check_topics(table: ExportTable, topics: Mapping[str, Uuid]) -> None:
    for topic, topic_id in topics.items():
        if table.is_other_topic(topic, topic_id):
            raise ExportRefused(
                f"the table {table.path} holds rows of an earlier topic {topic!r}; it was deleted "
                f"and created again with the id {uuid_text(topic_id)}. Use another table, or "
                "recreated_topic='append' to put the new rows behind the old ones"
            )


def _coverage(
    table: ExportTable, planned: Sequence[PlannedRange]
) -> dict[PartitionIdentity, Coverage]:
    found: dict[PartitionIdentity, Coverage] = {}
    for piece in planned:
        held = table.coverage(key_of(piece))
        if held is not None:
            found[key_of(piece)] = held
    return found


def _exported(
    portion: Sequence[PlannedRange], files: Sequence[WrittenFile]
) -> list[ExportedPartition]:
    return [
        ExportedPartition(
            piece.partition,
            piece.topic_id,
            piece.start_offset,
            piece.end_offset,
            sum(file.rows for file in files if _is_part(file, piece)),
        )
        for piece in portion
    ]


def _is_part(file: WrittenFile, piece: PlannedRange) -> bool:
    return (
        key_of(file) == key_of(piece) and piece.start_offset <= file.start_offset < piece.end_offset
    )


def _joined(exported: Sequence[ExportedPartition]) -> tuple[ExportedPartition, ...]:
    """Return the exported ranges with adjacent ones as one."""
    joined: list[ExportedPartition] = []
    for each in sorted(exported, key=lambda each: (*key_of(each), each.start_offset)):
        last = joined[-1] if joined else None
        if last and key_of(last) == key_of(each) and last.end_offset == each.start_offset:
            joined[-1] = ExportedPartition(
                each.partition,
                each.topic_id,
                last.start_offset,
                each.end_offset,
                last.rows + each.rows,
            )
        else:
            joined.append(each)
    return tuple(joined)
