"""A promise of the result of a coroutine."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from spindle.common.promise import Promise

T = TypeVar("T")


def promise_of(work: Awaitable[T]) -> Promise[T]:
    """Start the coroutine and return a promise of its result; cancelling the promise cancels it.

    If the work itself is cancelled, the promise fails with `CancelledError`.
    """
    task = asyncio.ensure_future(work)
    promise: Promise[T] = Promise(task.get_loop())
    promise.on_cancel = task.cancel

    def ended(task: "asyncio.Future[T]") -> None:
        if task.cancelled():
            promise.settle(None, asyncio.CancelledError())
            return
        error = task.exception()
        if error is None:
            promise.settle(task.result())
        else:
            promise.settle(None, error)

    task.add_done_callback(ended)
    return promise
