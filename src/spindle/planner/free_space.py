"""The directories that may receive replicas, ordered by free space."""

import heapq
from collections.abc import Mapping

from spindle.planner.layout import Layout


class FreeSpaceIndex:
    """Finds the directory with the most free space for a replica.

    There is a heap for each rack and a heap of racks, so that few entries are skipped for a replica
    that may not enter some racks or brokers. Stale heap entries are discarded when popped.

    Args:
        ceilings: the maximum used bytes of each directory; directories without an entry receive
        nothing.
    """

    def __init__(self, layout: Layout, ceilings: Mapping[int, int]) -> None:
        self._layout = layout
        self._ceilings = ceilings
        self._by_rack: dict[int, list[tuple[int, int]]] = {}
        for directory in ceilings:
            entry = (-self.room(directory), directory)
            self._by_rack.setdefault(layout.rack[directory], []).append(entry)
        for heap in self._by_rack.values():
            heapq.heapify(heap)
        self._racks = [(heap[0][0], rack) for rack, heap in self._by_rack.items()]
        heapq.heapify(self._racks)

    @staticmethod
    def ceilings(layout: Layout, fill: float) -> dict[int, int]:
        """Return this share of the capacity of each receiving directory, in bytes."""
        return {
            number: int(fill * capacity_bytes)
            for number, capacity_bytes in enumerate(layout.capacity_bytes)
            if layout.receives[number]
        }

    def room(self, directory: int) -> int:
        """Return the bytes that a directory can still receive; negative above its ceiling."""
        return self._ceilings[directory] - self._layout.used[directory]

    def most_free(self, replica: int) -> int | None:
        """Return the directory with the most room that the replica may enter, or None."""
        size = self._layout.size[replica]
        passed: dict[int, int] = {}
        directory = None
        while self._racks and directory is None:
            room, rack = heapq.heappop(self._racks)
            if rack in passed or room != self._top(rack):
                continue
            passed[rack] = room
            if -room < size:
                break
            if self._layout.may_enter_rack(replica, rack):
                directory = self._best_in(rack, replica, size)
        for rack, room in passed.items():
            heapq.heappush(self._racks, (room, rack))
        return directory

    def place(self, replica: int) -> bool:
        """Move a replica to the directory with the most free space; return False if none fits."""
        target = self.most_free(replica)
        if target is None:
            return False
        self.move(replica, target)
        return True

    def move(self, replica: int, target: int) -> None:
        """Move a replica to a directory."""
        source = self._layout.place[replica]
        self._layout.move(replica, target)
        self._update(source)
        self._update(target)

    def _update(self, directory: int) -> None:
        """Push the directory's new free space."""
        if directory not in self._ceilings:
            return
        rack = self._layout.rack[directory]
        heapq.heappush(self._by_rack[rack], (-self.room(directory), directory))
        heapq.heappush(self._racks, (self._top(rack), rack))

    def _top(self, rack: int) -> int:
        heap = self._by_rack[rack]
        while -self.room(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0]

    def _best_in(self, rack: int, replica: int, size: int) -> int | None:
        heap = self._by_rack[rack]
        passed: dict[int, int] = {}
        best = None
        while heap and best is None:
            room, directory = heapq.heappop(heap)
            if directory in passed or -self.room(directory) != room:
                continue
            passed[directory] = room
            if -room < size:
                break
            if self._layout.is_legal(replica, directory):
                best = directory
        for directory, room in passed.items():
            heapq.heappush(heap, (room, directory))
        return best
