"""The disks of one host: they take time, hang, fail, and lose power in the midst of a write."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from random import Random
from typing import Any

from spindle.common.errors import LogDirectoryFailed
from spindle.runtime.disks.directory_thread import Job, SerialExecutor
from spindle.testing.filesystem import MemoryFileSystem


class PowerLost(BaseException):
    """The host went dark in the middle of an operation on a file."""


class SimulatedDisks(MemoryFileSystem):
    """What a host has on its disks, through all of its lives.

    Attributes:
        slowness_s: the longest that one job takes, by path of a directory; `default_slowness_s`
            for all others.
        hanging: directories that do nothing, with what goes on when they work again.
    """

    def __init__(self, wall_clock_ms: Callable[[], int], random: Random) -> None:
        super().__init__()
        self._wall_clock_ms = wall_clock_ms
        self._random = random
        self._power_left: int | None = None
        self._is_observed = False
        self.default_slowness_s = 0.002
        self.slowness_s: dict[str, float] = {}
        self.hanging: dict[str, list[Callable[[], None]]] = {}

    @property
    def now_ms(self) -> int:
        return self._wall_clock_ms()

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        """The clock is the host's."""

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Within, files are read by the simulation: nothing fails and nothing is counted."""
        self._is_observed = True
        try:
            yield
        finally:
            self._is_observed = False

    def check(self, operation: str, path: str) -> None:
        if self._is_observed:
            return
        if self._power_left is not None:
            self._power_left -= 1
            if self._power_left < 0:
                raise PowerLost
        if self.faults:
            super().check(operation, path)
            self.operations.clear()

    def lose_power_after(self, operations: int | None) -> None:
        """Go dark at the operation after so many more; None: do not."""
        self._power_left = operations

    def lose_unsynced(self) -> None:
        """What the device had not been told to keep survives only by chance."""
        self._power_left = None
        self.crash(lambda path, unsynced: self._random.randint(0, unsynced))

    def hang(self, path: str) -> None:
        """Whatever is begun in the directory from now on waits."""
        self.hanging.setdefault(path, [])

    def release(self, path: str) -> None:
        """The directory works again."""
        for go_on in self.hanging.pop(path, []):
            go_on()

    def job_delay_s(self, path: str) -> float:
        return self._random.uniform(0.0, self.slowness_s.get(path, self.default_slowness_s))


class SimulatedDirectory(SerialExecutor):
    """The I/O thread of a log directory: one job after the other, each after some time."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[LogDirectoryFailed], None],
        disks: SimulatedDisks,
        on_power_lost: Callable[[], None],
    ) -> None:
        super().__init__(path, loop, on_failure)
        self._disks = disks
        self._on_power_lost = on_power_lost
        self._context = copy_context()
        self._jobs: deque[Job] = deque()
        self._is_busy = False
        self._is_stopped = False

    def _enqueue(self, job: Job) -> None:
        self._jobs.append(job)
        if not self._is_busy:
            self._is_busy = True
            self._schedule()

    def wait_at_most(self, hang_limit_s: float) -> None:
        """Simulated disks take their time, and never for ever."""

    def stop(self, timeout_s: float) -> bool:
        if self.path in self._disks.hanging:
            self._jobs.clear()
            self._is_stopped = True
            return False
        self._enqueue_notes()
        while self._jobs:
            function, args, _ = self._jobs.popleft()
            self._perform_powered(function, args)
        self._is_stopped = True
        return True

    def _schedule(self) -> None:
        waiting = self._disks.hanging.get(self.path)
        if waiting is not None:
            waiting.append(lambda: self._context.copy().run(self._schedule))
            return
        delay_s = self._disks.job_delay_s(self.path)
        when = self._loop.time() + delay_s
        self._loop.call_at(when, self._run, context=self._context)

    def _run(self) -> None:
        if not self._jobs:
            self._is_busy = False
            return
        function, args, callback = self._jobs.popleft()
        result, error = self._perform_powered(function, args)
        if isinstance(error, PowerLost):
            return
        if callback is not None:
            callback(result, error)
        if self._jobs:
            self._schedule()
        else:
            self._is_busy = False

    def _perform_powered(
        self, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[Any, BaseException | None]:
        try:
            return self._perform(function, args)
        except PowerLost as lost:
            self._on_power_lost()
            return None, lost
