"""Overview: every broker and directory as one picture, and first what needs attention."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, NamedTuple

from spindle.cli.disks.state_text import cordon_text, hang_text, hangs, offline_text, silence_text
from spindle.cli.status.cluster_status import FULL
from spindle.client.admin.cluster import ClusterNode
from spindle.client.disks import DiskView
from spindle.common.text import count_noun, size_text, span_text
from spindle.console.page import Page, PageRequest
from spindle.console.rendering import rate_text
from spindle.console.snapshot import ConsoleSnapshot
from spindle.operations.directories import DirectoryKey
from spindle.planner.forecast.time_to_full import Filling, TimeToFull

_WIDTH: Final = 1200
_GAP: Final = 28
_HEAD: Final = 44
_ROW: Final = 58
_PAD: Final = 14
_MAX_COLUMNS: Final = 4
_MAX_PROBLEMS: Final = 6
_MAX_ARROWS: Final = 60


@dataclass(frozen=True, slots=True)
class DirectoryBox:
    """A directory in the picture; places and sizes in units of the drawing.

    Attributes:
        fill: 0 to 1; None if it is unknown.
        kind: fine, warning or error.
        state: one line; empty for a directory without remarks.
    """

    broker_id: int
    disk: DiskView
    x: float
    y: float
    width: float
    fill: float | None
    kind: str
    state: str
    forecast: str
    traffic: str


@dataclass(frozen=True, slots=True)
class BrokerBox:
    """A broker in the picture. `remark` says why its directories are unknown."""

    node: ClusterNode
    x: float
    y: float
    width: float
    height: float
    kind: str
    remark: str
    leaders: int
    directories: tuple[DirectoryBox, ...]


class Arrow(NamedTuple):
    """Moves between two places: an SVG path, and a label in the middle of it."""

    path: str
    x: float
    y: float
    label: str
    title: str


class MoveRow(NamedTuple):
    """The moves between two places, as a row of the table."""

    source: str
    target: str
    replicas: int
    left: str
    time_left: str


def forecast_text(forecast: TimeToFull | None) -> str:
    """Return when a directory is full, in a few words."""
    if forecast is None or forecast.filling is Filling.UNKNOWN:
        return ""
    if forecast.filling is Filling.FILLING and forecast.expected_s is not None:
        return f"full in {span_text(forecast.expected_s)}"
    return "not filling" if forecast.filling is Filling.NOT_FILLING else "full in the far future"


def fill_of(disk: DiskView) -> float | None:
    """Return the used share of a directory's file system, 0 to 1; None if it is unknown."""
    if disk.total_bytes <= 0 or disk.used_bytes < 0:
        return None
    return disk.used_bytes / disk.total_bytes


def disk_state(disk: DiskView, now_ms: int) -> tuple[str, str]:
    """Return the kind of a directory's state (fine, warning or error), and its text."""
    if disk.failure is not None:
        return "error", offline_text(disk, now_ms)
    if hangs(disk):
        return "error", hang_text(disk)
    fill = fill_of(disk)
    if disk.cordons:
        return "warning", ", ".join(cordon_text(cordon, now_ms) for cordon in disk.cordons)
    if fill is not None and fill > FULL:
        return "warning", "nearly full"
    return "fine", ""


def _boxes(snapshot: ConsoleSnapshot) -> tuple[list[BrokerBox], float]:
    """Return the brokers of the picture and its height."""
    reports = snapshot.status.reports
    columns = max(1, min(_MAX_COLUMNS, len(reports)))
    width = (_WIDTH - _GAP * (columns + 1)) / columns
    leaders: dict[int, int] = {}
    for _, partition in snapshot.status.partitions():
        leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
    boxes: list[BrokerBox] = []
    top = float(_GAP) / 2
    for line in range(ceil(len(reports) / columns)):
        row = reports[line * columns : (line + 1) * columns]
        rows = max(max(1, len(r.disks.disks) if r.disks is not None else 1) for r in row)
        height = _HEAD + rows * _ROW + _PAD
        for column, report in enumerate(row):
            x = _GAP + column * (width + _GAP)
            disks = report.disks.disks if report.disks is not None else ()
            directories = tuple(
                _directory_box(
                    snapshot, report.node.node_id, disk, x, top + _HEAD + n * _ROW, width
                )
                for n, disk in enumerate(disks)
            )
            remark = silence_text(report) if report.disks is None else ""
            kind = "error" if remark or report.node.is_fenced else "fine"
            leads = leaders.get(report.node.node_id, 0)
            boxes.append(
                BrokerBox(report.node, x, top, width, height, kind, remark, leads, directories)
            )
        top += height + _GAP
    return boxes, top


def _directory_box(
    snapshot: ConsoleSnapshot, broker: int, disk: DiskView, x: float, y: float, width: float
) -> DirectoryBox:
    kind, state = disk_state(disk, snapshot.time_ms)
    rate = snapshot.rates.get((broker, disk.path))
    traffic = ""
    if rate is not None:
        traffic = f"{rate_text(rate.every.bytes_per_second)}"
        if rate.every.p99_ms is not None:
            traffic += f", p99 {rate.every.p99_ms:.1f} ms"
    forecast = forecast_text(snapshot.forecasts.get((broker, disk.path)))
    return DirectoryBox(
        broker,
        disk,
        x + _PAD,
        y,
        width - 2 * _PAD,
        fill_of(disk),
        kind,
        state,
        forecast,
        traffic,
    )


