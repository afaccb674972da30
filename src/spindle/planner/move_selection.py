"""Choose the replicas to move and their target directories, regardless of the order of moves."""

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from spindle.planner.balancer import balance_greedily
from spindle.planner.free_space import FreeSpaceIndex
from spindle.planner.infeasibility import refuse_offline, refuse_placement
from spindle.planner.layout import Layout
from spindle.planner.limits import PlanLimits
from spindle.planner.target_range import FillWindow, ZoneFills, cheapest_window, excess_bytes
from spindle.planner.zones import Zone, find_zones

_MAX_PASSES: Final = 10
_MIN_GAIN: Final = 0.001
"""Limits of the levelling passes; a pass that gains less than this is the last one."""
_ROUNDING: Final = 1e-12
_MAX_TRIED: Final = 200
"""Maximum number of replicas of one directory that are tried."""
_MAX_PACKED: Final = 2000
"""Limit for the best-fit fallback."""
_MAX_SEARCHED: Final = 20
"""Number of directories to search after the first one with a movable replica."""


def empty_directories(
    layout: Layout, zones: Iterable[Zone], window: FillWindow | None, limits: PlanLimits
) -> None:
    """Move every replica out of the directories that are emptied.

    The bytes would raise the emptiest directories to some level. A replica goes to the directory
    that is farthest below this level; if it is too large for that, to the directory with the most
    room.

    Raises:
        Infeasible: a replica has no place.
    """
    leaving = layout.largest_first(layout.leaving)
    refuse_offline(layout, leaving)
    rooms = FreeSpaceIndex(layout, _target_bytes(layout, zones, window, limits))
    left = [replica for replica in leaving if not rooms.place(replica)]
    rooms = FreeSpaceIndex(layout, FreeSpaceIndex.ceilings(layout, limits.max_fill))
    for number, replica in enumerate(left):
        if not rooms.place(replica) and not _make_room(layout, rooms, replica):
            if _pack(layout, leaving, limits):
                return
            refuse_placement(layout, left[number:], limits)


def _pack(layout: Layout, leaving: list[int], limits: PlanLimits) -> bool:
    """Place each replica where it leaves the least room (best fit); return whether all fit.

    This fills directories less evenly, but fits more replicas. If not all fit, nothing is changed.
    """
    if len(leaving) > _MAX_PACKED:
        return False
    before = list(layout.place)
    _put_back(layout, layout.origin)
    rooms = FreeSpaceIndex(layout, FreeSpaceIndex.ceilings(layout, limits.max_fill))
    receivers = [number for number, receives in enumerate(layout.receives) if receives]
    for replica in leaving:
        size = layout.size[replica]
        fitting = sorted(
            (rooms.room(directory), directory)
            for directory in receivers
            if rooms.room(directory) >= size
        )
        target = next((number for _, number in fitting if layout.is_legal(replica, number)), None)
        if target is not None:
            rooms.move(replica, target)
        elif not _make_room(layout, rooms, replica):
            _put_back(layout, before)
            return False
    return True


def _put_back(layout: Layout, places: Sequence[int]) -> None:
    """Restore an earlier placement of all replicas."""
    for replica, place in enumerate(places):
        if layout.place[replica] != place:
            layout.move(replica, place)


def level_out(layout: Layout, spread: float, limits: PlanLimits) -> None:
    """Move replicas until the fills differ by at most `spread`, or as little as possible.

    Each pass begins with the result of the previous one; a replica that moves twice costs no more
    bytes than one that moves once. The last pass that reduced the spread is used.

    Args:
        spread: the wanted maximum difference of fills.
    """
    if not layout.staying():
        return
    closest, places = layout.unevenness(), list(layout.place)
    for _ in range(_MAX_PASSES):
        zones = find_zones(layout)
        window = cheapest_window(layout, zones, spread)
        _spread_out_largest(layout, window, limits)
        _level(layout, zones, window, limits)
        _return_home(layout, window)
        now = layout.unevenness()
        if now >= closest:
            break
        gain, closest, places = closest[0] - now[0], now, list(layout.place)
        if gain < _MIN_GAIN or closest[0] <= max(spread, window.high - window.low):
            break
    _put_back(layout, places)


def _spread_out_largest(layout: Layout, window: FillWindow, limits: PlanLimits) -> None:
    """Move each replica that alone fills its directory above the window into a larger one.

    The smaller replicas of the larger directory leave it later, to make room.
    """
    highs = FreeSpaceIndex.ceilings(layout, min(window.high, limits.max_fill))
    large = [
        replica
        for replica in layout.largest_first(layout.staying())
        if layout.size[replica] > window.high * layout.capacity_bytes[layout.place[replica]]
    ]
    for replica in large:
        size = layout.size[replica]
        free = {
            number: high - layout.used[number]
            for number, high in highs.items()
            if size <= high - layout.used[number] + layout.replica_bytes[number]
            and layout.is_legal(replica, number)
        }
        if free:
            layout.move(replica, max(free, key=lambda each: (free[each], -each)))


