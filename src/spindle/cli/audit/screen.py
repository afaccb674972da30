"""The progress and the result of an audit, for people and for programs."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from spindle.cli.table import table_lines
from spindle.common.counted import counted
from spindle.common.sizes import size_text

if TYPE_CHECKING:
    from spindle.audit.report import AuditReport
    from spindle.audit.workers import AuditProgress

_REFRESH_S = 0.1


@contextmanager
def progress_bar(is_shown: bool) -> Iterator[Callable[["AuditProgress"], None]]:
    """Yield the function that shows the progress on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    is_off = not (is_shown and console.is_terminal)
    # No thread refreshes the bar: the audit forks its worker processes.
    with Progress(
        *columns, console=console, disable=is_off, transient=True, auto_refresh=False
    ) as bar:
        task = bar.add_task("listing", total=None, rate="")
        started = shown = time.monotonic()

        def show(progress: "AuditProgress") -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < _REFRESH_S:
                return
            shown = now
            rate = size_text(int(progress.bytes_done / max(now - started, 0.001)))
            bar.update(
                task,
                description=f"{progress.replicas_done} of {progress.replicas_total} replicas",
                total=max(progress.bytes_total, 1),
                completed=progress.bytes_done,
                rate=f"{size_text(progress.bytes_done)}, {rate}/s",
            )
            bar.refresh()

        yield show


def report_lines(report: "AuditReport", seconds: float) -> list[str]:
    """Return a table of the log directories, a sentence for each finding, and the sum."""
    rows = []
    for directory in report.directories:
        found = [each for each in report.findings if _is_below(each.path, directory.path)]
        counts = Counter(each.kind.severity.value for each in found)
        mine = [each for each in report.replicas if each.place.path.parent == directory.path]
        rows.append(
            (
                str(directory.path),
                directory.state.value,
                str(len(mine)),
                size_text(sum(each.size_bytes for each in mine)),
                str(counts["error"]),
                str(counts["warning"]),
            )
        )
    head = ("DIRECTORY", "STATE", "REPLICAS", "SIZE", "ERRORS", "WARNINGS")
    lines = [*table_lines(head, rows), ""]
    for each in report.findings:
        lines += [f"{each.kind.severity.value} {each.kind.text}", f"  {each.sentence}", ""]
    return [*lines, _sum(report, seconds)]


def _sum(report: "AuditReport", seconds: float) -> str:
    size_bytes = report.size_bytes
    replicas = counted(len(report.replicas), "replica")
    batches = counted(report.batch_count, "batch", "batches")
    text = (
        f"{replicas}, {batches}, {size_text(size_bytes)} in {seconds:.1f} s "
        f"({size_text(int(size_bytes / max(seconds, 0.001)))}/s): "
    )
    count = len(report.findings) + report.left_out
    text += "all in order" if not count else counted(count, "finding")
    if report.left_out:
        text += f", of which {report.left_out} are not listed"
    if report.resumed:
        text += f"; the results of {counted(report.resumed, 'replica')} are of the audit before"
    if report.moved_away:
        text += f"; {counted(report.moved_away, 'replica')} moved or deleted meanwhile"
    return text


def _is_below(path: str, directory: Path) -> bool:
    return Path(path).is_relative_to(directory)


def report_document(report: "AuditReport", seconds: float) -> dict[str, Any]:
    """Return the result for JSON."""
    return {
        "directories": [
            {
                "path": str(each.path),
                "state": each.state.value,
                "nodeId": None if each.properties is None else each.properties.node_id,
                "replicas": len(each.replicas),
            }
            for each in report.directories
        ],
        "replicas": len(report.replicas),
        "movedAway": report.moved_away,
        "resumed": report.resumed,
        "batches": report.batch_count,
        "bytes": report.size_bytes,
        "seconds": round(seconds, 3),
        "findingsLeftOut": report.left_out,
        "findings": [finding.document() for finding in report.findings],
    }
