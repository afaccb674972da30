"""One run of an export: plan, cut into portions, and write and commit one portion after the other.

Every portion that is committed stays: a run that fails or is killed is continued by the next one.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from spindle.common.uuids import ZERO_UUID, Uuid, uuid_text
from spindle.pipeline.export.continuation import (
    coverage_of,
    extended,
    key_of,
    remaining_ranges,
)
from spindle.pipeline.export.dead_letters import DeadLetters
from spindle.pipeline.export.merging import Merge, merge_changes
from spindle.pipeline.export.model import (
    Coverage,
    CoverageChange,
    ExportConflict,
    ExportedPartition,
    ExportProgress,
    ExportRefused,
    ExportResult,
    ExportSource,
    PartitionIdentity,
    PlannedRange,
    ProgressCallback,
    WrittenFile,
    joined,
)
from spindle.pipeline.export.orphans import remove_files_of_run, remove_orphans
from spindle.pipeline.export.parquet_files import DeadLetterSettings, FileSettings
from spindle.pipeline.export.portions import cut_portions
from spindle.pipeline.export.settings import ExportSettings
from spindle.pipeline.export.spark_tasks import TaskProgress, write_files
from spindle.pipeline.export.table import CommitBatch, ExportTable, coverage_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_export(
    spark: "SparkSession",
    source: ExportSource,
    table: ExportTable,
    settings: ExportSettings,
    progress: ProgressCallback | None = None,
    dead_letters: ExportTable | None = None,
) -> ExportResult:
    """Add to the table what the source has and the table lacks.

    Args:
        dead_letters: The table for records that cannot be decoded. Without it they fail the export.

    Raises:
        ExportRefused: the run would leave a gap, mix topics or change the columns.
        ExportConflict: another run committed first.
        DataLoss: offsets that had to come next are no longer in the log.
    """
    letters = None if dead_letters is None else DeadLetters(dead_letters)
    plan = plan_export(source, table, settings)
    remaining, covered = plan.remaining, plan.covered
    if not remaining:
        return nothing_new(table)
    portions = cut_portions(remaining, source.log_bytes(remaining), covered, settings.portion)
    run = _Run(spark, source, table, settings, plan.topics, covered, portions, progress, letters)
    return run.finish()


class ExportPlan(NamedTuple):
    """The topics of a run, the offsets that the table holds of them, and those that it lacks."""

    topics: Mapping[str, Uuid]
    covered: dict[PartitionIdentity, Coverage]
    remaining: Sequence[PlannedRange]


def plan_export(source: ExportSource, table: ExportTable, settings: ExportSettings) -> ExportPlan:
    """Compare the source with the table, without Spark.

    With `begin="latest"` it commits where the table begins with topics that it does not hold.

    Raises:
        ExportRefused, ExportConflict, DataLoss: as `run_export`.
    """
    fault = table.columns_fault(settings.layout.schema)
    if fault is not None:
        raise ExportRefused(f"the table {table.path} cannot be made: {fault}")
    table.check_layout(settings.layout)
    table.check_merge_key(settings.merge_key)
    planned = source.ranges()
    topics = {piece.partition.topic: piece.topic_id for piece in planned}
    _check_ids(topics)
    if not settings.may_mix_topics:
        _check_topics(table, topics)
    covered = coverage_of(table, planned)
    if settings.begin == "latest":
        covered |= _begin_at_latest(table, settings, planned, covered)
    remaining = remaining_ranges(source, planned, covered)
    if settings.changes is not None and not settings.changes.order_by:
        _refuse_older(table, remaining, covered)
    return ExportPlan(topics, covered, remaining)


def nothing_new(table: ExportTable) -> ExportResult:
    """Return the result of a run whose table has all offsets already."""
    return ExportResult(table.path, table.version, 0, 0, 0, ())


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
    letters: DeadLetters | None
    run_id: str = field(default_factory=lambda: secrets.token_hex(6))
    portions_done: int = 0
    files: list[WrittenFile] = field(default_factory=list)
    exported: list[ExportedPartition] = field(default_factory=list)
    dead_letters: list[WrittenFile] = field(default_factory=list)
    rows: int = 0
    deleted: int = 0

    def finish(self) -> ExportResult:
        """Write and commit all portions, then remove what killed runs have left."""
        for portion in self.portions:
            self._export(portion)
        remove_orphans(self.table)
        if self.letters is not None:
            remove_orphans(self.letters.table)
        self._report(TaskProgress(0, 0, 0, 0, 0))
        return ExportResult(
            self.table.path,
            self.table.version,
            self.rows,
            len(self.files),
            sum(file.size_bytes for file in self.files),
            joined(self.exported),
            len(self.portions),
            sum(file.rows for file in self.dead_letters),
            self.deleted,
        )

    def _export(self, portion: Sequence[PlannedRange]) -> None:
        layout = self.settings.layout
        self.table.prepare(layout)
        directory = self.table.data_directory
        written = self._write(directory, portion)
        files = [file for file in written if not file.is_dead_letter]
        growth = self._growth(portion)
        merge = self._merged(portion, files, directory)
        try:
            if self.letters is not None:
                dead = [file for file in written if file.is_dead_letter]
                self.letters.commit(dead, portion, self.topics)
                self.dead_letters += dead
            self.table.commit(self._portion(merge.files, growth, merge.replaced))
        except ExportConflict:
            self._remove_uncommitted(directory)
            raise
        except Exception as error:
            # The outcome is not known, so the files stay; the next run removes them if it can.
            self._check_conflict(portion, error)
            raise
        self.covered.update({key: change.after for key, change in growth.items()})
        self.files += merge.files
        self.rows += merge.written
        self.deleted += merge.deleted
        if self.settings.changes is not None:
            self._remove_uncommitted(directory)
        self.exported += _exported(portion, files)
        self.portions_done += 1

    def _merged(
        self, portion: Sequence[PlannedRange], written: list[WrittenFile], directory: Path
    ) -> Merge:
        """Return the files to commit: those that were written, or the table's with the changes."""
        if self.settings.changes is None:
            return Merge(written, frozenset(), sum(file.rows for file in written), 0)
        try:
            return merge_changes(self.table, written, portion, self._file_settings(directory, None))
        except BaseException as error:
            self._remove_uncommitted(directory)
            if isinstance(error, Exception):
                self._check_conflict(portion, error)
            raise

    def _file_settings(self, directory: Path, letters: DeadLetterSettings | None) -> FileSettings:
        return file_settings(self.table, self.settings, directory, self.run_id, letters)

    def _write(self, directory: Path, portion: Sequence[PlannedRange]) -> list[WrittenFile]:
        """Write the files of a portion; if that fails nothing is left of them."""
        target = self._file_settings(directory, self._letter_settings(portion))
        try:
            written = write_files(self.spark, self.source, portion, target, self._report)
            self._check_visible(directory, written)
            return written
        except BaseException as error:
            self._remove_uncommitted(directory)
            if isinstance(error, Exception):
                self._check_conflict(portion, error)
            raise

    def _check_visible(self, directory: Path, written: Sequence[WrittenFile]) -> None:
        """Refuse to commit files that lie on the disks of other hosts."""
        for file in written:
            path = directory / file.name
            if self.letters is not None and file.is_dead_letter:
                path = self.letters.table.data_directory / file.name
            if not path.exists():
                raise ExportRefused(
                    f"{path} was written by an executor and is not visible to the driver: a table "
                    "has to lie in a file system that the hosts of all executors share"
                )

    def _check_conflict(self, portion: Sequence[PlannedRange], error: Exception) -> None:
        """Report a conflict if another run has committed these offsets and removed our files."""
        self.table.refresh()
        growth = self._growth(portion)
        try:
            coverage_after(self.table, self._portion((), growth))
        except ExportConflict as conflict:
            raise conflict from error

    def _portion(
        self,
        files: Sequence[WrittenFile],
        growth: Mapping[PartitionIdentity, CoverageChange],
        replaced: frozenset[str] = frozenset(),
    ) -> CommitBatch:
        settings = self.settings
        return CommitBatch(
            settings.layout,
            files,
            growth,
            self.topics,
            replaced,
            may_mix_topics=settings.may_mix_topics,
            merge_key=settings.merge_key,
        )

    def _remove_uncommitted(self, directory: Path) -> None:
        remove_files_of_run(directory, self.run_id, {file.name for file in self.files})
        if self.letters is not None:
            committed = {file.name for file in self.dead_letters}
            remove_files_of_run(self.letters.table.data_directory, self.run_id, committed)

    def _letter_settings(self, portion: Sequence[PlannedRange]) -> DeadLetterSettings | None:
        if self.letters is None:
            return None
        rule = self.letters.rule(portion)
        return DeadLetterSettings(str(self.letters.table.data_directory), rule)

    def _growth(self, portion: Sequence[PlannedRange]) -> dict[PartitionIdentity, CoverageChange]:
        growth: dict[PartitionIdentity, CoverageChange] = {}
        for piece in portion:
            key = key_of(piece)
            before = self.covered.get(key)
            so_far = growth[key].after if key in growth else before
            growth[key] = CoverageChange(before, extended(so_far, piece))
        return growth

    def _report(self, tasks: TaskProgress) -> None:
        if self.progress is None:
            return
        done = sum(partition.end_offset - partition.start_offset for partition in self.exported)
        total = sum(
            piece.end_offset - piece.start_offset for portion in self.portions for piece in portion
        )
        self.progress(
            ExportProgress(
                tasks.tasks_done,
                tasks.tasks_total,
                self.rows + tasks.rows,
                sum(file.size_bytes for file in self.files) + tasks.size_bytes,
                done + tasks.offsets,
                total,
                self.portions_done,
                len(self.portions),
            )
        )


