"""`export_delta`: append topics to a Delta table, every offset once, with one commit per run.

The next run continues where the table ends. Of two runs at the same time, one is refused. A run
that fails or is interrupted leaves the table as it was: files without a commit are not part of the
table, and the driver removes those that it finds.
"""

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from spindle.common.uuids import Uuid, uuid_text
from spindle.pipeline.export.continuation import key_of, remaining_ranges
from spindle.pipeline.export.model import (
    Coverage,
    ExportedPartition,
    ExportProgress,
    ExportRefused,
    ExportResult,
    ExportSource,
    PartitionIdentity,
    PlannedRange,
    ProgressCallback,
    WrittenFile,
)
from spindle.pipeline.export.parquet_files import FileSettings, write_range
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.row_format import Encoding, row_format
from spindle.pipeline.export.sources import export_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spindle.pipeline.export.delta_table import ExportTable

COMPRESSIONS: Final = ("snappy", "zstd", "lz4", "gzip", "none")
_POLL_SECONDS: Final = 0.2


def export_delta(
    spark: "SparkSession",
    path: str | Path,
    options: Mapping[str, str],
    *,
    source: str = "spindle-segments",
    key: Encoding = "binary",
    value: Encoding = "binary",
    compression: str = "snappy",
    recreated_topic: Literal["refuse", "append"] = "refuse",
    progress: ProgressCallback | None = None,
) -> ExportResult:
    """Append the records of the selected topics that the Delta table at `path` lacks.

        result = export_delta(
            spark,
            "/data/flights",
            {
                "kafka.bootstrap.servers": "localhost:9092",
                "subscribe": "flights",
                "columns": "key,value,partition,offset,timestamp",
            },
            source="spindle",
            value="string",
        )
        print(result.rows, "rows in version", result.version)

    Args:
        spark: The session whose tasks decode and write; the tasks must reach `path` and the source.
        path: A directory of the local (or a shared) file system. It is made if it is missing.
        options: Options of the data source. `columns` chooses the columns of the table and their
            order. A starting offset is meant for the first run only; later runs continue where the
            table ends.
        source: `spindle-segments` or `spindle`.
        key: How the table stores keys: `binary`, or `string` for keys that are UTF-8.
        value: How the table stores values: `binary`, or `string` for values that are UTF-8 (JSON).
        compression: The codec of the Parquet files, one of COMPRESSIONS.
        recreated_topic: the reaction to rows in the table of a topic that was since deleted and
            created again: `refuse`, or `append` the rows of the new topic to the old ones.
        progress: Called about five times a second on the calling thread, and once at the end.

    Raises:
        ExportRefused: the run would leave a gap, repeat rows, mix topics or change the columns.
        ExportConflict: another run committed first.
        DataLoss: offsets that had to come next are no longer in the log.
        ValueError: wrong options, a path that is no local path, or an unknown encoding. A key or
            value that is not UTF-8 but has to be text fails the Spark job with this error in it.
    """
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression {compression!r} is none of {', '.join(COMPRESSIONS)}")
    directory = local_directory(path)
    from spindle.pipeline.export.delta_table import ExportTable

    rows_from = export_source(source, options)
    rows = row_format(rows_from.columns, key, value)
    table = ExportTable(str(directory))
    table.check_schema(rows.schema())
    planned = rows_from.ranges()
    if recreated_topic == "refuse":
        _check_topics(table, _topic_ids(planned))
    settings = FileSettings(str(directory), secrets.token_hex(6), compression, rows)
    return _append(spark, rows_from, table, planned, settings, progress)


def _append(
    spark: "SparkSession",
    source: ExportSource,
    table: "ExportTable",
    planned: Sequence[PlannedRange],
    settings: FileSettings,
    progress: ProgressCallback | None,
) -> ExportResult:
    """Write the planned ranges that the table lacks, and commit them; on a failure remove them."""
    covered = _coverage(table, planned)
    remaining = remaining_ranges(source, planned, covered)
    if not remaining:
        return ExportResult(settings.directory, table.version, 0, 0, 0, ())
    Path(settings.directory).mkdir(parents=True, exist_ok=True)
    try:
        files = _write_files(spark, source, source.tasks(remaining), settings, progress)
        exported = _exported(remaining, files)
        extended = {key_of(each): _extended(covered.get(key_of(each)), each) for each in exported}
        version = table.commit(settings.row_format.schema(), files, extended, _topic_ids(planned))
    except BaseException:
        _remove_files(settings)
        raise
    return ExportResult(
        settings.directory,
        version,
        sum(file.rows for file in files),
        len(files),
        sum(file.size_bytes for file in files),
        tuple(exported),
    )


