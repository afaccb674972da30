"""One I/O thread per log directory, and threads beside it for long work.

The thread keeps the work of a directory in order, and a slow, full or dead disk delays only its own
directory. A thread whose disk hangs is abandoned: it does nothing more if the disk recovers.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Any

from spindle.common.errors import LogDirectoryFailed
from spindle.disks.executor import ThreadLoad, Unfinished
from spindle.disks.io_counts import DirectoryIo
from spindle.runtime.disks.serial_executor import Job, SerialExecutor
from spindle.runtime.disks.socket_poller import SocketPoller
from spindle.runtime.disks.watchdog import WatchedThread

_NumberedJob = tuple[int, Callable[..., object], tuple[object, ...]]
"""Number (0 without a callback), function and arguments."""


class DirectoryThread(SerialExecutor):
    """Runs functions on the thread of one log directory, in the order of submission."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[LogDirectoryFailed], None],
        hang_limit_s: float = float("inf"),
        io: DirectoryIo | None = None,
        wall_clock_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(path, loop, on_failure, hang_limit_s, io, wall_clock_ms)
        self._jobs: SimpleQueue[_NumberedJob | None] = SimpleQueue()
        self._callbacks: dict[int, Callable[[Any, BaseException | None], None]] = {}
        """Callbacks of all unfinished jobs. They belong to the event loop, which can drop them."""
        self._last_number = 0
        self._waits = SocketPoller()
        self._done: deque[tuple[int, Any, BaseException | None]] = deque()
        self._is_drain_due = False
        self._threads_beside: set[threading.Thread] = set()
        self._busy_ns = 0
        self._began_ns = 0
        self._reported_busy_ns = 0
        self._thread = threading.Thread(target=self._run, name=f"io {path}", daemon=True)
        self._watched = WatchedThread(time.monotonic)
        self._thread.start()
        self.watch.add(self._watched)
        self.watch.start()

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
        if self.is_asleep:
            self._waits.wake()

    def load(self) -> ThreadLoad:
        """See `DirectoryExecutor`."""
        busy_ns, began_ns = self._busy_ns, self._began_ns
        if began_ns:
            busy_ns += perf_counter_ns() - began_ns
        # The thread may have finished a function between the two reads.
        self._reported_busy_ns = max(self._reported_busy_ns, busy_ns)
        hang_ms = int(1000 * self.watch.longest_s)
        return ThreadLoad(self._jobs.qsize(), self._reported_busy_ns, hang_ms)

    @property
    def is_asleep(self) -> bool:
        """True while the thread has no job but those that wait for their sockets."""
        return self._waits.is_asleep

    def hangs(self) -> bool:
        """See `DirectoryExecutor`."""
        if self.failure is not None and self._has_hanging_guest():
            return True
        threads = (self._thread, *self._threads_beside)
        return self._is_left_behind and any(thread.is_alive() for thread in threads)

    def stop(self, timeout_s: float) -> bool:
        """Finish the submitted work and end the thread; return False if it hangs on its disk."""
        self.watch.stop()
        self._enqueue_notes()
        self._jobs.put(None)
        if self.is_asleep:
            self._waits.wake()
        self._thread.join(0 if self._is_left_behind else timeout_s)
        if self._thread.is_alive():
            return False
        self._waits.close()
        return True

    def _run(self) -> None:
        """Perform jobs on the I/O thread until `stop`."""
        self._watched.progress = _own_cpu_clock()
        try:
            self._perform_all()
        finally:
            self._waits.drop_all()

    def _jobs_in_turn(self) -> Iterator[_NumberedJob | None]:
        """Yield the jobs of the queue and, between them, those whose sockets are writable again.

        After each such job all queued jobs run, so an append waits for one socket at most. A job
        that is None ends the thread.
        """
        jobs, waits = self._jobs, self._waits
        while True:
            if not waits.by_descriptor:
                yield jobs.get()
                continue
            for resumed in waits.ready(jobs.empty):
                yield resumed
                yield from self._queued_jobs()
            yield from self._queued_jobs()

    def _queued_jobs(self) -> Iterator[_NumberedJob | None]:
        for _ in range(self._jobs.qsize()):
            job = self._jobs.get()
            if job is None:
                yield from self._waits.cancel_all_waits()
            yield job

    def _perform_all(self) -> None:
        watched, waits = self._watched, self._waits
        for job in self._jobs_in_turn():
            if job is None or self._is_left_behind:
                return
            number, function, args = job
            watched.function = function
            self._began_ns = began_ns = perf_counter_ns()
            perform = self._perform if self.guard is None else self._perform_guarded
            result, error = perform(function, args)
            self._began_ns = 0
            self._busy_ns += perf_counter_ns() - began_ns
            watched.function = None
            if isinstance(result, Unfinished):
                if result is not waits.current:
                    waits.add(number, result)
                waits.current = None
                continue
            if waits.current is not None:
                waits.end(waits.current, has_failed=error is not None)
                waits.current = None
            if number:
                self._done.append((number, result, error))
                if not self._is_drain_due:
                    self._is_drain_due = True
                    try:
                        self._loop.call_soon_threadsafe(self._drain)
                    except RuntimeError:  # the loop is closed, and no caller waits
                        return

    def _drain(self) -> None:
        # The flag is cleared first: a job that is added from now on schedules its own drain.
        self._is_drain_due = False
        done, callbacks = self._done, self._callbacks
        try:
            while done:
                number, result, error = done.popleft()
                callback = callbacks.pop(number, None)
                if callback is not None:
                    callback(result, error)
        finally:
            if done:  # a callback has raised: the later ones must not wait for the next job
                self._loop.call_soon(self._drain)

    def _start_beside(self, job: Job) -> None:
        """Start a daemon thread, which does not delay the end of the process if it hangs."""
        function, args, callback = job

        def run() -> None:
            watched.progress = _own_cpu_clock()
            outcome = self._perform(function, args)
            with suppress(RuntimeError):  # the loop is closed, and no caller waits
                self._loop.call_soon_threadsafe(end, *outcome)

        def end(result: object, error: BaseException | None) -> None:
            self.watch.remove(watched)
            self._threads_beside.discard(thread)
            if callback is not None:
                callback(result, error)

        thread = threading.Thread(target=run, name=f"beside {self.path}", daemon=True)
        watched = WatchedThread(time.monotonic, function)
        thread.start()
        if not self._is_left_behind:
            self.watch.add(watched)
            self._threads_beside.add(thread)

    def _abandon(self, failure: LogDirectoryFailed) -> None:
        self._is_left_behind = True
        self._jobs.put(None)  # a thread that is idle ends
        if self.is_asleep:
            self._waits.wake()
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            self._loop.call_soon(callback, None, failure)


def _own_cpu_clock() -> Callable[[], float]:
    """Return a function that gives the CPU time of the calling thread, in seconds.

    Any thread may call that function, also after this thread has ended. If the system does not
    report the CPU time, the thread always seems to make progress.
    """
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def cpu_s() -> float:
        with suppress(OSError):
            return time.clock_gettime(clock)
        return time.monotonic()

    return cpu_s