def file_settings(
    table: ExportTable,
    settings: ExportSettings,
    directory: Path,
    run_id: str,
    letters: DeadLetterSettings | None = None,
) -> FileSettings:
    """Return how the files of a run are written into a directory."""
    return FileSettings(
        str(directory),
        run_id,
        settings.compression,
        settings.row_format,
        settings.partitioning,
        table.has_partition_columns_in_files,
        letters,
        table.limits_times,
        settings.layout.without_statistics if settings.changes is None else frozenset(),
        settings.changes,
    )


def _check_ids(topics: Mapping[str, Uuid]) -> None:
    without = [topic for topic, topic_id in topics.items() if topic_id == ZERO_UUID]
    if without:
        raise ExportRefused(
            f"topic {without[0]!r} has no topic id (it was made by a version of Kafka before 2.8), "
            "by which a table knows what it holds. Copy its records to a new topic"
        )


def _check_topics(table: ExportTable, topics: Mapping[str, Uuid]) -> None:
    for topic, topic_id in topics.items():
        if table.is_other_topic(topic, topic_id):
            raise ExportRefused(
                f"the table {table.path} holds rows of an earlier topic {topic!r}; it was deleted "
                f"and created again with the id {uuid_text(topic_id)}. Use another table, or "
                "recreated_topic='append' to put the new rows behind the old ones"
            )


