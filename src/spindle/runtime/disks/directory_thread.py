"""One I/O thread per log directory: the only door to that directory's files.

Order within a directory comes for free, and a slow, full or dead disk stalls only itself. Every
`OSError` (and `CorruptLog`) is caught here and becomes `LogDirectoryFailed`; from then on nothing
touches the directory until the process restarts (KIP-112, KIP-858).

A disk can also hang: it neither does its work nor says that it cannot. A thread that is in the
middle of a job and has used no CPU time since the last look waits for its disk; if that lasts, the
directory counts as failed, too, and its thread is left behind.
"""

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar, TypeVarTuple

from spindle.common.errors import CorruptLog, LogDirectoryFailed

log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Callback = Callable[[Any, BaseException | None], None]
"""Called on the event loop with (result, None) or (None, error)."""

Job = tuple[Callable[..., Any], tuple[Any, ...], Callback | None]
_NumberedJob = tuple[int, Callable[..., Any], tuple[Any, ...]]
"""0 if nobody waits for its end; what it does."""
_LOOK_S: Final = 1.0
_HANG_IS_TOLD_S: Final = 10.0


class SerialExecutor(ABC):
    """What is the same wherever the functions run: their order, and what a failure means."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[LogDirectoryFailed], None],
    ) -> None:
        self.path = path
        self.failure: LogDirectoryFailed | None = None
        self._loop = loop
        self._on_failure = on_failure
        self._notes: dict[Callable[..., Any], tuple[Any, ...]] = {}

    @abstractmethod
    def _enqueue(self, job: Job) -> None:
        """Run the job after those before it, then its callback on the loop."""

    def call(self, callback: Callback | None, function: Callable[..., Any], *args: Any) -> None:
        """Run `function(*args)` after what was submitted before, then `callback` on the loop."""
        if self._notes:
            self._enqueue_notes()
        self._enqueue((function, args, callback))

    def note(self, function: Callable[..., Any], *args: Any) -> None:
        """Run `function(*args)` before whatever is submitted next; the thread is not woken for it.

        It is for what only later work there needs to know. The last note of a function counts.
        """
        self._notes[function] = args

    def _enqueue_notes(self) -> None:
        notes, self._notes = self._notes, {}
        for function, args in notes.items():
            self._enqueue((function, args, None))

    def submit(self, function: Callable[[*Ts], T], *args: *Ts) -> Awaitable[T]:
        """The result of `function(*args)` run there, to be awaited on the event loop."""
        future: asyncio.Future[T] = self._loop.create_future()

        def settle(result: T, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call(settle, function, *args)
        return future

    def submit_nowait(self, function: Callable[..., Any], *args: Any) -> None:
        """Run without waiting; an unexpected error is logged."""
        self.call(self._log_error, function, *args)

    def _log_error(self, _: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, LogDirectoryFailed):
            log.error("%s: background work failed", self.path, exc_info=error)

    def fail(self, cause: BaseException | str) -> LogDirectoryFailed:
        """Take the directory offline. May be called from any thread; the first cause stays."""
        if self.failure is None:
            self.failure = LogDirectoryFailed(self.path, cause)
            self._loop.call_soon_threadsafe(self._on_failure, self.failure)
        return self.failure

    def _perform(
        self, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, BaseException | None]:
        if self.failure is not None:
            return None, self.failure
        try:
            return function(*args), None
        except (OSError, CorruptLog) as cause:
            return None, self.fail(cause)
        except Exception as cause:  # noqa: BLE001 - handed to whoever waits for it
            return None, cause


class DirectoryThread(SerialExecutor):
    """Runs functions on the thread of one log directory, in the order of submission.

    Args:
        hang_limit_s: the longest that a job may stand still; then the directory has failed. Time in
            which the process itself stood still counts for nobody.
    """

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[LogDirectoryFailed], None],
        hang_limit_s: float = float("inf"),
    ) -> None:
        super().__init__(path, loop, on_failure)
        self._hang_limit_s = hang_limit_s
        self._jobs: SimpleQueue[_NumberedJob | None] = SimpleQueue()
        self._callbacks: dict[int, Callback] = {}
        """Of all jobs that are not done. The event loop's own, so that it can give them up."""
        self._last_number = 0
        self._done: deque[tuple[int, Any, BaseException | None]] = deque()
        self._is_drain_due = False
        self._is_left_behind = False
        self._in_work: Callable[..., Any] | None = None
        self._seen_cpu_s = -1.0
        self._stood_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"io {path}", daemon=True)
        self._thread.start()
        self._look_timer = loop.call_later(_LOOK_S, self._look)

    def _enqueue(self, job: Job) -> None:
        function, args, callback = job
        if self._is_left_behind:
            if callback is not None:
                self._loop.call_soon(callback, None, self.failure)
            return
        number = 0
        if callback is not None:
            number = self._last_number = self._last_number + 1
            self._callbacks[number] = callback
        self._jobs.put((number, function, args))

    def stop(self, timeout_s: float) -> bool:
        """Finish what was submitted and end the thread; False if it hangs on its disk."""
        self._look_timer.cancel()
        self._enqueue_notes()
        self._jobs.put(None)
        self._thread.join(0 if self._is_left_behind else timeout_s)
        return not self._thread.is_alive()

    def wait_at_most(self, hang_limit_s: float) -> None:
        """From now on a job may stand still only for so long: the node is about to stop."""
        self._hang_limit_s = min(self._hang_limit_s, hang_limit_s)

    def _run(self) -> None:
        jobs = self._jobs
        while (job := jobs.get()) is not None:
            number, function, args = job
            self._in_work = function
            result, error = self._perform(function, args)
            self._in_work = None
            if number:
                self._done.append((number, result, error))
                if not self._is_drain_due:
                    self._is_drain_due = True
                    try:
                        self._loop.call_soon_threadsafe(self._drain)
                    except RuntimeError:  # the loop is closed: nobody waits any more
                        return

    def _drain(self) -> None:
        # The flag falls first: what is added from here on asks for a drain of its own.
        self._is_drain_due = False
        done, callbacks = self._done, self._callbacks
        while done:
            number, result, error = done.popleft()
            callback = callbacks.pop(number, None)
            if callback is not None:
                callback(result, error)

    # -- a disk that hangs

    def _look(self) -> None:
        """Once a second: does the thread get on with what it does?"""
        self._look_timer = self._loop.call_later(_LOOK_S, self._look)
        work = self._in_work
        cpu_s = self._cpu_s()
        if work is None or cpu_s != self._seen_cpu_s:
            if self._stood_s >= _HANG_IS_TOLD_S:
                log.warning("log directory %s goes on after %.0f s", self.path, self._stood_s)
            self._seen_cpu_s, self._stood_s = cpu_s, 0.0
            return
        # In looks, not by the clock: this process may have been stopped in between.
        self._stood_s += _LOOK_S
        if self._stood_s == _HANG_IS_TOLD_S:
            log.error(
                "log directory %s hangs: its disk has not answered for %.0f s (%s)",
                self.path,
                self._stood_s,
                getattr(work, "__qualname__", work),
            )
        if self._stood_s >= self._hang_limit_s:
            self._leave_behind()

    def _cpu_s(self) -> float:
        """CPU time of the thread; where the system does not tell, it always seems to get on."""
        with suppress(AttributeError, OSError):
            assert self._thread.ident is not None
            return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))
        return time.monotonic()

    def _leave_behind(self) -> None:
        """Answer everybody who waits. The thread does nothing more once its disk lets it go."""
        self._is_left_behind = True
        self._look_timer.cancel()
        failure = self.fail(f"the disk has not answered for {self._stood_s:.0f} s")
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            self._loop.call_soon(callback, None, failure)
