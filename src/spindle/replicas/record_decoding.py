"""Decoding of client batches outside the event loop and the directories' threads.

A batch of a few kilobytes can decompress to `decoded_bytes_limit` and take a second of CPU time. A
broker decodes one such batch at a time, which bounds memory and CPU for all clients together.
Topics take turns: a request with such a batch for each of a thousand partitions does not block
producers of other topics for all of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, cast

from spindle.common.errors import ApiError, CorruptRecords
from spindle.disks.executor import Callback
from spindle.protocol.records.compression import in_turn

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_Job: TypeAlias = tuple[Callback[Any], Callable[..., Any], tuple[Any, ...]]


class RecordDecoding:
    """Runs decoding functions on one thread, one at a time; those of a topic in order."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Job]] = {}
        self._is_busy = False

    def call(
        self, topic: str, callback: Callback[T], function: Callable[[*Ts], T], *args: *Ts
    ) -> None:
        """Run `function(*args)` when its topic's turn comes, then `callback` on the event loop.

        The function must not use the event loop or files.
        """
        self._waiting.setdefault(topic, deque()).append((callback, function, args))
        self._begin_next()

    async def run(self, topic: str, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return the result of `function(*args)`; see `call`."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.call(topic, partial(_settle, future), function, *args)
        try:
            return await future
        finally:
            del future  # with an error, it and this frame keep each other in memory

    def _begin_next(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        topic = next(iter(self._waiting))
        jobs = self._waiting.pop(topic)
        callback, function, args = jobs.popleft()
        if jobs:
            self._waiting[topic] = jobs  # behind the other topics
        running = asyncio.get_running_loop().run_in_executor(None, in_turn, function, *args)
        running.add_done_callback(partial(self._end, callback))

    def _end(self, callback: Callback[Any], done: "asyncio.Future[Any]") -> None:
        self._is_busy = False
        if done.cancelled():  # the event loop ends
            return
        self._begin_next()
        error = done.exception()
        if isinstance(error, ApiError | CorruptRecords):
            _drop_frames(error)
        callback(None if error is not None else done.result(), error)


def _settle(future: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(cast(T, result))  # None only if T allows it
    else:
        future.set_exception(error)


def _drop_frames(error: BaseException) -> None:
    """Drop the traceback of an expected error, whose frames keep the records in memory.

    A coroutine that awaits the error forms a cycle with it, which may live long before it is
    collected.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
