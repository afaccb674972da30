"""The screen of `spindle disks watch`: lines of text, for a width or without a limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import commonpath
from textwrap import wrap
from typing import Final, NamedTuple

from spindle.cli.disks.broker_poll import BrokerReport
from spindle.cli.disks.rates import DiskRate, MoveKey, MoveRate, OperationRate, key_of
from spindle.cli.disks.state_text import (
    clock_text,
    cordon_text,
    fill_text,
    hang_text,
    hangs,
    health_text,
    offline_text,
    silence_text,
    stray_text,
)
from spindle.cli.terminal import BAD, QUIET, TITLE, UNUSUAL, Line, blocks_text, shortened
from spindle.client.disks import DiskView, MoveView
from spindle.common.text import duration_text, size_text
from spindle.operations.events import rebuild_text

_UNKNOWN: Final = "-"
_LEGEND: Final = "; times of I/O in ms, median/99 %"
_GAP: Final = "  "
_HEAD: Final = "DIRECTORY"
_MIN_NAME: Final = 9
_BAR: Final = 20
_MAX_SHOWN_S: Final = 100 * 3600

_WIDE: Final = (
    "FILL",
    "FREE",
    "LOGS",
    "REPLICAS",
    "LEADERS",
    "IN/s",
    "OUT/s",
    "READ",
    "WRITE",
    "SYNC",
    "BUSY",
    "QUEUE",
)
_NARROW: Final = ("FILL", "FREE", "REPL", "LEAD", "IN/s", "OUT/s", "I/O", "BUSY", "QUEUE")
_NARROWEST: Final = ("FREE", "IN/s", "OUT/s", "I/O", "BUSY")


@dataclass(frozen=True, slots=True)
class BrokerPicture:
    """A broker's report with the rates since the previous report."""

    report: BrokerReport
    disks: Mapping[str, DiskRate]
    moves: Mapping[MoveKey, MoveRate]


def watch_lines(
    watched: Sequence[BrokerPicture],
    now_ms: int,
    width: int | None = None,
    *,
    has_blocks: bool = True,
) -> list[Line]:
    """Return the whole screen.

    Args:
        now_ms: the present time.
        width: columns of the terminal: with fewer columns there are fewer numbers and shorter
            paths. None sets no limit.
        has_blocks: the terminal can show the block characters of progress bars.
    """
    summary = _summary(watched, now_ms)
    if width is None or len(summary) + len(_LEGEND) <= width:
        summary += _LEGEND
    lines = [Line(summary, TITLE)]
    layout = _layout(watched, width)
    lines.append(Line(_row(layout, _HEAD, layout.titles), QUIET))
    for picture in watched:
        lines += _broker_lines(picture, now_ms, layout, has_bar=has_blocks and width is not None)
    if width is None:
        return lines
    return [part for line in lines for part in _fitted(line, width)]


def _fitted(line: Line, width: int) -> list[Line]:
    """Wrap a line to the width; only remarks may break between words."""
    if len(line.text) <= width or line.style not in (BAD, UNUSUAL):
        return [Line(line.text[:width], line.style)]
    indent = _GAP * 2 if line.text.startswith(_GAP) else ""
    parts = wrap(line.text.strip(), width, initial_indent=indent, subsequent_indent=_GAP * 2)
    return [Line(part, line.style) for part in parts]


def _summary(watched: Sequence[BrokerPicture], now_ms: int) -> str:
    disks = [disk for picture in watched for disk in _disks(picture)]
    counts = {
        ("broker", "brokers"): len(watched),
        ("silent", "silent"): sum(picture.report.disks is None for picture in watched),
        ("directory", "directories"): len(disks),
        ("offline", "offline"): sum(disk.failure is not None for disk in disks),
        ("cordoned", "cordoned"): sum(bool(disk.cordons) for disk in disks),
        ("move", "moves"): sum(
            len(picture.report.disks.moves) for picture in watched if picture.report.disks
        ),
    }
    always = ("brokers", "directories")
    texts = [
        f"{count} {one if count == 1 else many}"
        for (one, many), count in counts.items()
        if count or many in always
    ]
    return f"{clock_text(now_ms, now_ms)}  {', '.join(texts)}"


