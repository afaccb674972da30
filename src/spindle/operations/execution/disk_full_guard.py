"""Directories that fill up while replicas are copied into them: no copy may fill a disk."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from spindle.client.log_dirs import LogDirView
from spindle.common.text import size_text
from spindle.operations.execution.active_moves import ActiveMoves
from spindle.operations.reassignment import Plan, Replica

_SLACK: Final = 0.2
"""Tolerance above the maximum fill, as a share of the space that it leaves free. A plan counts
logs, not their indexes, and partitions grow during copies."""
_RESERVE: Final = 0.5
"""The share of the space above the maximum fill that must remain free after the copies."""


def overfilling(
    plan: Plan,
    now: ActiveMoves,
    described: Mapping[int, Collection[LogDirView]],
    fill: float,
) -> dict[Replica, str]:
    """Return the replicas of a plan whose directory has too little free space, and why.

    Args:
        now: all moves, from the same responses of the brokers.
        fill: the maximum used share of a file system.
    """
    arriving: dict[tuple[int, str], dict[Replica, int]] = {}
    for replica, path, left_bytes in _arriving(plan, now, described):
        if left_bytes > 0:
            arriving.setdefault((replica.broker, path), {})[replica] = left_bytes
    reasons: dict[Replica, str] = {}
    for broker, views in described.items():
        for view in views:
            left = arriving.get((broker, view.path), {})
            reason = _too_full(broker, view, sum(left.values()), fill) if left else ""
            if reason:
                reasons |= dict.fromkeys(left, reason)
    return reasons


def copyable_bytes(
    plan: Plan,
    now: ActiveMoves,
    described: Mapping[int, Collection[LogDirView]],
    fill: float,
) -> dict[tuple[int, str], int]:
    """Return the bytes that may still be copied into each directory of known capacity.

    Args:
        plan: the running moves of this execution.
        now: all moves, from the same responses of the brokers.
        fill: the maximum used share of a file system.
    """
    free_bytes = {
        (broker, view.path): int(view.usable_bytes - (1 - _SLACK) * (1 - fill) * view.total_bytes)
        for broker, views in described.items()
        for view in views
        if view.total_bytes > 0 and view.usable_bytes >= 0
    }
    for replica, path, arriving_bytes in _arriving(plan, now, described):
        if (replica.broker, path) in free_bytes:
            free_bytes[replica.broker, path] -= max(0, arriving_bytes)
    return free_bytes


def _too_full(broker: int, view: LogDirView, left_bytes: int, fill: float) -> str:
    """Return why the copies into a directory must stop; empty if they may continue."""
    if view.total_bytes <= 0 or view.usable_bytes < 0:
        return ""
    name = f"directory {view.path} of broker {broker}"
    free = (1 - fill) * view.total_bytes
    now = 1 - view.usable_bytes / view.total_bytes
    if fill < 1 and view.usable_bytes < (1 - _SLACK) * free:
        return f"{name} has filled up to {now:.1%}, and the highest fill is {fill:.1%}"
    if view.usable_bytes < left_bytes + _RESERVE * free:
        usable, left = size_text(view.usable_bytes), size_text(left_bytes)
        return f"{name} has only {usable} left, and {left} are still to be copied"
    return ""


def _arriving(
    plan: Plan, now: ActiveMoves, described: Mapping[int, Collection[LogDirView]]
) -> Iterator[tuple[Replica, str, int]]:
    """Yield the moving replicas of a plan, their directories, and the missing bytes."""
    places: dict[Replica, str] = {}
    for broker, views in described.items():
        for view in views:
            for partition, on_disk in view.replicas.items():
                replica = Replica(broker, partition)
                if not on_disk.is_future:
                    places[replica] = view.path
                elif replica in now.copies and plan.directories.get(replica) == view.path:
                    yield replica, view.path, now.online[replica] - on_disk.size_bytes
    for partition, moved in now.of_plan(plan).items():
        sources = set(moved.replicas).difference(moved.adding)
        size_bytes = max((now.online.get(Replica(b, partition), 0) for b in sources), default=0)
        for broker in moved.adding:
            replica = Replica(broker, partition)
            path = places.get(replica, plan.directories.get(replica))
            if path is not None:
                yield replica, path, size_bytes - now.online.get(replica, 0)
