"""Requests with very many elements are decoded and encoded on a thread, a few at a time.

On the event loop, a request with a million elements would delay all clients for seconds. A thread
shares the interpreter with the loop. The bytes of the requests that are decoded at the same time
are limited, because their objects are many times larger; the other requests wait.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from spindle.protocol.api import ApiKey

INLINE_ELEMENTS: Final = 4_000
"""A request with at most this many elements is decoded on the event loop."""
_MAX_ELEMENTS: Final = 100_000
_PACED_ELEMENTS: Final = 1_000_000
_FEW_ELEMENTS: Final = 30_000
_COSTLY: Final = frozenset(
    (
        ApiKey.OFFSET_COMMIT,  # a request with fewer elements already exceeds one batch of records
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    )
)
_PACED: Final = frozenset(
    (
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
    )
)
"""APIs whose handlers pause for other work of the event loop."""
_TOGETHER_BYTES: Final = 8 * 1024 * 1024

T = TypeVar("T")


def max_elements(api_key: int) -> int:
    """Return the maximum number of elements of a request; lower if its handler does not pause."""
    # Only brokers send AlterPartition, with the ISRs of all their partitions.
    if api_key in _PACED or api_key == ApiKey.ALTER_PARTITION:
        return _PACED_ELEMENTS
    return _FEW_ELEMENTS if api_key in _COSTLY else _MAX_ELEMENTS


class LargeRequests:
    """The thread and the queue in front of it. Belongs to one event loop."""

    def __init__(self, together_bytes: int = _TOGETHER_BYTES) -> None:
        self._loop = asyncio.get_running_loop()
        self._together_bytes = together_bytes
        self._used_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._thread: ThreadPoolExecutor | None = None

    @asynccontextmanager
    async def turn(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait, in order of arrival, until a request of this size may be decoded.

        A request above the limit is handled alone.
        """
        if self._waiting or not self._has_room(size_bytes):
            promise: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((size_bytes, promise))
            try:
                await promise
            except asyncio.CancelledError:
                if promise.done() and not promise.cancelled():
                    self._give_back(size_bytes)
                raise
        else:
            self._used_bytes += size_bytes
        try:
            yield
        finally:
            self._give_back(size_bytes)

    async def on_thread(self, function: Callable[[], T]) -> T:
        """Run a function that does not use the event loop, and return its result."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "large requests")
        return await self._loop.run_in_executor(self._thread, function)

    def close(self) -> None:
        """Wait for the function that the thread is running."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _has_room(self, size_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= self._together_bytes

    def _give_back(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes
        while self._waiting:
            next_bytes, promise = self._waiting[0]
            if not promise.done():
                if not self._has_room(next_bytes):
                    return
                self._used_bytes += next_bytes
                promise.set_result(None)
            self._waiting.popleft()