def _disks(each: BrokerPicture) -> Sequence[DiskView]:
    return each.report.disks.disks if each.report.disks is not None else ()


class _Layout(NamedTuple):
    """The columns of the table: titles and widths of the numbers, and the width of the names.

    `is_limited` is True on a terminal: names are shown without the common parent of a broker's
    directories.
    """

    titles: Sequence[str]
    widths: Sequence[int]
    name_width: int
    is_limited: bool


def _layout(watched: Sequence[BrokerPicture], width: int | None) -> _Layout:
    """Return the layout with the most numbers that leaves room for the names."""
    is_limited = width is not None
    names = [
        name for picture in watched for name in _names(picture, is_limited=is_limited).values()
    ]
    longest = max(map(len, (_HEAD, *names)))
    for titles in (_WIDE, _NARROW, _NARROWEST):
        widths = [len(title) for title in titles]
        for picture in watched:
            for disk in _disks(picture):
                cells = _cells(disk, picture.disks.get(disk.path), titles)
                widths = [max(old, len(cell)) for old, cell in zip(widths, cells, strict=True)]
        if width is None:
            break
        left = width - len(_GAP) - sum(widths) - len(_GAP) * len(widths)
        if left >= min(longest, _MIN_NAME):
            return _Layout(titles, widths, min(longest, left), is_limited)
    return _Layout(titles, widths, _MIN_NAME if is_limited else longest, is_limited)


def _shared(each: BrokerPicture, *, is_limited: bool) -> str:
    """Return the common parent of all log directories of a broker, with a slash at its end."""
    paths = [disk.path for disk in _disks(each)]
    if not is_limited or len(paths) < 2:
        return ""
    return commonpath(paths).rstrip("/") + "/"


def _names(each: BrokerPicture, *, is_limited: bool) -> dict[str, str]:
    shared = _shared(each, is_limited=is_limited)
    return {disk.path: disk.path.removeprefix(shared) for disk in _disks(each)}


def _row(layout: _Layout, name: str, cells: Sequence[str]) -> str:
    numbers = [cell.rjust(width) for cell, width in zip(cells, layout.widths, strict=True)]
    shown = shortened(name, layout.name_width).ljust(layout.name_width)
    return _GAP + _GAP.join([shown, *numbers]).rstrip()


def _broker_lines(
    each: BrokerPicture, now_ms: int, layout: _Layout, *, has_bar: bool
) -> list[Line]:
    report = each.report
    disks = report.disks
    if disks is None:
        return [Line(f"{_broker_title(each, layout)}  {silence_text(report)}", BAD)]
    names = _names(each, is_limited=layout.is_limited)
    lines = [Line(_broker_title(each, layout), TITLE)]
    for disk in disks.disks:
        cells = _cells(disk, each.disks.get(disk.path), layout.titles)
        lines.append(Line(_row(layout, names[disk.path], cells)))
        lines += [Line(_GAP * 2 + text, style) for text, style in _remarks(disk, now_ms)]
    limit = disks.move_limit_bytes_per_second
    if disks.moves and limit is not None:
        lines.append(Line(f"{_GAP}moves are limited to {size_text(limit)}/s", QUIET))
    for move in disks.moves:
        rate = each.moves.get(key_of(move), MoveRate(None, None))
        lines.append(Line(_GAP + move_text(move, rate, names, has_bar=has_bar)))
    for rebuild in disks.rebuilds:
        if rebuild.is_under_way:
            text = f"{rebuild.partition} is rebuilt in {names.get(rebuild.path, rebuild.path)}"
            lines.append(Line(f"{_GAP}{text}: {rebuild_text(rebuild)}"))
    return lines