def _return_home(layout: Layout, window: FillWindow) -> None:
    """Move replicas back to their original directories if that keeps the spread."""
    fills = [layout.fill(directory) for directory in layout.staying()]
    width = window.high - window.low
    low = max(min(window.low, *fills), max(fills) - width)
    low, high = min(low, *fills) + _ROUNDING, max(low + width, *fills) - _ROUNDING
    for replica in sorted(layout.moved(), key=lambda each: (-layout.size[each], each)):
        size, here, home = layout.size[replica], layout.place[replica], layout.origin[replica]
        has_room = layout.used[home] + size <= high * layout.capacity_bytes[home]
        is_spare = layout.used[here] - size >= low * layout.capacity_bytes[here]
        if size and has_room and is_spare and layout.is_legal(replica, home):
            layout.move(replica, home)


def _level(layout: Layout, zones: Collection[Zone], window: FillWindow, limits: PlanLimits) -> None:
    """Bring the fills of all directories into the target range, or as near as possible."""
    highs: dict[int, float] = {}
    for zone in zones:
        fills, high = ZoneFills(layout, zone), window.high
        taken = fills.taken_bytes(window.low)
        if taken > fills.given_bytes(high):
            high = max(window.low, fills.drain_level(taken))
        highs |= dict.fromkeys(zone.directories, high)
    excess = {number: excess_bytes(layout, number, high) for number, high in highs.items()}
    excess = {number: above for number, above in excess.items() if above >= 1}
    _give(layout, excess, _target_bytes(layout, zones, window, limits))
    _give_rest(layout, window, limits)
    _fill_up(layout, window)
    balance_greedily(layout, zones, window.high - window.low, limits.max_fill)


def _target_bytes(
    layout: Layout, zones: Iterable[Zone], window: FillWindow | None, limits: PlanLimits
) -> dict[int, int]:
    """Return the target size of each directory that may receive replicas, in bytes.

    It is the low end of the target range, or more if more bytes must be placed.
    """
    fills: dict[int, float] = {}
    for zone in zones:
        zone_fills = ZoneFills(layout, zone)
        low, given = 0.0, float(zone.forced_bytes)
        if window is not None:
            low = window.low
            given += zone_fills.given_bytes(window.high)
        fill = min(max(low, zone_fills.water_level(given)), limits.max_fill)
        fills |= dict.fromkeys(zone.directories, fill)
    return {
        number: int(fill * layout.capacity_bytes[number])
        for number, fill in fills.items()
        if layout.receives[number]
    }


def _give(layout: Layout, excess: dict[int, float], ceilings: Mapping[int, int]) -> None:
    """Move replicas out of directories above the target range, largest replicas first.

    At most its excess leaves a directory, and no directory is filled above its ceiling.
    """
    rooms = FreeSpaceIndex(layout, ceilings)
    for replica in layout.largest_first(excess):
        source, size = layout.place[replica], layout.size[replica]
        if 0 < size <= excess[source] and rooms.place(replica):
            excess[source] -= size


def _give_rest(layout: Layout, window: FillWindow, limits: PlanLimits) -> None:
    """Bring directories that are still above the target range into it, with few moved bytes."""
    rooms = FreeSpaceIndex(
        layout, FreeSpaceIndex.ceilings(layout, min(window.high, limits.max_fill))
    )
    for directory in layout.staying():
        for _ in range(len(layout.held[directory])):
            above = excess_bytes(layout, directory, window.high)
            if above < 1 or not _give_one(layout, rooms, directory, above):
                break


def _give_one(layout: Layout, rooms: FreeSpaceIndex, directory: int, above: float) -> bool:
    """Move the largest replica that fits into the excess, else the smallest of the larger ones."""
    ordered = layout.largest_first([directory])
    enough = [replica for replica in ordered if layout.size[replica] >= above][::-1]
    less = [replica for replica in ordered if 0 < layout.size[replica] < above]
    tried = [*less[:_MAX_TRIED], *enough[:_MAX_TRIED]]
    return any(rooms.place(replica) for replica in tried)


