"""Running TLS handshakes: limited in time and number, one step per iteration of the event loop.

A handshake takes a millisecond or more of the event loop. If many clients connect at once, the loop
serves all other connections between two steps.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

_LIMIT_S: Final = 30.0
_MAX_ENTRIES: Final = 1000


class PeerRefused(Exception):
    """The node refuses the peer, although TLS accepts it."""


class Handshake(Protocol):
    """A connection in its handshake."""

    def step(self) -> None:
        """Run the next step of the handshake."""
        ...

    def fail(self, error: Exception) -> None:
        """End the connection."""
        ...


class Handshakes:
    """The handshakes of one event loop, the oldest first.

    Args:
        limit_s: a longer handshake ends with a TimeoutError.
        most: if there are more, the oldest one ends with a TimeoutError: a real handshake takes a
            fraction of a second.
    """

    def __init__(self, limit_s: float = _LIMIT_S, most: int = _MAX_ENTRIES) -> None:
        self._limit_s = limit_s
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[Handshake, float] = {}
        self._waiting: deque[Handshake] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, handshake: Handshake) -> None:
        """Count a handshake, and limit its time."""
        self._under_way[handshake] = self._loop.time() + self._limit_s
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s, self._end_old)
        if len(self._under_way) > self._most:
            next(iter(self._under_way)).fail(
                TimeoutError(f"more than {self._most} handshakes are running")
            )

    def ask_turn(self, handshake: Handshake) -> None:
        """Queue the next step of the handshake."""
        self._waiting.append(handshake)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._next)

    def end(self, handshake: Handshake) -> None:
        """Stop counting a handshake; it may have ended before."""
        self._under_way.pop(handshake, None)

    def _next(self) -> None:
        # It stays in the queue until it is done, so that no other is scheduled meanwhile.
        try:
            self._waiting[0].step()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._loop.call_soon(self._next)

    def _end_old(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        for handshake, deadline_s in list(self._under_way.items()):
            if deadline_s > now_s:
                self._timer = self._loop.call_at(deadline_s, self._end_old)
                return
            handshake.fail(TimeoutError(f"it was not complete after {self._limit_s:g} s"))
