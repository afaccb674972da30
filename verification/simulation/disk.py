"""The disks of one host: they take time, hang, fail, and lose power in the middle of a write."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from spindle.common.errors import LogDirectoryFailed
from spindle.runtime.disks.serial_executor import Job, Outcome, SerialExecutor
from spindle.runtime.disks.watchdog import WatchedThread
from spindle.testing.filesystem import MemoryFileSystem

if TYPE_CHECKING:
    from verification.simulation.lane import LaneModel

_LONG_WORK: Final = 100.0
_MAX_WORK_S: Final = 1.5


class Interrupted(BaseException):
    """The host lost power, or the process was killed, in the middle of an operation on a file."""


class _Hang(NamedTuple):
    in_syncs_only: bool
    waiting: list[Callable[[], None]]


class SimulatedDisks(MemoryFileSystem):
    """The content of a host's disks, through all lives of the host.

    Attributes:
        slowness_s: the longest time of one job, by path of a directory; `default_slowness_s` for
            all others.
        directories: the log directories of the host.
        is_killed: True if an interruption ends only the process, not the host.
        broken: directories that reported an error, or hung, since the last start of the node.
    """

    def __init__(self, wall_clock_ms: Callable[[], int], random: Random) -> None:
        super().__init__()
        self.reservation_bytes = 8192
        self._wall_clock_ms = wall_clock_ms
        self._random = random
        self._operations_left: int | None = None
        self._is_observed = False
        self.is_killed = False
        self._counted = ""
        self.default_slowness_s = 0.002
        self.slowness_s: dict[str, float] = {}
        self.directories: Sequence[str] = ()
        self.broken: set[str] = set()
        self._hanging: dict[str, _Hang] = {}

    @property
    def now_ms(self) -> int:
        return self._wall_clock_ms()

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        """Use the host's clock; a given value is ignored."""

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Let the simulation read files: inside, nothing fails and nothing is counted."""
        self._is_observed = True
        try:
            yield
        finally:
            self._is_observed = False

    def check(self, operation: str, path: str) -> None:
        if self._is_observed:
            return
        if self._operations_left is not None and self._counted in ("", operation):
            self._operations_left -= 1
            if self._operations_left < 0:
                raise Interrupted
        if self.faults or self.read_only:
            super().check(operation, path)
            self.operations.clear()

    def _check_writable(self, operation: str, path: str) -> None:
        if not self._is_observed:
            super()._check_writable(operation, path)

    def refuse(self, error_number: int, operation: str, path: str) -> NoReturn:
        # A start reads directories that were added earlier before it opens them.
        self.broken.add("/" + path.split("/")[1])
        super().refuse(error_number, operation, path)

    def heal(self, path: str) -> None:
        """End the errors of a directory: it works, has space, and can be written."""
        self.faults = [fault for fault in self.faults if not fault.path_part.startswith(path)]
        self.free_bytes.pop(path, None)
        self.read_only.discard(path)

    def heal_all(self) -> None:
        """End the errors of all directories."""
        self.faults.clear()
        self.free_bytes.clear()
        self.read_only.clear()

    @property
    def has_faults(self) -> bool:
        """True while a directory has errors to come."""
        return bool(self.faults or self.free_bytes or self.read_only)

    def cut_power_after(self, operations: int | None) -> None:
        """Lose power at the given number of operations from now; None for never."""
        self._operations_left = operations
        self._counted = ""
        self.is_killed = False

    def kill_after(self, operations: int, counted: str = "") -> None:
        """Kill the process at the given number of operations from now; its writes stay.

        Args:
            counted: the only kind of operation that counts; empty for all kinds.
        """
        self._operations_left = operations
        self._counted = counted
        self.is_killed = True

    def lose_unsynced(self) -> None:
        """Lose power: unsynced bytes survive only by chance, and so do the first of the files that
        were created, renamed and removed since the sync of their directory.

        Some file systems store the size of a file before its bytes: then the bytes are zeros.
        """
        self._operations_left = None
        random = self._random
        now_ms = self._wall_clock_ms()
        self.crash(
            lambda path, unsynced: random.randint(0, unsynced),
            lambda path, changes: range(random.randint(0, changes)),
            lambda path: Random(f"{path} {now_ms}").random() < 0.3,
        )

    def hang(self, path: str, *, in_syncs_only: bool) -> None:
        """Let all work that begins in the directory from now on wait.

        Args:
            in_syncs_only: True if only the long work beside the directory's thread, which syncs,
                waits; the page cache still answers.
        """
        self._hanging.setdefault(path, _Hang(in_syncs_only, []))
        self.broken.add(path)

    def hangs(self, path: str, *, is_beside: bool) -> bool:
        """Return whether work that begins now on the directory's thread, or beside it, waits."""
        hang = self._hanging.get(path)
        return hang is not None and (is_beside or not hang.in_syncs_only)

    def is_awaited(self, path: str) -> bool:
        """Return whether work waits for the directory, which hangs."""
        hang = self._hanging.get(path)
        return hang is not None and bool(hang.waiting)

    def when_released(self, path: str, resume: Callable[[], None]) -> None:
        """Call back when the directory, which hangs, works again."""
        self._hanging[path].waiting.append(resume)

    def release(self, path: str) -> None:
        """Let the directory work again."""
        hang = self._hanging.pop(path, None)
        for resume in hang.waiting if hang is not None else ():
            resume()

    def release_all(self) -> None:
        """Let all directories work again."""
        for path in list(self._hanging):
            self.release(path)

    def job_delay_s(self, path: str) -> float:
        return self._random.uniform(0.0, self.slowness_s.get(path, self.default_slowness_s))

    def long_delay_s(self, path: str) -> float:
        """Return the time of work beside the directory's thread: long, so that its files may
        change."""
        longest_s = _LONG_WORK * self.slowness_s.get(path, self.default_slowness_s)
        return self._random.uniform(0.0, min(longest_s, _MAX_WORK_S))