def _fill_up(layout: Layout, window: FillWindow) -> None:
    """Bring directories that are still below the target range into it, with few moved bytes."""
    spread = window.high - window.low
    fullest = sorted(layout.staying(), key=lambda each: (-layout.fill(each), each))
    lowest = [number for number in fullest[::-1] if layout.receives[number]]
    highest = _HighestFill(layout, fullest)
    givers = _Givers(layout, fullest, window.low)
    for directory in lowest:
        for _ in range(len(layout.size)):
            low = highest.get() - spread
            if layout.fill(directory) >= low:
                break
            lacking = low * layout.capacity_bytes[directory] - layout.used[directory]
            if not _take_one(layout, directory, lacking, givers, window):
                break
            highest.add(directory)


class _HighestFill:
    """The highest fill of directories while replicas move between them.

    Args:
        directories: the fullest one first.
    """

    def __init__(self, layout: Layout, directories: Iterable[int]) -> None:
        self._layout = layout
        self._heap = [(-layout.fill(directory), directory) for directory in directories]

    def add(self, directory: int) -> None:
        """Note that a directory has received a replica; `get` sees what others have lost."""
        heapq.heappush(self._heap, (-self._layout.fill(directory), directory))

    def get(self) -> float:
        while True:
            noted, directory = self._heap[0]
            now = -self._layout.fill(directory)
            if noted == now:
                return -noted
            heapq.heapreplace(self._heap, (now, directory))


class _Givers:
    """The directories from which `_fill_up` takes replicas, in a fixed order.

    Attributes:
        positions: of the directories that stay above a fill without one of their replicas. All
            others need not be searched.
    """

    def __init__(self, layout: Layout, ordered: Sequence[int], low: float) -> None:
        self._layout = layout
        self._low = low
        self.ordered = ordered
        self._position = {directory: position for position, directory in enumerate(ordered)}
        self.positions = [
            position for position, directory in enumerate(ordered) if self._can_give(directory)
        ]

    def spare_bytes(self, directory: int) -> float:
        """Return the bytes that may leave a directory."""
        capacity = self._layout.capacity_bytes[directory]
        return self._layout.used[directory] - capacity * self._low

    def update(self, directory: int) -> None:
        """Note that a replica has entered or left a directory."""
        position = self._position[directory]
        at = bisect_left(self.positions, position)
        is_known = at < len(self.positions) and self.positions[at] == position
        can_give = self._can_give(directory)
        if is_known and not can_give:
            del self.positions[at]
        elif can_give and not is_known:
            self.positions.insert(at, position)

    def _can_give(self, directory: int) -> bool:
        size, spare = self._layout.size, self.spare_bytes(directory)
        return any(0 < size[replica] <= spare for replica in self._layout.held[directory])


_Candidate = tuple[bool, float, int]
"""Whether the replica has not moved yet, how much its size differs from the wanted one, and the
replica; the least is the best."""


def _take_one(
    layout: Layout, directory: int, lacking: float, givers: _Givers, window: FillWindow
) -> bool:
    """Move a replica of the right size into a directory, preferably one that moves anyway."""
    most = window.high * layout.capacity_bytes[directory] - layout.used[directory]

    def best_of(source: int, best: _Candidate | None) -> _Candidate | None:
        spare = min(givers.spare_bytes(source), most)
        for replica in layout.held[source]:
            size = layout.size[replica]
            if not 0 < size <= spare:
                continue
            key = (layout.origin[replica] == source, abs(size - lacking), replica)
            if (best is None or key < best) and layout.is_legal(replica, directory):
                best = key
        return best

    best, position = None, 0
    for position in givers.positions:
        best = best_of(givers.ordered[position], None)
        if best is not None:
            break
    if best is None:
        return False
    searched = 1
    for later in range(position + 1, len(givers.ordered)):
        if not best[0] or searched == _MAX_SEARCHED:
            break
        source = givers.ordered[later]
        if source != directory and givers.spare_bytes(source) > 0:
            best = best_of(source, best) or best
            searched += 1
    source = layout.place[best[2]]
    layout.move(best[2], directory)
    givers.update(source)
    givers.update(directory)
    return True


def _make_room(layout: Layout, rooms: FreeSpaceIndex, replica: int) -> bool:
    """Move other replicas out of a directory, so that this one fits; return whether it worked."""
    size = layout.size[replica]
    targets = [
        directory
        for directory in range(len(layout.receives))
        if layout.is_legal(replica, directory)
    ]
    for target in sorted(targets, key=lambda each: (-rooms.room(each), each)):
        moved = []
        for other in layout.largest_first([target])[:_MAX_TRIED]:
            if rooms.room(target) >= size:
                break
            elsewhere = rooms.most_free(other)
            if elsewhere is not None and elsewhere != target and layout.size[other] > 0:
                moved.append(other)
                rooms.move(other, elsewhere)
        if rooms.room(target) >= size:
            rooms.move(replica, target)
            return True
        for other in moved[::-1]:
            rooms.move(other, target)
    return False
