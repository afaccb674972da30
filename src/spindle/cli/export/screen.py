"""The progress bar and the result of an export, for people."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from spindle.cli.table import table_lines
from spindle.common.text import count_noun, size_text
from spindle.common.uuids import uuid_text

if TYPE_CHECKING:
    from spindle.pipeline.export.model import ExportProgress, ExportResult


@contextmanager
def progress_bar(is_shown: bool) -> Iterator["ProgressLine"]:
    """Yield a line that shows the progress of runs on standard error.

    Args:
        is_shown: False hides it on a terminal, too.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rates]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    is_off = not (is_shown and console.is_terminal)
    with Progress(*columns, console=console, disable=is_off, transient=True) as bar:
        yield ProgressLine(bar)


class ProgressLine:
    """The line about the current run; call it with the progress."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("planning", total=None, rates="")
        self._started: float | None = time.monotonic()

    def __call__(self, progress: "ExportProgress") -> None:
        now = time.monotonic()
        if self._started is None:
            self._started = now
            self._begin("planning")
        seconds = max(now - self._started, 0.001)
        portion = min(progress.portions_done + 1, progress.portions_total)
        self._bar.update(
            self._task,
            description=f"portion {portion} of {progress.portions_total}",
            total=progress.offsets_total,
            completed=progress.offsets_done,
            rates=(
                f"{progress.rows:,} rows, {progress.rows / seconds:,.0f}/s, "
                f"{size_text(int(progress.size_bytes / seconds))}/s"
            ),
        )

    def wait_for_records(self) -> None:
        """Show that the run is done and the next one has not begun."""
        self._started = None
        self._begin("waiting for records")

    def _begin(self, description: str) -> None:
        # The total of a task cannot be reset.
        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(description, total=None, rates="")


def result_lines(result: "ExportResult", seconds: float) -> list[str]:
    """Return the lines about a run: a table of partitions, and their sum."""
    if result.is_empty:
        return [f"{result.path}: there is nothing new"]
    rows = [
        (
            str(partition.partition),
            str(partition.start_offset),
            str(partition.end_offset),
            str(partition.rows),
        )
        for partition in result.partitions
    ]
    letters = []
    if result.dead_letters:
        letters = [
            f"{count_noun(result.dead_letters, 'record')} could not be decoded: dead letters"
        ]
    lines = table_lines(("PARTITION", "FROM", "UNTIL", "ROWS"), rows)
    deleted = f" and {result.deleted:,} deletes" if result.deleted else ""
    return [
        *lines,
        "",
        f"{result.path}: {result.rows:,} rows{deleted} in {count_noun(result.files, 'file')} and "
        f"{count_noun(result.portions, 'commit')}, {size_text(result.size_bytes)}, {seconds:.1f} s "
        f"({result.rows / max(seconds, 0.001):,.0f} rows/s), version {result.version}",
        *letters,
    ]


def result_document(result: "ExportResult", seconds: float) -> dict[str, Any]:
    """Return a run as JSON."""
    return {
        "table": result.path,
        "version": result.version,
        "rows": result.rows,
        "files": result.files,
        "size_bytes": result.size_bytes,
        "commits": result.portions,
        "dead_letters": result.dead_letters,
        "deleted": result.deleted,
        "seconds": round(seconds, 3),
        "partitions": [
            {
                "topic": partition.partition.topic,
                "topic_id": uuid_text(partition.topic_id),
                "partition": partition.partition.partition,
                "start_offset": partition.start_offset,
                "end_offset": partition.end_offset,
                "rows": partition.rows,
            }
            for partition in result.partitions
        ],
    }
