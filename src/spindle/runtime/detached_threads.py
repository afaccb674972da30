"""Detached threads for blocking work; not joined at exit.

The event loop's executor has few threads, which all callers share and which are joined at exit.
Work that may hang on a file system or a server must not use them.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar, TypeVarTuple

from spindle.common.errors import ConfigError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LIMIT_S: Final = 10.0


async def on_own_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run the function on its own thread, without a time limit; return its result."""
    return await asyncio.wrap_future(_begin(function, *args))


class StoreReads:
    """Reads of stores with a time limit. Not thread-safe.

    Args:
        what: names the stores in errors.
        max_late: maximum number of overdue reads before new ones are refused. The thread of an
            overdue read remains until the read ends.
    """

    def __init__(self, what: str, *, max_late: int = 1) -> None:
        self._what = what
        self._max_late = max_late
        self._late: list[Future[object]] = []

    async def read(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return the function's result.

        Raises:
            ConfigError: the limit has passed, or earlier reads still hang.
        """
        future = self._begin(function, *args)
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise self._too_late(future) from None

    def read_blocking(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return the function's result, as `read` does, but block the thread."""
        future = self._begin(function, *args)
        try:
            return future.result(_LIMIT_S)
        except TimeoutError:
            raise self._too_late(future) from None

    def _begin(self, function: Callable[[*Ts], T], *args: *Ts) -> "Future[T]":
        self._late = [future for future in self._late if not future.done()]
        if len(self._late) >= self._max_late:
            raise ConfigError(f"{self._what}: an earlier read still hangs; check the file system")
        return _begin(function, *args)

    def _too_late(self, future: "Future[T]") -> ConfigError:
        self._late.append(future)  # type: ignore[arg-type]
        return ConfigError(
            f"{self._what}: not read after {_LIMIT_S:g} s; check that the file system answers"
        )


def _begin(function: Callable[[*Ts], T], *args: *Ts) -> "Future[T]":
    future: Future[T] = Future()
    # From here on it cannot be cancelled, so the thread can always set the outcome.
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=f"own {function.__name__}", daemon=True).start()
    return future
