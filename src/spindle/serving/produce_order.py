"""The order of the Produce requests of a transactional producer."""

from collections import deque
from collections.abc import Callable


class ProduceOrder:
    """Starts the Produce requests of a transactional id one after another.

    A client has several requests in flight. A request that waits for its verification blocks the
    next one, so that the producer's records stay in order.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[Callable[[], None]]] = {}
        self._begun: set[str] = set()
        self._looping: set[str] = set()

    def take(self, transactional_id: str, begin: Callable[[], None]) -> None:
        """Call `begin` when all earlier requests have called `leave`."""
        self._queues.setdefault(transactional_id, deque()).append(begin)
        self._go_on(transactional_id)

    def leave(self, transactional_id: str) -> None:
        """End this request's turn, and start the next request."""
        self._begun.discard(transactional_id)
        self._go_on(transactional_id)

    def _go_on(self, transactional_id: str) -> None:
        if transactional_id in self._looping:
            return  # called by a turn that has ended at once
        queue = self._queues[transactional_id]
        self._looping.add(transactional_id)
        try:
            while queue and transactional_id not in self._begun:
                self._begun.add(transactional_id)
                queue.popleft()()
        finally:
            self._looping.discard(transactional_id)
        if not queue and transactional_id not in self._begun:
            del self._queues[transactional_id]