def _topic_ids(planned: Sequence[PlannedRange]) -> dict[str, Uuid]:
    return {piece.partition.topic: piece.topic_id for piece in planned}


def _check_topics(table: "ExportTable", topics: Mapping[str, Uuid]) -> None:
    for topic, topic_id in topics.items():
        if table.is_other_topic(topic, topic_id):
            raise ExportRefused(
                f"the table {table.path} holds rows of an earlier topic {topic!r}; it was deleted "
                f"and created again with the id {uuid_text(topic_id)}. Use another table, or "
                "recreated_topic='append' to put the new rows behind the old ones"
            )


def _coverage(
    table: "ExportTable", planned: Sequence[PlannedRange]
) -> dict[PartitionIdentity, Coverage]:
    found: dict[PartitionIdentity, Coverage] = {}
    for key in dict.fromkeys(key_of(piece) for piece in planned):
        held = table.coverage(key)
        if held is not None:
            found[key] = held
    return found


def _write_files(
    spark: "SparkSession",
    source: ExportSource,
    tasks: Sequence[tuple[PlannedRange, ...]],
    settings: FileSettings,
    progress: ProgressCallback | None,
) -> list[WrittenFile]:
    """Run the tasks and return the files that they wrote."""
    context = spark.sparkContext
    rows_done, tasks_done = context.accumulator(0), context.accumulator(0)

    def write(task: tuple[PlannedRange, ...]) -> list[WrittenFile]:
        from pyspark import TaskContext

        running = TaskContext.get()
        attempt = 0 if running is None else running.taskAttemptId()
        written = [write_range(source, piece, settings, attempt) for piece in task]
        files = [file for file in written if file is not None]
        rows_done.add(sum(file.rows for file in files))
        tasks_done.add(1)
        return files

    def run() -> list[list[WrittenFile]]:
        context.setJobGroup(settings.run_id, "spindle export", interruptOnCancel=True)
        return context.parallelize(tasks, len(tasks)).map(write).collect()

    def report(done: int) -> None:
        if progress is not None:
            progress(ExportProgress(done, len(tasks), rows_done.value))

    with ThreadPoolExecutor(1, "spindle-export") as pool:
        job = pool.submit(run)
        try:
            while not _is_done(job):
                report(tasks_done.value)
        except BaseException:
            context.cancelJobGroup(settings.run_id)
            raise
        written = job.result()
    report(len(tasks))
    return [file for files in written for file in files]


def _is_done(job: "Future[Any]") -> bool:
    try:
        job.exception(timeout=_POLL_SECONDS)
    except NotDone:
        return False
    return True


def _exported(
    remaining: Sequence[PlannedRange], files: Sequence[WrittenFile]
) -> list[ExportedPartition]:
    rows: dict[PartitionIdentity, int] = {}
    for file in files:
        rows[key_of(file)] = rows.get(key_of(file), 0) + file.rows
    whole: dict[PartitionIdentity, ExportedPartition] = {}
    for piece in remaining:
        key = key_of(piece)
        start = whole[key].start_offset if key in whole else piece.start_offset
        whole[key] = ExportedPartition(
            piece.partition, piece.topic_id, start, piece.end_offset, rows.get(key, 0)
        )
    return list(whole.values())


def _extended(held: Coverage | None, added: ExportedPartition) -> Coverage:
    start = added.start_offset if held is None else held.start
    return Coverage(start, added.end_offset)


def _remove_files(settings: FileSettings) -> None:
    """Remove the files of a run that did not commit.

    A cancelled task may still write one; it stays on the disk and is not part of the table.
    """
    for path in Path(settings.directory).glob(f"*.{settings.run_id}-*"):
        path.unlink(missing_ok=True)
