"""Write the files of a portion with the tasks of a Spark job, and watch the job."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from spindle.pipeline.export.model import ExportFailed, ExportSource, PlannedRange, WrittenFile
from spindle.pipeline.export.parquet_files import FileSettings, write_range
from spindle.pipeline.spark.watched_job import run_watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TaskProgress(NamedTuple):
    """The tasks of the current portion, and the rows, bytes and offsets that they finished."""

    tasks_done: int
    tasks_total: int
    rows: int
    size_bytes: int
    offsets: int


def write_files(
    spark: "SparkSession",
    source: ExportSource,
    portion: Sequence[PlannedRange],
    settings: FileSettings,
    report: Callable[[TaskProgress], None],
) -> list[WrittenFile]:
    """Write the ranges of a portion and return the files.

    Args:
        report: Called about five times a second on the calling thread, and once at the end.

    Raises:
        ExportFailed: a task failed; the message is that of its error.
    """
    context = spark.sparkContext
    tasks = source.tasks(portion)
    tasks_done, rows, size_bytes, offsets = (context.accumulator(0) for _ in range(4))

    def write(task: tuple[PlannedRange, ...]) -> list[WrittenFile]:
        from pyspark import TaskContext

        running = TaskContext.get()
        attempt = 0 if running is None else running.taskAttemptId()
        files = [file for piece in task for file in write_range(source, piece, settings, attempt)]
        tasks_done.add(1)
        rows.add(sum(file.rows for file in files))
        size_bytes.add(sum(file.size_bytes for file in files))
        offsets.add(sum(piece.end_offset - piece.start_offset for piece in task))
        return files

    def progress() -> TaskProgress:
        counts = (rows.value, size_bytes.value, offsets.value)
        return TaskProgress(tasks_done.value, len(tasks), *counts)

    written = run_watched(
        context,
        write,
        tasks,
        group_id=settings.run_id,
        title="spindle export",
        failure=ExportFailed,
        on_poll=lambda: report(progress()),
    )
    report(progress()._replace(tasks_done=len(tasks)))
    return [file for files in written for file in files]
