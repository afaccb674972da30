"""Brings fills closer together, one move at a time, where whole replicas do not fit a window."""

from typing import Final

from spindle.planner.layout import Layout

_MOST_MOVES: Final = 300
_MOST_DIRECTORIES: Final = 30
_MOST_REPLICAS: Final = 300
"""Limits of the search: moves in all, and candidates for one move."""


def even_out(layout: Layout, spread: float, max_fill: float) -> None:
    """Move replicas out of the fullest and into the emptiest directory while that helps."""
    for _ in range(_MOST_MOVES):
        if layout.spread() <= spread:
            return
        receivers = [each for each, receives in enumerate(layout.receives) if receives]
        staying = layout.staying()
        lowest = sorted(receivers, key=lambda each: (layout.fill(each), each))
        highest = sorted(staying, key=lambda each: (-layout.fill(each), each))
        if not (
            _move_best(layout, highest[:1], lowest[:_MOST_DIRECTORIES], max_fill)
            or _move_best(layout, highest[:_MOST_DIRECTORIES], lowest[:1], max_fill)
        ):
            return


def _move_best(layout: Layout, sources: list[int], targets: list[int], max_fill: float) -> bool:
    """Carry out the move that brings two directories closest together; return False without one."""
    best: tuple[float, int, int] | None = None
    for source in sources:
        for target in targets:
            before = layout.fill(source) - layout.fill(target)
            if before <= 0:
                continue
            for replica in list(layout.held[source])[:_MOST_REPLICAS]:
                after = _difference_after(layout, replica, source, target, max_fill)
                is_better = best is None or (after, replica, target) < best
                if after < before and is_better and layout.is_legal(replica, target):
                    best = (after, replica, target)
    if best is None:
        return False
    layout.move(best[1], best[2])
    return True


def _difference_after(
    layout: Layout, replica: int, source: int, target: int, max_fill: float
) -> float:
    """Return the difference of two fills after a move, infinity if there is no room for it."""
    size = layout.size[replica]
    directories = layout.cluster.directories
    left = (layout.used[source] - size) / directories[source].capacity_bytes
    filled = (layout.used[target] + size) / directories[target].capacity_bytes
    return abs(left - filled) if size and filled <= max_fill else float("inf")
