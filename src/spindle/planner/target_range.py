"""The cheapest target range of fills, and a lower bound of the bytes to move into it.

Let all final fills be between `low` and `low + spread`. At least its excess must leave every
directory above the range, and at least its deficit must enter every directory below it; each moved
byte leaves one directory and enters one other. So in each zone the larger of the two sums is a
lower bound for this range. It is a convex function of `low`; its minimum is the bound for all
plans.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from spindle.planner.layout import Layout
from spindle.planner.zones import Zone

_PRECISION: Final = 1e-13
_STEPS: Final = 60
"""A search for a fill ends with this error, or after this many halvings."""
_ROUNDING: Final = 1 - 1e-9
"""Keeps the bound below the true minimum in spite of that error."""


@dataclass(frozen=True, slots=True)
class FillWindow:
    """The target range of fills of a plan.

    Attributes:
        low: the lowest fill at the end.
        high: the highest fill at the end.
        lower_bound_bytes: no plan with the same final spread moves fewer bytes.
        is_wanted_spread: False if the zones differ too much for the wanted spread, or a replica is
            too large for it; then the range is wider.
        too_large: the index of a partition whose replica is too large for a lower window.
    """

    low: float
    high: float
    lower_bound_bytes: int
    is_wanted_spread: bool
    too_large: int | None = None


class ZoneFills:
    """Snapshot of a zone's utilisation, queried for many candidate levels.

    Attributes:
        receivers: use and capacity of each directory that may receive.
    """

    def __init__(self, layout: Layout, zone: Zone) -> None:
        self.forced_bytes = zone.forced_bytes
        self.receivers = [
            (layout.used[directory], layout.capacity_bytes[directory])
            for directory in zone.directories
            if layout.receives[directory]
        ]
        self._givers = [
            (
                layout.used[directory],
                layout.capacity_bytes[directory],
                layout.replica_bytes[directory],
                layout.receives[directory],
            )
            for directory in zone.directories
        ]

    def given_bytes(self, high: float) -> float:
        """Return the bytes of movable replicas above the fill `high`."""
        return sum(
            min(used - high * capacity, replica_bytes)
            for used, capacity, replica_bytes, _ in self._givers
            if used > high * capacity
        )

    def taken_bytes(self, low: float) -> float:
        """Return the bytes that the directories lack below a fill."""
        return sum(
            low * capacity - used for used, capacity in self.receivers if used < low * capacity
        )

    def bound_bytes(self, low: float, high: float) -> float:
        """Return the bytes that must move to bring all fills between two levels."""
        return max(self.forced_bytes + self.given_bytes(high), self.taken_bytes(low))

    def level(self) -> float:
        """Return the fill of all directories that may receive if all bytes are spread evenly."""
        capacity = sum(number for _, number in self.receivers)
        used = sum(number for number, _ in self.receivers) + self.forced_bytes
        cordoned = [giver[:3] for giver in self._givers if not giver[3]]
        most = (used + sum(item[2] for item in cordoned)) / capacity

        def is_enough(fill: float) -> bool:
            given = sum(min(max(0.0, u - fill * c), r) for u, c, r in cordoned)
            return fill * capacity >= used + given

        return _lowest(is_enough, most)

    def fixed_fill(self) -> float:
        """Return the highest fill of a directory by files that are not replicas."""
        return max(
            (
                (used - replica_bytes) / capacity
                for used, capacity, replica_bytes, _ in self._givers
            ),
            default=0.0,
        )

    def water_level(self, poured_bytes: float) -> float:
        """Return the fill to which this many bytes raise the emptiest directories."""
        if not self.receivers:
            return 0.0
        most = max(used / capacity for used, capacity in self.receivers)
        most += poured_bytes / sum(capacity for _, capacity in self.receivers)
        return _lowest(lambda fill: self.taken_bytes(fill) >= poured_bytes, most)

    def drain_level(self, given_bytes: float) -> float:
        """Return the fill of the fullest directories after this many bytes have left them."""
        most = max((used / capacity for used, capacity, *_ in self._givers), default=0.0)
        return _lowest(lambda fill: self.given_bytes(fill) <= given_bytes, most)


def _lowest(is_enough: Callable[[float], bool], most: float) -> float:
    """Return the lowest sufficient fill, by bisection: all higher fills must suffice, too."""
    begin, end = 0.0, most
    for _ in range(_STEPS):
        if end - begin <= _PRECISION:
            break
        middle = (begin + end) / 2
        if is_enough(middle):
            end = middle
        else:
            begin = middle
    return end


def cheapest_window(layout: Layout, zones: Sequence[Zone], spread: float) -> FillWindow:
    """Return the window of this width, or the narrowest possible one, that costs least."""
    fills = [ZoneFills(layout, zone) for zone in zones]
    levels = [fill.level() for fill in fills if fill.receivers]
    if not levels:
        return FillWindow(0.0, 1.0, 0, False)
    # Every plan's maximum is at least each zone's mean level and at least each directory's
    # immovable bytes. Its lowest fill may be above the level of a zone only if replicas leave
    # cordoned or offline directories; the plan does without this, but the bound must not.
    ceiling, rest = _broker_bounds(layout)
    highest = max(*levels, rest, *(fill.fixed_fill() for fill in fills))
    largest, too_large = _largest_fill(layout)
    highest = max(highest, largest)
    lowest = min(*levels, ceiling)
    width = max(spread, highest - lowest)

    def cost(low: float) -> float:
        return sum(fill.bound_bytes(low, low + width) for fill in fills)

    begin = max(0.0, highest - width)
    low = _cheapest(cost, begin, lowest)
    bound = cost(_cheapest(cost, begin, min(ceiling, max(lowest, 1.0))))
    return FillWindow(
        low,
        low + width,
        int(bound * _ROUNDING),
        width <= spread,
        too_large if width > spread and largest == highest else None,
    )


def _broker_bounds(layout: Layout) -> tuple[float, float]:
    """Return limits of fills that follow from the rule of one replica of a partition per broker.

    Returns:
        The maximum fill of the emptiest directory, and the minimum fill of the fullest one: a
        broker can hold only a part, and the other brokers must hold the rest.
    """
    max_bytes = sum(max(partition.size_bytes, default=0) for partition in layout.cluster.partitions)
    fixed: dict[int, int] = {}
    capacity: dict[int, int] = {}
    total_bytes = sum(layout.replica_bytes[directory] for directory in layout.leaving)
    for number, directory in enumerate(layout.cluster.directories):
        if layout.receives[number]:
            other_bytes = layout.used[number] - layout.replica_bytes[number]
            fixed[directory.broker_id] = fixed.get(directory.broker_id, 0) + other_bytes
            capacity[directory.broker_id] = (
                capacity.get(directory.broker_id, 0) + directory.capacity_bytes
            )
            total_bytes += layout.used[number]
    whole = sum(capacity.values())
    ceilings, rests = [1.0], [0.0]
    for broker, size in capacity.items():
        held = fixed[broker] + max_bytes
        ceilings.append(held / size)
        if whole > size:
            rests.append((total_bytes - held) / (whole - size))
    return min(ceilings), max(rests)


def _largest_fill(layout: Layout) -> tuple[float, int]:
    """Return the fill that a replica alone gives to its directory, wherever it is.

    Of the n largest replicas of a partition one is on a broker whose largest directory is at most
    the n-th largest of all brokers.

    Returns:
        The highest such fill, and the index of the partition.
    """
    largest: dict[int, int] = {}
    for directory in layout.staying():
        broker, capacity = layout.broker[directory], layout.capacity_bytes[directory]
        largest[broker] = max(capacity, largest.get(broker, 0))
    capacities = sorted(largest.values(), reverse=True)
    counted = {*layout.staying(), *layout.leaving}
    largest_fill = (0.0, 0)
    for number in range(len(layout.cluster.partitions)):
        replicas = range(layout.first[number], layout.first[number + 1])
        sizes = [layout.size[replica] for replica in replicas if layout.place[replica] in counted]
        for size, capacity in zip(sorted(sizes, reverse=True), capacities, strict=False):
            if size > largest_fill[0] * capacity:
                largest_fill = (size / capacity, number)
    return largest_fill


def _cheapest(cost: Callable[[float], float], begin: float, end: float) -> float:
    """Return the argument of the minimum of a convex cost in an interval."""
    for _ in range(2 * _STEPS):
        if end - begin <= _PRECISION:
            break
        third = (end - begin) / 3
        if cost(begin + third) <= cost(end - third):
            end -= third
        else:
            begin += third
    return begin


def excess_bytes(layout: Layout, directory: int, high: float) -> float:
    """Return the bytes of replicas that a directory has above a fill."""
    above = layout.used[directory] - high * layout.capacity_bytes[directory]
    return max(0.0, min(above, layout.replica_bytes[directory]))
