"""Start and end the background tasks of a node.

An exception that a task does not expect is a bug. It goes to the event loop's exception handler,
which logs it, and a repeated task continues.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

logger = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
"""Pause of a repeated task after an unexpected exception."""


def run_once(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    """Start a task; log the exception if it ends with one."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_report)
    return task


def run_forever(
    turn: Callable[[], Awaitable[None]],
    name: str,
    *,
    on_failure: Callable[[], None] | None = None,
    pause_s: float = PAUSE_S,
    delay_s: float = 0.0,
) -> "asyncio.Task[None]":
    """Start a task that calls `turn` repeatedly until it is cancelled.

    Args:
        turn: waits for something in each call, so that other tasks run in between.
        delay_s: pause before the first call.
        on_failure: restores a valid state after an unexpected exception.
        pause_s: pause after an unexpected exception.
    """
    return run_once(_repeat(turn, name, on_failure, pause_s, delay_s), name)


async def end(*tasks: "asyncio.Task[Any] | None") -> None:
    """Cancel tasks and return when they have ended."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


def log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception that is not handled: the exception handler of a node's event loop."""
    error = context.get("exception")
    logger.error("%s", context["message"], exc_info=error)


async def _repeat(
    turn: Callable[[], Awaitable[None]],
    name: str,
    on_failure: Callable[[], None] | None,
    pause_s: float,
    delay_s: float,
) -> None:
    if delay_s:
        await asyncio.sleep(delay_s)
    while True:
        try:
            await turn()
        except Exception as error:  # noqa: BLE001 - reported, and the next turn may succeed
            log_failure(name, error)
            if on_failure is not None:
                on_failure()
            await asyncio.sleep(pause_s)


def _report(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        error = task.exception()
        if error is not None:
            log_failure(task.get_name(), error)


def log_failure(name: str, error: BaseException) -> None:
    """Pass an unexpected exception to the event loop's exception handler."""
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": f"{name}: unexpected failure", "exception": error})
