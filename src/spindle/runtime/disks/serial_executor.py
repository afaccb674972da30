"""The part of a `DirectoryExecutor` that is the same on threads and in the simulation.

Every `OSError` of a function is caught here and becomes `LogDirectoryFailed`. From then on nothing
touches the directory until the process restarts (KIP-112, KIP-858). A function that hangs on its
disk has the same effect. No other error says anything about the disk: malformed bytes
(`CorruptLog`) may come from a client, and concern one partition.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, cast

from spindle.common.errors import LogDirectoryFailed
from spindle.disks.executor import Callback, ThreadLoad, Unfinished
from spindle.disks.io_counts import DirectoryIo
from spindle.runtime.disks.watchdog import LOOK_S, Watchdog

log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Outcome: TypeAlias = tuple[Any, BaseException | None]
"""(result, None) of a function that returned, (None, error) of one that raised."""


Job: TypeAlias = tuple[
    Callable[..., object], tuple[object, ...], Callable[[Any, BaseException | None], None] | None
]
"""Function, arguments, and callback (None if no caller waits for the end).

The public methods of the executor tie the three types together; the queue holds all kinds.
"""


class LogGuard(ABC):
    """Keeps other code from the logs of a directory while a function runs."""

    @abstractmethod
    def enter(self) -> None:
        """Wait until no other code uses the logs; an error ends the function."""

    @abstractmethod
    def leave(self) -> None:
        """Let other code use the logs again."""

    @abstractmethod
    def end(self) -> None:
        """Have other code use the directory no more, because it has failed."""

    @abstractmethod
    def hangs(self) -> bool:
        """Return True while other code still works with the disk, after `end`."""


class _LastWork:
    """A function that runs although the directory has failed; its errors are ignored."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *args: object) -> None:
        with suppress(Exception):
            self._function(*args)


class SerialExecutor(ABC):
    """Runs functions in order, catches their errors, and watches for functions that hang.

    Args:
        on_failure: called once on the event loop when the directory goes offline.
        hang_limit_s: the time that a function may make no progress. Time in which the process
            itself was suspended does not count.
        io: counts the operations on the directory's files; None for a new one.
        wall_clock_ms: returns the time of a failure.

    Attributes:
        guard: is entered before each queued function and left after it; None for no guard.
    """

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[LogDirectoryFailed], None],
        hang_limit_s: float,
        io: DirectoryIo | None = None,
        wall_clock_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.path = path
        self.failure: LogDirectoryFailed | None = None
        self.guard: LogGuard | None = None
        self.io = io or DirectoryIo(path)
        self.watch = Watchdog(path, loop, hang_limit_s, self._on_hang)
        self._loop = loop
        self._on_failure = on_failure
        self._wall_clock_ms = wall_clock_ms
        self._notes: dict[Callable[..., object], tuple[object, ...]] = {}
        self._beside: dict[asyncio.Future[Any], None] = {}
        self._is_left_behind = False

    # -- what the implementations do

    @abstractmethod
    def _enqueue(self, job: Job) -> None:
        """Run the job after those before it, then its callback on the loop."""

    @abstractmethod
    def _start_beside(self, job: Job) -> None:
        """Run the job at once, beside the queue, then its callback on the loop."""

    @abstractmethod
    def _abandon(self, failure: LogDirectoryFailed) -> None:
        """Answer all callers that wait for a queued function, and run nothing more."""

    @abstractmethod
    def hangs(self) -> bool:
        """See `DirectoryExecutor`."""

    # -- the port

    def call(
        self,
        callback: Callback[T] | None,
        function: Callable[[*Ts], T | Unfinished],
        *args: *Ts,
    ) -> None:
        """See `DirectoryExecutor`."""
        if self._notes:
            self._enqueue_notes()
        self._enqueue((function, args, callback))

    def note(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """See `DirectoryExecutor`."""
        self._notes[function] = args

    def _enqueue_notes(self) -> None:
        notes, self._notes = self._notes, {}
        for function, args in notes.items():
            self._enqueue((function, args, None))

    def submit(self, function: Callable[[*Ts], T], *args: *Ts) -> Awaitable[T]:
        """See `DirectoryExecutor`."""
        future: asyncio.Future[T] = self._loop.create_future()
        self.call(_settle(future), function, *args)
        return future

    def submit_nowait(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """See `DirectoryExecutor`."""
        self.call(self._log_error, function, *args)

    def submit_beside(self, function: Callable[[*Ts], T], *args: *Ts) -> Awaitable[T]:
        """See `DirectoryExecutor`."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        self._beside[future] = None
        future.add_done_callback(lambda done: self._beside.pop(done, None))
        self._start_beside((function, args, _settle(future)))
        return future

    def load(self) -> ThreadLoad:
        """See `DirectoryExecutor`."""
        return ThreadLoad(0, 0, int(1000 * self.watch.longest_s))

    def run_after_failure(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """See `DirectoryExecutor`."""
        job: Job = (_LastWork(function), args, None)
        if self._is_left_behind:
            self._run_after_hang(job)
        else:
            self._enqueue(job)

    def _run_after_hang(self, job: Job) -> None:
        if self.hangs():
            self._loop.call_later(LOOK_S, self._run_after_hang, job)
        else:
            self._start_beside(job)

    def wait_at_most(self, hang_limit_s: float) -> None:
        """See `DirectoryExecutor`."""
        self.watch.limit(hang_limit_s)

    def fail(self, cause: BaseException | str) -> LogDirectoryFailed:
        """See `DirectoryExecutor`."""
        if self.failure is None:
            self.failure = LogDirectoryFailed(self.path, cause, self._wall_clock_ms())
            self._loop.call_soon_threadsafe(self._on_failure, self.failure)
        if self.guard is not None:
            self.guard.end()
        return self.failure

    # -- for the implementations

    def _log_error(self, _: object, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, LogDirectoryFailed):
            log.error("%s: background work failed", self.path, exc_info=error)

    def _has_hanging_guest(self) -> bool:
        """Return True while code that the guard keeps out still works with the disk."""
        return self.guard is not None and self.guard.hangs()

    def _perform_guarded(
        self, function: Callable[..., object], args: tuple[object, ...]
    ) -> Outcome:
        """Run a queued function while no other code uses the logs; there is a guard."""
        guard = self.guard
        assert guard is not None
        guard.enter()
        try:
            return self._perform(function, args)
        finally:
            guard.leave()

    def _perform(self, function: Callable[..., object], args: tuple[object, ...]) -> Outcome:
        """Run the function; catch its errors."""
        if self.failure is not None and not isinstance(function, _LastWork):
            return None, self.failure
        try:
            return function(*args), None
        except OSError as cause:
            return None, self.fail(cause)
        except Exception as cause:  # noqa: BLE001 - handed to the caller, who waits for it
            return None, cause

    def _on_hang(self, finding: str) -> None:
        """Take the directory offline, and abandon every thread that hangs on its disk."""
        failure = self.fail(finding)
        self._abandon(failure)
        for future in list(self._beside):
            if not future.done():
                future.set_exception(failure)


def _settle(future: "asyncio.Future[T]") -> Callback[T]:
    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(cast(T, result))  # None only if T allows it
        else:
            future.set_exception(error)

    return settle
