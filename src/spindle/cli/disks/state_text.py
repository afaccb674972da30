"""The state of a log directory as text."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from spindle.cli.disks.broker_poll import BrokerReport
from spindle.client.disks import CordonView, DiskView, MoveView, RebuildView
from spindle.common.text import count_noun, size_text

CONFIGURATION: Final = "configuration"
_HANGS_AFTER_MS: Final = 2_000
_MS: Final = 1000
_SLOWLY: Final = "did not answer"


def clock_text(at_ms: int, now_ms: int) -> str:
    """Return a time of day in local time, with the date if that is not the one of `now_ms`."""
    at, now = (datetime.fromtimestamp(ms / _MS) for ms in (at_ms, now_ms))
    return at.strftime("%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def moves_text(path: str, moves: Sequence[MoveView]) -> str:
    """Return how many replicas move into and out of a directory; empty without any."""
    into = sum(move.target == path for move in moves)
    out = sum(move.source == path for move in moves)
    parts = [f"{count} moving {where}" for count, where in ((into, "in"), (out, "out")) if count]
    return ", ".join(parts)


def offline_text(disk: DiskView, now_ms: int) -> str:
    """Return why and since when a directory is offline."""
    text = f"offline: {disk.failure}"
    if disk.failed_at_ms is None:
        return text
    return f"{text} at {clock_text(disk.failed_at_ms, now_ms)}"


def cordon_text(cordon: CordonView, now_ms: int) -> str:
    """Return the text of a cordon: its origin, reason and end, if known."""
    by = cordon.owner or (None if cordon.cause == CONFIGURATION else cordon.cause)
    parts = [f"by {by}"] if by is not None else []
    if cordon.until_ms is not None:
        parts.append(f"until {clock_text(cordon.until_ms, now_ms)}")
    text = " ".join(["cordoned", *parts])
    return f"{text}: {cordon.reason}" if cordon.reason else text


def rebuilds_text(path: str, rebuilds: Sequence[RebuildView]) -> str:
    """Return how many replicas in a directory are rebuilt; empty without any."""
    count = sum(
        rebuild_view.path == path and rebuild_view.is_under_way for rebuild_view in rebuilds
    )
    return f"{count_noun(count, 'rebuild')}" if count else ""


def state_text(
    disk: DiskView,
    moves: Sequence[MoveView],
    now_ms: int,
    rebuilds: Sequence[RebuildView] = (),
) -> str:
    """Return the state of a directory in one line."""
    if disk.failure is not None:
        return ", ".join(filter(None, [offline_text(disk, now_ms), health_text(disk)]))
    parts = [cordon_text(cordon, now_ms) for cordon in disk.cordons] or ["online"]
    if hangs(disk):
        parts.insert(0, hang_text(disk))
    parts += [moves_text(disk.path, moves), rebuilds_text(disk.path, rebuilds)]
    parts += [stray_text(disk), health_text(disk)]
    return ", ".join(filter(None, parts))


def hangs(disk: DiskView) -> bool:
    """Return True if the disk has not answered for some time."""
    return disk.work is not None and disk.work.hang_ms >= _HANGS_AFTER_MS


def hang_text(disk: DiskView) -> str:
    """Return for how long the disk has not answered."""
    hang_ms = disk.work.hang_ms if disk.work is not None else 0
    return f"hangs for {hang_ms // _MS} s"


def fill_text(disk: DiskView) -> str:
    """Return the used share of the file system."""
    if disk.total_bytes <= 0 or disk.used_bytes < 0:
        return "-"
    return f"{disk.used_bytes / disk.total_bytes:.1%}"


def stray_text(disk: DiskView) -> str:
    """Return the number of logs that the metadata places elsewhere; empty without any."""
    if not disk.stray_count:
        return ""
    return f"{count_noun(disk.stray_count, 'stray log')} with {size_text(disk.stray_bytes)}"


def health_text(disk: DiskView) -> str:
    """Return the warnings about the device; empty if there are none or nothing is known."""
    health = disk.health
    if health is None:
        return ""
    parts = []
    if health.smart_passed is False:
        parts.append("SMART: failing")
    if health.media_errors:
        parts.append(count_noun(health.media_errors, "media error"))
    if health.errors:
        parts.append(count_noun(health.errors, "I/O error"))
    return f"{health.device}: {', '.join(parts)}" if parts else ""


def silence_text(report: BrokerReport) -> str:
    """Return why a broker's directories are unknown."""
    fenced = "fenced, " if report.node.is_fenced else ""
    if report.is_refused:
        return f"{fenced}refused (DESCRIBE on Cluster:kafka-cluster is needed): {report.error}"
    address = f"{report.node.host}:{report.node.port}"
    reason = report.error or ""
    for prefix in (
        f"cannot connect to {address}: ",
        f"connection to {address} failed: ",
        f"{address} ",
    ):
        reason = reason.removeprefix(prefix)
    return fenced + (reason if reason.startswith(_SLOWLY) else f"no answer: {reason}")
