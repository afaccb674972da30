"""The unsent bytes of responses, by connection."""

from collections.abc import Callable
from typing import Final, Protocol

_RECOUNT_S: Final = 0.1
_MAX_S: Final = 10.0
"""When memory is short, disconnect clients that have read nothing for this long."""


class Sender(Protocol):
    """The responses of one connection."""

    def count(self) -> bool:
        """Count the bytes again; return True if the count has changed."""
        ...

    def end(self) -> None:
        """End the connection, because its client reads nothing while others wait for memory."""
        ...


class SendBacklog:
    """Counts the unsent bytes. See `serving.fetch.fetch_memory.UnsentMemory`.

    Args:
        clock_s: the time of the event loop.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.total_bytes = 0
        self.on_decrease: Callable[[], None] = lambda: None
        self._clock_s = clock_s
        self._bytes: dict[Sender, int] = {}
        self._since_s: dict[Sender, float] = {}
        self._counted_s = 0.0

    def note(self, sender: Sender, count: int) -> None:
        """Record the unsent bytes of a connection."""
        before = self._bytes.get(sender, 0)
        if count == before:
            return
        if count:
            self._bytes[sender] = count
            self._since_s[sender] = self._clock_s()
        else:
            del self._bytes[sender], self._since_s[sender]
        self.total_bytes += count - before
        if count < before:
            self.on_decrease()

    def make_room(self) -> None:
        """Count again, and end connections whose clients have read nothing for long."""
        now_s = self._clock_s()
        if now_s - self._counted_s < _RECOUNT_S:
            return
        self._counted_s = now_s
        for sender in list(self._bytes):
            if sender.count() and sender in self._since_s:
                self._since_s[sender] = now_s
        for sender, since_s in list(self._since_s.items()):
            if now_s - since_s >= _MAX_S:
                sender.end()
