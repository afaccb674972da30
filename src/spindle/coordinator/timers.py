"""Deadlines of one shard by key. Setting a key again replaces its deadline, as heartbeats do.

The queue is a heap that may hold stale entries: to move a deadline later costs one dict store, and
the entry is queued again with its new time when it comes to the top.
"""

from heapq import heappop, heappush
from typing import Generic

from spindle.coordinator.coordinator_result import TimerChange, TimerKeyT


class TimerQueue(Generic[TimerKeyT]):
    """Deadlines in ms; all times must come from the same clock."""

    __slots__ = ("_deadlines", "_heap", "_order", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKeyT, int] = {}
        self._queued: dict[TimerKeyT, int] = {}
        self._heap: list[tuple[int, int, TimerKeyT]] = []
        self._order = 0

    def apply(self, change: TimerChange[TimerKeyT]) -> None:
        """Set, move or cancel a timer."""
        key, at_ms = change
        if at_ms is None:
            self._deadlines.pop(key, None)
            return
        self._deadlines[key] = at_ms
        queued_ms = self._queued.get(key)
        if queued_ms is None or at_ms < queued_ms:
            self._push(key, at_ms)

    def next_ms(self) -> int | None:
        """Return the earliest time at which a timer may be due, or None if no timer is set.

        The time may belong to a stale entry.
        """
        if not self._deadlines:
            self._heap.clear()
            self._queued.clear()
            return None
        return self._heap[0][0]

    def pop_due(self, now_ms: int) -> TimerKeyT | None:
        """Remove and return the timer that has been due for longest, or None."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, key = heappop(self._heap)
            if self._queued.get(key) != at_ms:
                continue
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
                continue
            del self._deadlines[key]
            return key
        return None

    def __contains__(self, key: TimerKeyT) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def _push(self, key: TimerKeyT, at_ms: int) -> None:
        self._queued[key] = at_ms
        self._order += 1
        heappush(self._heap, (at_ms, self._order, key))