class SimulatedDirectory(SerialExecutor):
    """The I/O thread of a log directory: one job after the other, each after some time.

    Jobs beside the thread take their time as well, and wait while the disk hangs.

    Attributes:
        lane: the lane of the directory; None without one.
    """

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[LogDirectoryFailed], None],
        hang_limit_s: float,
        disks: SimulatedDisks,
        on_interrupted: Callable[[], None],
    ) -> None:
        super().__init__(path, loop, on_failure, hang_limit_s)
        self._disks = disks
        self._on_interrupted = on_interrupted
        self._context = copy_context()
        self._jobs: deque[Job] = deque()
        self._is_busy = False
        self._begun_count = 0
        self.lane: LaneModel | None = None
        self._watched = WatchedThread(lambda: self._begun_count)
        self.watch.add(self._watched)
        self.watch.start()

    def _enqueue(self, job: Job) -> None:
        if self._is_left_behind:
            if job[2] is not None:
                self._loop.call_soon(job[2], None, self.failure)
            return
        self._jobs.append(job)
        if not self._is_busy:
            self._is_busy = True
            self._schedule()

    def hangs(self) -> bool:
        return self._is_left_behind and (
            self._disks.hangs(self.path, is_beside=False) or self._has_hanging_guest()
        )

    def stop(self, timeout_s: float) -> bool:
        self.watch.stop()
        if self._is_left_behind or self._disks.hangs(self.path, is_beside=False):
            self._jobs.clear()
            return False
        self._enqueue_notes()
        while self._jobs:
            function, args, _ = self._jobs.popleft()
            self._perform_powered(self._perform_in_turn, function, args)
        return True

    def _schedule(self) -> None:
        self._watched.function = self._jobs[0][0] if self._jobs else None
        if self._disks.hangs(self.path, is_beside=False):
            again = self._context.copy()
            self._disks.when_released(self.path, lambda: again.run(self._schedule))
            return
        self._begun_count += 1
        when = self._loop.time() + self._disks.job_delay_s(self.path)
        self._loop.call_at(when, self._run, context=self._context)

    def _run(self) -> None:
        if self.lane is not None and self.lane.is_inside:
            self.lane.when_left(self._run)
            return
        self._watched.function = None
        if not self._jobs:
            self._is_busy = False
            return
        function, args, callback = self._jobs.popleft()
        result, error = self._perform_powered(self._perform_in_turn, function, args)
        if isinstance(error, Interrupted):
            return
        if callback is not None:
            callback(result, error)
        if self._jobs:
            self._schedule()
        else:
            self._is_busy = False

    def _start_beside(self, job: Job) -> None:
        watched = WatchedThread(lambda: 0.0, job[0])
        self.watch.add(watched)
        self._schedule_beside(job, watched)

    def _schedule_beside(self, job: Job, watched: WatchedThread) -> None:
        if self._disks.hangs(self.path, is_beside=True):
            again = self._context.copy()
            self._disks.when_released(
                self.path, lambda: again.run(self._schedule_beside, job, watched)
            )
            return
        watched.progress = lambda: 1.0
        when = self._loop.time() + self._disks.long_delay_s(self.path)
        self._loop.call_at(when, self._run_beside, job, watched, context=self._context)

    def _run_beside(self, job: Job, watched: WatchedThread) -> None:
        function, args, callback = job
        result, error = self._perform_powered(self._perform, function, args)
        self.watch.remove(watched)
        if callback is not None and not isinstance(error, Interrupted):
            callback(result, error)

    def _abandon(self, failure: LogDirectoryFailed) -> None:
        self._is_left_behind = True
        jobs, self._jobs = self._jobs, deque()
        for _, _, callback in jobs:
            if callback is not None:
                self._loop.call_soon(callback, None, failure)

    @property
    def _perform_in_turn(self) -> Callable[[Callable[..., object], tuple[object, ...]], Outcome]:
        return self._perform if self.guard is None else self._perform_guarded

    def _perform_powered(
        self,
        perform: Callable[[Callable[..., object], tuple[object, ...]], Outcome],
        function: Callable[..., object],
        args: tuple[object, ...],
    ) -> Outcome:
        try:
            return perform(function, args)
        except Interrupted as lost:
            self._on_interrupted()
            return None, lost
