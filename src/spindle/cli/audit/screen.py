"""The progress and the result of an audit, for people and for programs."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spindle.cli.table import table_lines
from spindle.cli.terminal import BAD, QUIET, TITLE, UNUSUAL, Line, blocks_text, shortened, wrapped
from spindle.common.text import count_noun, size_text

# `spindle.audit` needs an extra; the help of the command does not.
if TYPE_CHECKING:
    from spindle.audit.findings import Severity
    from spindle.audit.report import AuditReport
    from spindle.audit.workers import AuditProgress

Counts: TypeAlias = "Counter[tuple[str | None, Severity]]"
"""Findings by log directory and severity."""
_REFRESH_S = 0.1
_ALL_COLUMNS: Final = (0, 1, 2, 3, 4, 5)
_LAYOUTS: Final = (
    (20, 1000, _ALL_COLUMNS),
    (10, 1000, _ALL_COLUMNS),
    (0, 1000, _ALL_COLUMNS),
    (20, 24, _ALL_COLUMNS),
    (10, 16, _ALL_COLUMNS),
    (0, 16, _ALL_COLUMNS),
    (0, 12, (0, 1, 4, 5)),
)
"""Blocks of a bar, characters of a path, columns: the first layout that fits the terminal is
used."""


@contextmanager
def progress_bar(is_shown: bool) -> Iterator[Callable[["AuditProgress"], None]]:
    """Yield the function that shows the progress on standard error, if that is a terminal."""
    if not (is_shown and sys.stderr.isatty()):
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

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
    # No thread refreshes the bar: the audit forks its worker processes.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
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


def report_lines(report: "AuditReport", seconds: float, width: int | None = None) -> list[Line]:
    """Return a table of the log directories, a sentence for each finding, and the sum.

    Args:
        width: columns of the terminal: the table has shorter bars and paths if it is too wide.
            None sets no limit.
    """
    from spindle.audit.findings import Severity

    lines = [*_fitting_table(report, width), Line("")] if report.directories else []
    counts = Counter((finding.kind, finding.path) for finding in report.findings)
    for finding in report.findings:
        more = counts.pop((finding.kind, finding.path), 0) - 1
        if more < 0:
            continue  # one wrong file may have hundreds of wrong places
        style = BAD if finding.kind.severity is Severity.ERROR else UNUSUAL
        title = Line(f"{finding.kind.severity.value} {finding.kind.text}", style)
        text = finding.sentence
        if more:
            text += f" The same in {count_noun(more, 'more place')} of the file; --json lists them."
        lines += [title, *map(Line, wrapped(f"  {text}", width, 2)), Line("")]
    return [*lines, Line(_sum(report, seconds), TITLE)]


def _fitting_table(report: "AuditReport", width: int | None) -> list[Line]:
    documents = _directory_documents(report)
    longest = max((len(document["path"]) for document in documents), default=0)
    for blocks, name_width, columns in _LAYOUTS:
        lines = _directory_table(documents, blocks, min(name_width, longest), columns)
        if width is None or max(map(len, lines)) <= width:
            break
    finding_counts = [document["errors"] + document["warnings"] for document in documents]
    styles = ["" if count else QUIET for count in finding_counts]
    return [Line(lines[0], QUIET), *map(Line, lines[1:], styles)]


def _directory_table(
    documents: Sequence[dict[str, Any]], blocks: int, name_width: int, columns: Sequence[int]
) -> list[str]:
    most = max((document["errors"] + document["warnings"] for document in documents), default=0)
    rows = []
    for document in documents:
        row = (
            shortened(document["path"], name_width),
            document["state"],
            str(document["replicas"]),
            size_text(document["bytes"]),
            str(document["errors"]),
            str(document["warnings"]),
        )
        share = (document["errors"] + document["warnings"]) / most if most else 0.0
        shown = [row[column] for column in columns]
        rows.append([*shown, blocks_text(share, blocks)] if blocks and most else shown)
    names = ("DIRECTORY", "STATE", "REPLICAS", "SIZE", "ERRORS", "WARNINGS")
    head = [names[column] for column in columns]
    return table_lines([*head, "FINDINGS"] if blocks and most else head, rows)


def _sum(report: "AuditReport", seconds: float) -> str:
    size_bytes = report.size_bytes
    replicas = count_noun(len(report.replicas), "replica")
    batches = count_noun(report.batch_count, "batch", "batches")
    text = (
        f"{replicas}, {batches}, {size_text(size_bytes)} in {seconds:.1f} s "
        f"({size_text(int(size_bytes / max(seconds, 0.001)))}/s): "
    )
    if not report.directories and not report.replicas:
        text = f"metadata and brokers' directories compared in {seconds:.1f} s, no batches read: "
    count = len(report.findings) + report.left_out
    text += "all in order" if not count else count_noun(count, "finding")
    if report.left_out:
        text += f", of which {report.left_out} are not listed"
    if report.resumed:
        text += f"; the results of {count_noun(report.resumed, 'replica')} are of the audit before"
    if report.moved_away:
        text += f"; {count_noun(report.moved_away, 'replica')} moved or deleted meanwhile"
    return text


def report_document(
    report: "AuditReport",
    seconds: float,
    time_ms: int,
    brokers: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the result for programs and pages.

    Args:
        seconds: that the audit took.
        time_ms: when it ended.
        brokers: the documents of the queried brokers, with their directories.
    """
    roots = _roots(report)
    roots |= {place for broker in brokers for place in _places(broker)}
    counts = _counts(report, roots)
    return {
        "timeMs": time_ms,
        "directories": _directory_documents(report),
        "brokers": [_counted_broker(broker, counts) for broker in brokers],
        "replicas": len(report.replicas),
        "movedAway": report.moved_away,
        "resumed": report.resumed,
        "batches": report.batch_count,
        "bytes": report.size_bytes,
        "seconds": round(seconds, 3),
        "findingsLeftOut": report.left_out,
        "findings": [
            {**finding.document(), "directory": _root_of(finding.path, roots)}
            for finding in report.findings
        ],
    }