def _broker_title(each: BrokerPicture, layout: _Layout) -> str:
    report = each.report
    disks = report.disks
    title = f"broker {report.node.node_id}  {report.node.host}:{report.node.port}"
    shared = _shared(each, is_limited=layout.is_limited)
    if shared:
        title += f"  {shared}"
    if disks is not None and not report.is_spindle:
        title += "  not Spindle: no traffic, no times"
    return title


def _remarks(disk: DiskView, now_ms: int) -> list[Line]:
    health = [Line(text, BAD)] if (text := health_text(disk)) else []
    if disk.failure is not None:
        return [Line(offline_text(disk, now_ms), BAD), *health]
    lines = health + [Line(cordon_text(cordon, now_ms), UNUSUAL) for cordon in disk.cordons]
    if hangs(disk):
        lines.append(Line(hang_text(disk), BAD))
    if disk.stray_count:
        lines.append(Line(stray_text(disk), UNUSUAL))
    return lines


def _cells(disk: DiskView, rate: DiskRate | None, titles: Sequence[str]) -> list[str]:
    if disk.failure is not None:
        return [_UNKNOWN] * len(titles)
    cells = {
        "FILL": fill_text(disk),
        "FREE": size_text(disk.usable_bytes),
        "LOGS": size_text(disk.size_bytes),
        "REPLICAS": str(disk.partition_count),
        "REPL": str(disk.partition_count),
        "LEADERS": str(disk.leader_count),
        "LEAD": str(disk.leader_count),
    }
    if rate is not None:
        cells |= {
            "IN/s": size_text(round(rate.writes.bytes_per_second)),
            "OUT/s": size_text(round(rate.reads.bytes_per_second)),
            "READ": _times_text(rate.reads),
            "WRITE": _times_text(rate.writes),
            "SYNC": _times_text(rate.syncs),
            "I/O": _times_text(rate.every),
            "BUSY": f"{rate.busy:.0%}",
        }
    if disk.work is not None:
        cells["QUEUE"] = str(disk.work.queue_length)
    return [cells.get(title, _UNKNOWN) for title in titles]


def _times_text(rate: OperationRate) -> str:
    if rate.median_ms is None or rate.p99_ms is None:
        return _UNKNOWN
    return f"{_ms_text(rate.median_ms)}/{_ms_text(rate.p99_ms)}"


def _ms_text(time_ms: float) -> str:
    return (
        f"{time_ms:.2f}" if time_ms < 1 else f"{time_ms:.1f}" if time_ms < 10 else f"{time_ms:.0f}"
    )


def move_text(move: MoveView, rate: MoveRate, names: Mapping[str, str], *, has_bar: bool) -> str:
    """Return a line about a move: directories, progress, rate and time left.

    Args:
        names: the names of the directories by path.
        has_bar: show the progress as a bar of blocks, too.
    """
    part = 1.0 - move.remaining_bytes / move.size_bytes if move.size_bytes else 1.0
    speed = _UNKNOWN if rate.bytes_per_second is None else size_text(round(rate.bytes_per_second))
    target = names.get(move.target, move.target)
    numbers = f"{int(100 * part):3d} % of {size_text(move.size_bytes)}"
    end = f"{speed}/s  {_end_text(move, rate)}"
    if not has_bar:
        source = names.get(move.source, move.source)
        return f"{move.partition} from {source} to {target}: {numbers}  {end}"
    return f"{move.partition} → {target}  {blocks_text(part, _BAR)} {numbers}  {end}"


def _end_text(move: MoveView, rate: MoveRate) -> str:
    if move.state not in (None, "copying"):
        return str(move.state)
    left_s = rate.seconds_left
    if left_s is None or left_s > _MAX_SHOWN_S:
        return "time left unknown"
    return f"{duration_text(left_s)} left"
