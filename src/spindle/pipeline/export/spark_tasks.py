"""Write the files of a portion with the tasks of a Spark job, and watch the job."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spindle.pipeline.export.model import ExportFailed, ExportSource, PlannedRange, WrittenFile
from spindle.pipeline.export.parquet_files import FileSettings, write_range
from spindle.pipeline.plain_errors import plainly, reported_cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS: Final = 0.2


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

    def run() -> list[list[WrittenFile]]:
        context.setJobGroup(settings.run_id, "spindle export", interruptOnCancel=True)
        return context.parallelize(tasks, len(tasks)).map(plainly(write)).collect()

    def progress() -> TaskProgress:
        counts = (rows.value, size_bytes.value, offsets.value)
        return TaskProgress(tasks_done.value, len(tasks), *counts)

    with ThreadPoolExecutor(1, "spindle-export") as pool:
        job = pool.submit(run)
        try:
            while not _is_done(job):
                report(progress())
        except BaseException:
            context.cancelJobGroup(settings.run_id)
            raise
        written = _result(job)
    report(progress()._replace(tasks_done=len(tasks)))
    return [file for files in written for file in files]


def _result(job: "Future[Any]") -> Any:
    try:
        return job.result()
    except Exception as error:
        cause = reported_cause(str(error))
        if cause is None or not cause.is_plain:
            raise
        raise ExportFailed(cause.text) from None


def _is_done(job: "Future[Any]") -> bool:
    try:
        job.exception(timeout=_POLL_SECONDS)
    except NotDone:
        return False
    return True