def _refuse_older(
    table: ExportTable,
    remaining: Sequence[PlannedRange],
    covered: Mapping[PartitionIdentity, Coverage],
) -> None:
    """Refuse older changes, which would replace newer rows."""
    for piece in remaining:
        held = covered.get(key_of(piece))
        if held is not None and piece.end_offset <= held.start:
            raise ExportRefused(
                f"{piece.partition}: offsets [{piece.start_offset}, {piece.end_offset}) are older "
                f"than the changes that the table {table.path} has, and would replace newer rows: "
                "leave out the starting offset, or use order_by"
            )


def _begin_at_latest(
    table: ExportTable,
    settings: ExportSettings,
    planned: Sequence[PlannedRange],
    covered: Mapping[PartitionIdentity, Coverage],
) -> dict[PartitionIdentity, Coverage]:
    """Commit that the table begins at the ends of those topics of which it holds no partition.

    A partition that a topic gets later is exported from its first record.
    """
    held = {key.topic_id for key in covered}
    ends = {
        key_of(piece): Coverage(piece.end_offset, piece.end_offset)
        for piece in planned
        if piece.topic_id not in held
    }
    if ends:
        table.prepare(settings.layout)
        topics = {piece.partition.topic: piece.topic_id for piece in planned}
        growth = {key: CoverageChange(None, end) for key, end in ends.items()}
        may_mix_topics = settings.may_mix_topics
        table.commit(
            CommitBatch(
                settings.layout,
                (),
                growth,
                topics,
                may_mix_topics=may_mix_topics,
                merge_key=settings.merge_key,
            )
        )
    return ends


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
