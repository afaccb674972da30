"""Finds disks that hang: they neither do their work nor report an error.

A thread that is in the middle of a function and has used no CPU time since the last look waits for
its disk. The watch counts looks instead of reading a clock, because this process may itself have
been stopped in between.
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
        function: what the thread runs now; None while it has nothing to do. The thread sets it.
        progress: returns a number that changes whenever the thread gets on.
        stood_s: for how long the thread has stood still, in seconds.
    """

    __slots__ = ("_seen", "function", "progress", "stood_s")

    def __init__(
        self, progress: Callable[[], float], function: Callable[..., object] | None = None
    ) -> None:
        self.function = function
        self.progress = progress
        self.stood_s = 0.0
        self._seen: float | None = None

    def look(self) -> float:
        """Return for how long, in seconds, the thread had stood still before it got on just now.

        0 while it stands still; `stood_s` then says for how long.
        """
        progress = self.progress()
        if self.function is None or progress != self._seen:
            stood_s, self.stood_s = self.stood_s, 0.0
            self._seen = progress
            return stood_s
        self.stood_s += LOOK_S
        return 0.0


class HangWatch:
    """Looks once a second at the threads that work on one log directory.

    Args:
        on_hang: called once, with a text, when a thread has stood still for `limit_s`.
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
        """Watch the thread no longer."""
        if thread in self._threads:
            self._threads.remove(thread)

    def start(self) -> None:
        """Look once a second until `stop`."""
        self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def limit(self, limit_s: float) -> None:
        """Lower the time that a thread may stand still."""
        self._limit_s = min(self._limit_s, limit_s)

    def _look_again(self) -> None:
        self.start()
        self.look()

    def look(self) -> None:
        """Look at every thread: report one that hangs, give up after the limit."""
        for thread in list(self._threads):
            stood_before_s = thread.look()
            if stood_before_s >= _REPORTED_AFTER_S:
                log.warning("log directory %s goes on after %.0f s", self._path, stood_before_s)
            if thread.stood_s == _REPORTED_AFTER_S:
                log.error(
                    "log directory %s hangs: its disk has not answered for %.0f s (%s)",
                    self._path,
                    thread.stood_s,
                    getattr(thread.function, "__qualname__", thread.function),
                )
            if thread.stood_s >= self._limit_s:
                self.stop()
                self._threads.clear()
                self._on_hang(f"the disk has not answered for {thread.stood_s:.0f} s")
                return
