"""Greedy fallback: move single replicas from the fullest to the emptiest directory."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from spindle.planner.layout import Layout
from spindle.planner.zones import Zone

_MAX_MOVES: Final = 300
_MAX_DIRECTORIES: Final = 30
_MAX_REPLICAS: Final = 300
"""Limits of the search: total moves; directories and replicas that are tried for one move."""

Sizes = list[tuple[int, int]]
"""Sizes and replicas of a directory, in ascending order."""


def balance_greedily(layout: Layout, zones: Iterable[Zone], spread: float, max_fill: float) -> None:
    """Move replicas from the fullest to the emptiest directory while the spread shrinks."""
    zone_of = {
        directory: number for number, zone in enumerate(zones) for directory in zone.directories
    }
    sizes: dict[int, Sizes] = {}
    for _ in range(_MAX_MOVES):
        if layout.spread() <= spread:
            return
        receivers = [number for number, receives in enumerate(layout.receives) if receives]
        staying = layout.staying()
        lowest = sorted(receivers, key=lambda each: (layout.fill(each), each))
        highest = sorted(staying, key=lambda each: (-layout.fill(each), each))
        if not lowest:
            return
        first, last = highest[0], lowest[0]
        targets = [directory for directory in lowest if zone_of[directory] == zone_of[first]]
        sources = [directory for directory in highest if zone_of[directory] == zone_of[last]]
        targets, sources = targets[:_MAX_DIRECTORIES], sources[:_MAX_DIRECTORIES]
        if not (
            _move_best(layout, sizes, [first], targets, max_fill)
            or _move_best(layout, sizes, sources, [last], max_fill)
        ):
            return


def _move_best(
    layout: Layout,
    sizes: dict[int, Sizes],
    sources: list[int],
    targets: list[int],
    max_fill: float,
) -> bool:
    """Apply the move that makes two directories most alike; return False if there is none."""
    best: tuple[float, int, int] | None = None
    for source in sources:
        for target in targets:
            candidate = _best_between(layout, sizes, source, target, max_fill)
            if candidate is not None and (best is None or (*candidate, target) < best):
                best = (*candidate, target)
    if best is None:
        return False
    _, replica, target = best
    for directory in (layout.place[replica], target):
        sizes.pop(directory, None)
    layout.move(replica, target)
    return True


def _best_between(
    layout: Layout, sizes: dict[int, Sizes], source: int, target: int, max_fill: float
) -> tuple[float, int] | None:
    """Return the smallest difference of two fills after a move, and the replica to move.

    The difference is smallest for the replica whose size is nearest to the ideal size.
    """
    before = layout.fill(source) - layout.fill(target)
    if before <= 0:
        return None
    capacity = layout.capacity_bytes[target]
    room = max_fill * capacity - layout.used[target]
    change = 1 / layout.capacity_bytes[source] + 1 / capacity
    held = _sizes(layout, sizes, source)
    for tried, (size, replica) in enumerate(_nearest(held, before / change)):
        after = abs(before - size * change)
        if after >= before or tried == _MAX_REPLICAS:
            break
        if size <= room and layout.is_legal(replica, target):
            return after, replica
    return None


def _sizes(layout: Layout, sizes: dict[int, Sizes], directory: int) -> Sizes:
    """Return the sizes of a directory's replicas; cache them in `sizes` for the next call."""
    if directory not in sizes:
        held = layout.held[directory]
        sizes[directory] = sorted(
            (layout.size[directory], directory) for directory in held if layout.size[directory]
        )
    return sizes[directory]


def _nearest(sizes: Sizes, ideal: float) -> Iterator[tuple[int, int]]:
    """Yield sizes and their replicas, those that are nearest to an ideal size first."""
    high = bisect_left(sizes, (ideal, -1))
    low = high - 1
    while low >= 0 or high < len(sizes):
        if high == len(sizes) or (low >= 0 and ideal - sizes[low][0] <= sizes[high][0] - ideal):
            yield sizes[low]
            low -= 1
        else:
            yield sizes[high]
            high += 1
