"""The memory of connections that have not logged in, for all listeners of a node that need a login.

A frame before the login is small, but anyone may begin one on each of very many connections.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from spindle.common.log_throttle import LogThrottle

if TYPE_CHECKING:
    from spindle.runtime.network.connection import Connection

log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024
_MAX_BYTES: Final = 64 * _MIB


class UnauthenticatedConnections:
    """Connections that have begun a frame and have not logged in. Belongs to one event loop.

    Args:
        most_bytes: of all these connections. Beyond it, close the connection with the oldest
            unfinished frame: a real login takes a fraction of a second.
        steady_ms: a monotonic clock in milliseconds.

    Attributes:
        held_bytes: the memory for what has come of their frames.
    """

    def __init__(
        self,
        most_bytes: int = _MAX_BYTES,
        steady_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self.held_bytes = 0
        self._most_bytes = most_bytes
        self._log_entries = LogThrottle(steady_ms)
        self._held: dict[Connection, int] = {}

    def note(self, connection: "Connection", size_bytes: int) -> None:
        """Note the memory that a connection uses now; 0 if it has no part of a frame."""
        before = self._held.get(connection, 0)
        if size_bytes == before:
            return
        if size_bytes:
            self._held[connection] = size_bytes
        else:
            del self._held[connection]
        self.held_bytes += size_bytes - before
        while self.held_bytes > self._most_bytes:
            self._close_oldest()

    def forget(self, connection: "Connection") -> None:
        """Stop counting a connection that has logged in or has ended."""
        self.held_bytes -= self._held.pop(connection, 0)

    def _close_oldest(self) -> None:
        oldest = next(iter(self._held))
        self.forget(oldest)
        oldest.abort(must_drop=True)
        if self._log_entries.allow("full"):
            log.warning(
                "closing connections that have not logged in, the oldest first: their unfinished "
                "requests take more than %d MiB; this one is of %s on listener %s",
                self._most_bytes // _MIB,
                oldest.client_address,
                oldest.listener,
            )
