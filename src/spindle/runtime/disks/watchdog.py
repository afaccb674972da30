"""Finds disks that hang: they neither complete an operation nor report an error.

A thread that is inside a function, and has used no CPU time since the last check, waits for its
disk. The watchdog counts checks instead of reading a clock, because the process itself may have
been suspended.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
_REPORTED_AFTER_S: Final = 10.0


class WatchedThread:
    """A thread that works on a disk.

    Attributes:
        function: the function that the thread runs now, or None. The thread sets it.
        progress: returns a number that changes whenever the thread makes progress.
        hang_s: the time without progress, in seconds.
    """

    __slots__ = ("_seen", "function", "hang_s", "progress")

    def __init__(
        self, progress: Callable[[], float], function: Callable[..., object] | None = None
    ) -> None:
        self.function = function
        self.progress = progress
        self.hang_s = 0.0
        self._seen: float | None = None

    def look(self) -> float:
        """If the thread has just recovered, return how long it had made no progress, in seconds.

        While it makes no progress, return 0; `hang_s` is then the time.
        """
        progress = self.progress()
        if self.function is None or progress != self._seen:
            hang_s, self.hang_s = self.hang_s, 0.0
            self._seen = progress
            return hang_s
        self.hang_s += LOOK_S
        return 0.0


class Watchdog:
    """Checks the threads that work on one log directory, once a second.

    Args:
        on_hang: called once, with a text, when a thread has made no progress for `limit_s`.
    """

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        limit_s: float,
        on_hang: Callable[[str], None],
    ) -> None:
        self._path = path
        self._loop = loop
        self._limit_s = limit_s
        self._on_hang = on_hang
        self._threads: list[WatchedThread] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, thread: WatchedThread) -> None:
        """Watch the thread until `remove`."""
        self._threads.append(thread)

    def remove(self, thread: WatchedThread) -> None:
        """Stop watching the thread."""
        if thread in self._threads:
            self._threads.remove(thread)

    def start(self) -> None:
        """Check once a second until `stop`."""
        self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def longest_s(self) -> float:
        """The longest time for which a thread has made no progress, in seconds."""
        return max((thread.hang_s for thread in self._threads), default=0.0)

    def limit(self, limit_s: float) -> None:
        """Lower the time that a thread may make no progress."""
        self._limit_s = min(self._limit_s, limit_s)

    def _look_again(self) -> None:
        self.start()
        self.look()

    def look(self) -> None:
        """Check every thread: report one that hangs; after the limit, call `on_hang`."""
        for thread in list(self._threads):
            hung_s = thread.look()
            if hung_s >= _REPORTED_AFTER_S:
                log.warning("log directory %s responds again after %.0f s", self._path, hung_s)
            if thread.hang_s == _REPORTED_AFTER_S:
                log.error(
                    "log directory %s hangs: its disk has not responded for %.0f s (%s)",
                    self._path,
                    thread.hang_s,
                    getattr(thread.function, "__qualname__", thread.function),
                )
            if thread.hang_s >= self._limit_s:
                self.stop()
                self._threads.clear()
                self._on_hang(f"the disk has not answered for {thread.hang_s:.0f} s")
                return
