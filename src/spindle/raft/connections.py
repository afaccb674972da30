"""Which peers have an open request, and which are not asked for a moment after a failure.

A peer gets one request at a time, so that responses cannot overtake each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from spindle.protocol.message import Message
from spindle.raft.ready import Destination


@dataclass(slots=True)
class InFlight:
    """A request without an answer yet."""

    request_id: int
    destination: Destination
    message: Message
    epoch: int
    deadline_ms: int


class Connections:
    """The state of the connections to all peers, by destination id."""

    __slots__ = ("_backoff_until_ms", "_in_flight", "_next_id", "_request_timeout_ms", "_retry_ms")

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_ms = retry_backoff_ms
        self._in_flight: dict[int, InFlight] = {}
        self._backoff_until_ms: dict[int, int] = {}
        self._next_id = 0

    def is_ready(self, destination_id: int, now_ms: int) -> bool:
        """Return whether a request may be sent there now."""
        in_flight = self._in_flight.get(destination_id)
        if in_flight is not None:
            if now_ms < in_flight.deadline_ms:
                return False
            self._fail(in_flight, now_ms)
        return now_ms >= self._backoff_until_ms.get(destination_id, 0)

    def is_failing(self, destination_id: int, now_ms: int) -> bool:
        """Return whether the last request there failed a moment ago."""
        self.is_ready(destination_id, now_ms)
        return now_ms < self._backoff_until_ms.get(destination_id, 0)

    def has_any_in_flight(self, destinations: Sequence[Destination]) -> bool:
        return any(destination.id in self._in_flight for destination in destinations)

    def next_time_ms(self, destination_id: int) -> int:
        """Return when `is_ready` may become True without a response."""
        in_flight = self._in_flight.get(destination_id)
        if in_flight is not None:
            return in_flight.deadline_ms
        return self._backoff_until_ms.get(destination_id, 0)

    def sent(self, destination: Destination, message: Message, epoch: int, now_ms: int) -> int:
        """Record a sent request and return its id."""
        self._next_id += 1
        self._in_flight[destination.id] = InFlight(
            self._next_id, destination, message, epoch, now_ms + self._request_timeout_ms
        )
        return self._next_id

    def answered(self, request_id: int) -> InFlight | None:
        """Return the request of a response; None if the request was cancelled before."""
        for destination_id, in_flight in self._in_flight.items():
            if in_flight.request_id == request_id:
                del self._in_flight[destination_id]
                return in_flight
        return None

    def back_off(self, destination_id: int, now_ms: int, wait_ms: int | None = None) -> None:
        """Pause requests to a peer for `wait_ms` (default: retry.backoff.ms)."""
        self._backoff_until_ms[destination_id] = now_ms + (
            self._retry_ms if wait_ms is None else wait_ms
        )

    def reset(self) -> None:
        """Forget all requests and failures: a new role or epoch begins."""
        self._in_flight.clear()
        self._backoff_until_ms.clear()

    def _fail(self, in_flight: InFlight, now_ms: int) -> None:
        del self._in_flight[in_flight.destination.id]
        self.back_off(in_flight.destination.id, now_ms)