class _Moves(NamedTuple):
    replicas: int
    left_bytes: int
    seconds: float | None


def _moves(snapshot: ConsoleSnapshot) -> dict[tuple[DirectoryKey, DirectoryKey], _Moves]:
    """Return the moves between two directories of one broker, by source and target."""
    totals: dict[tuple[DirectoryKey, DirectoryKey], _Moves] = {}
    for report in snapshot.status.reports:
        broker = report.node.node_id
        for move in report.disks.moves if report.disks is not None else ():
            key = ((broker, move.source), (broker, move.target))
            rate = snapshot.move_rates.get((broker, *move.partition, move.target))
            seconds = rate.seconds_left if rate is not None else None
            before = totals.get(key, _Moves(0, 0, 0.0))
            longest = None
            if seconds is not None and before.seconds is not None:
                longest = max(seconds, before.seconds)
            left_bytes = before.left_bytes + move.remaining_bytes
            totals[key] = _Moves(before.replicas + 1, left_bytes, longest)
    return totals


def _arrows(snapshot: ConsoleSnapshot, boxes: list[BrokerBox]) -> tuple[list[Arrow], list[MoveRow]]:
    places = {(box.broker_id, box.disk.path): box for b in boxes for box in b.directories}
    arrows: list[Arrow] = []
    rows: list[MoveRow] = []
    for (source, target), moves in _moves(snapshot).items():
        left = f"{span_text(moves.seconds)} left" if moves.seconds is not None else "time unknown"
        row = MoveRow(
            f"{source[0]}:{source[1]}",
            f"{target[0]}:{target[1]}",
            moves.replicas,
            size_text(moves.left_bytes),
            left,
        )
        rows.append(row)
        begin, end = places.get(source), places.get(target)
        if begin is not None and end is not None:
            x = begin.x + begin.width
            y0, y1 = begin.y + 24, end.y + 24
            path = f"M {x} {y0:.0f} C {x + 40} {y0:.0f} {x + 40} {y1:.0f} {x + 3} {y1:.0f}"
            arrows.append(_arrow(path, x - 12, (y0 + y1) / 2, row))
    brokers = {box.node.node_id: box for box in boxes}
    pairs: dict[tuple[int, int], int] = {}
    for reassigned in snapshot.status.reassigned.values():
        sources = reassigned.removing or reassigned.replicas[:1]
        for source_id, target_id in zip(sources, reassigned.adding, strict=False):
            pairs[source_id, target_id] = pairs.get((source_id, target_id), 0) + 1
    for (source_id, target_id), count in pairs.items():
        row = MoveRow(f"broker {source_id}", f"broker {target_id}", count, "", "")
        rows.append(row)
        first, last = brokers.get(source_id), brokers.get(target_id)
        if first is not None and last is not None and first is not last:
            arrows.append(_between(first, last, row))
    return arrows[:_MAX_ARROWS], rows


def _between(first: BrokerBox, last: BrokerBox, row: MoveRow) -> Arrow:
    is_right = last.x >= first.x
    x0 = first.x + first.width * (0.7 if is_right else 0.3)
    x1 = last.x + last.width * (0.3 if is_right else 0.7)
    y0, y1 = first.y + 2, last.y + 2
    lift = min(y0, y1) - 22
    path = f"M {x0:.0f} {y0:.0f} C {x0:.0f} {lift:.0f} {x1:.0f} {lift:.0f} {x1:.0f} {y1 - 2:.0f}"
    return _arrow(path, (x0 + x1) / 2, lift + 14, row)


def _arrow(path: str, x: float, y: float, row: MoveRow) -> Arrow:
    label = f"{row.replicas}, {row.time_left}" if row.time_left else f"{row.replicas}"
    title = f"{count_noun(row.replicas, 'replica')} from {row.source} to {row.target}"
    return Arrow(path, x, y, label, f"{title}, {row.left} left" if row.left else title)


def _view(request: PageRequest) -> Mapping[str, Any]:
    snapshot = request.snapshot
    status = snapshot.status
    boxes, height = _boxes(snapshot)
    arrows, moves = _arrows(snapshot, boxes)
    problems = status.problems()
    disks = [disk for _, disk in snapshot.disks()]
    known = [disk for disk in disks if disk.total_bytes > 0 and disk.used_bytes >= 0]
    partitions = sum(len(topic.partitions) for topic in status.view.topics.values())
    return {
        "boxes": boxes,
        "width": _WIDTH,
        "height": max(height, 120),
        "arrows": arrows,
        "moves": moves,
        "problems": problems[:_MAX_PROBLEMS],
        "more_problems": max(0, len(problems) - _MAX_PROBLEMS),
        "brokers": len(status.cluster.nodes),
        "live": sum(not node.is_fenced for node in status.cluster.nodes),
        "directories": len(disks),
        "silent": sum(report.disks is None for report in status.reports),
        "offline": sum(disk.failure is not None for disk in disks),
        "used_bytes": sum(disk.used_bytes for disk in known),
        "total_bytes": sum(disk.total_bytes for disk in known),
        "topics": len(status.view.topics),
        "partitions": partitions,
        "under_replicated": len(status.under_replicated),
    }


PAGE: Final = Page("overview", "/", "Overview", _view)
