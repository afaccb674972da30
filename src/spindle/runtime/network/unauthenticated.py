"""The memory of connections that have not logged in, for all listeners of a node that need a login.

A frame before the login is small, but anyone may begin one on each of many connections.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from spindle.common.log_throttle import LogThrottle

log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024
_MAX_BYTES: Final = 64 * _MIB


class UnauthenticatedConnections:
    """Connections that have begun a frame and have not logged in. Belongs to one event loop.

    Args:
        max_bytes: limit of all these connections. Above it, close the connection with the oldest
            unfinished frame: a real login takes a fraction of a second.
        steady_ms: a monotonic clock in milliseconds.

    Attributes:
        held_bytes: the memory of the received parts of their frames.
    """

    def __init__(
        self,
        max_bytes: int = _MAX_BYTES,
        steady_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self.held_bytes = 0
        self._max_bytes = max_bytes
        self._log_entries = LogThrottle(steady_ms)
        self._held: dict[Callable[[], str], int] = {}

    def note(self, end: Callable[[], str], size_bytes: int) -> None:
        """Record the memory that a connection uses now; 0 if it has no part of a frame.

        Args:
            end: identifies the connection; closes it at once, frees its memory, and returns the
                client's address and the listener for the log.
        """
        before = self._held.get(end, 0)
        if size_bytes == before:
            return
        if size_bytes:
            self._held[end] = size_bytes
        else:
            del self._held[end]
        self.held_bytes += size_bytes - before
        while self.held_bytes > self._max_bytes:
            self._close_oldest()

    def forget(self, end: Callable[[], str]) -> None:
        """Stop counting a connection that has logged in or has ended."""
        self.held_bytes -= self._held.pop(end, 0)

    def _close_oldest(self) -> None:
        end = next(iter(self._held))
        self.forget(end)
        client = end()
        if self._log_entries.allow("full"):
            log.warning(
                "closing connections that have not logged in, the oldest first: their unfinished "
                "requests use more than %d MiB; this one is of %s",
                self._max_bytes // _MIB,
                client,
            )