def _directory_documents(report: "AuditReport") -> list[dict[str, Any]]:
    counts = _counts(report, _roots(report))
    replicas: Counter[Path] = Counter()
    sizes: Counter[Path] = Counter()
    for replica in report.replicas:
        replicas[replica.place.path.parent] += 1
        sizes[replica.place.path.parent] += replica.size_bytes
    return [
        {
            "path": str(directory.path),
            "state": directory.state.value,
            "nodeId": None if directory.properties is None else directory.properties.node_id,
            "replicas": replicas[directory.path],
            "bytes": sizes[directory.path],
            **_severities(counts, str(directory.path)),
        }
        for directory in report.directories
    ]


def _places(broker: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a broker and its directories in findings."""
    yield f"broker {broker['id']}"
    for directory in broker["directories"]:
        yield f"broker {broker['id']}:{directory['path']}"


def _counted_broker(broker: Mapping[str, Any], counts: Counts) -> dict[str, Any]:
    own, *places = _places(broker)
    directories = [
        {**directory, **_severities(counts, place)}
        for directory, place in zip(broker["directories"], places, strict=True)
    ]
    return {**broker, **_severities(counts, own), "directories": directories}


def _counts(report: "AuditReport", roots: frozenset[str]) -> Counts:
    return Counter(
        (_root_of(finding.path, roots), finding.kind.severity) for finding in report.findings
    )


def _severities(counts: Counts, root: str) -> dict[str, int]:
    from spindle.audit.findings import Severity

    return {"errors": counts[root, Severity.ERROR], "warnings": counts[root, Severity.WARNING]}


def _roots(report: "AuditReport") -> frozenset[str]:
    return frozenset(str(directory.path) for directory in report.directories)


def _root_of(path: str, roots: frozenset[str]) -> str | None:
    """Return the innermost log directory that is a path or holds it, None if there is none."""
    while path and path not in roots:
        path = path.rpartition("/")[0]
    return path or None
