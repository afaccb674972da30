"""Messages that a client could cause again and again, and that must not fill the log."""

from collections.abc import Callable, Hashable
from typing import Final

_INTERVAL_MS: Final = 10 * 60 * 1000
_MAX_ENTRIES: Final = 1000


class LogThrottle:
    """Lets a message through once in 10 minutes per cause; remembers the last 1,000 causes.

    `steady_ms` is a monotonic clock in milliseconds.
    """

    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._told_ms: dict[Hashable, int] = {}

    def allow(self, cause: Hashable) -> bool:
        """Return True at most once per interval and cause."""
        now_ms = self._steady_ms()
        told_ms = self._told_ms.get(cause)
        if told_ms is not None and now_ms - told_ms < _INTERVAL_MS:
            return False
        self._told_ms.pop(cause, None)
        self._told_ms[cause] = now_ms
        if len(self._told_ms) > _MAX_ENTRIES:
            # The first entry is the oldest, because a cause that is logged again moves to the end.
            del self._told_ms[next(iter(self._told_ms))]
        return True
