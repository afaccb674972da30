"""One I/O thread per log directory: the only door to that directory's files.

Order within a directory comes for free, and a slow, full or dead disk stalls only itself. Every
`OSError` (and `CorruptLog`) is caught here and becomes `LogDirectoryFailed`; from then on nothing
touches the directory until the process restarts (KIP-112, KIP-858).
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, TypeVar, TypeVarTuple

from spindle.common.errors import CorruptLog, LogDirectoryFailed

log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Callback = Callable[[Any, BaseException | None], None]
"""Called on the event loop with (result, None) or (None, error)."""

Job = tuple[Callable[..., Any], tuple[Any, ...], Callback | None]


class DirectoryDoor(ABC):
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


class DirectoryThread(DirectoryDoor):
    """Runs functions on the thread of one log directory, in the order of submission."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[LogDirectoryFailed], None],
    ) -> None:
        super().__init__(path, loop, on_failure)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[tuple[Callback, Any, BaseException | None]] = deque()
        self._is_drain_due = False
        self._thread = threading.Thread(target=self._run, name=f"io {path}", daemon=True)
        self._thread.start()

    def _enqueue(self, job: Job) -> None:
        self._jobs.put(job)

    def stop(self, timeout_s: float) -> bool:
        """Finish what was submitted and end the thread; False if it hangs on its disk."""
        self._enqueue_notes()
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        jobs = self._jobs
        while (job := jobs.get()) is not None:
            function, args, callback = job
            result, error = self._perform(function, args)
            if callback is not None:
                self._done.append((callback, result, error))
                if not self._is_drain_due:
                    self._is_drain_due = True
                    try:
                        self._loop.call_soon_threadsafe(self._drain)
                    except RuntimeError:  # the loop is closed: nobody waits any more
                        return

    def _drain(self) -> None:
        # The flag falls first: what is added from here on asks for a drain of its own.
        self._is_drain_due = False
        done = self._done
        while done:
            callback, result, error = done.popleft()
            callback(result, error)
