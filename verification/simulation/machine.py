"""A machine of the simulation: what `spindle.runtime.machine` asks for, by seed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from spindle.common.uuids import Uuid, uuid_from_random
from spindle.disks.device_health import DeviceHealth
from spindle.disks.executor import DirectoryExecutor
from spindle.runtime.lanes.native_lanes import NativeLanes
from spindle.runtime.machine import DirectoryFailureListener, Lock
from verification.simulation.clock import SkewedClock
from verification.simulation.disk import SimulatedDirectory, SimulatedDisks
from verification.simulation.lane import LaneModel, targets_of_fetch, targets_of_produce
from verification.simulation.network import SimulatedSocket

if TYPE_CHECKING:
    from verification.simulation.loop import SimulatedLoop


class SimulatedMachine:
    """One host, through all of its lives. Its disks remember, its processes do not.

    Attributes:
        executors: of the present life, by path of the directory.
    """

    def __init__(
        self,
        host: str,
        loop: "SimulatedLoop",
        random: Random,
        clock: SkewedClock,
        on_interrupted: Callable[[], None],
    ) -> None:
        self.host = host
        self.random = random
        self.clock = clock
        self.disks = SimulatedDisks(self.wall_clock_ms, random)
        self.executors: dict[str, SimulatedDirectory] = {}
        self._loop = loop
        self._on_interrupted = on_interrupted

    def device_health(self, directories: Sequence[str]) -> Mapping[str, DeviceHealth]:
        return {}

    def wall_clock_ms(self) -> int:
        return self.clock.wall_ms(self._loop.now_s)

    def steady_clock_ms(self) -> int:
        return int(self.clock.local_s(self._loop.now_s) * 1000)

    def new_uuid(self) -> Uuid:
        return uuid_from_random(self.random.randbytes)

    def file_system(self, directories: Sequence[str]) -> SimulatedDisks:
        self.disks.directories = tuple(directories)
        return self.disks

    def open_directory(
        self, path: str, on_failure: DirectoryFailureListener, hang_limit_s: float
    ) -> DirectoryExecutor:
        loop = asyncio.get_running_loop()
        executor = SimulatedDirectory(
            path, loop, on_failure, hang_limit_s, self.disks, self._on_interrupted
        )
        self.executors[path] = executor
        if path not in self.disks.directories:
            self.disks.directories = (*self.disks.directories, path)
        return executor

    def native_lanes(self) -> NativeLanes:
        return NativeLanes(self._open_lane, targets_of_produce, targets_of_fetch)

    def _open_lane(
        self, path: str, max_frame_bytes: int, fetch_max_bytes: int, is_rack_aware: bool
    ) -> LaneModel:
        lane = LaneModel(
            path,
            self._loop,
            Random(self.random.randbytes(8)),
            self.disks,
            self.wall_clock_ms,
            self._on_interrupted,
        )
        self.executors[path].lane = lane
        return lane

    def lock_directory(self, path: str) -> Lock:
        return _NoLock()

    def open_files_limit(self) -> int:
        return 1_048_576

    async def listen(self, name: str, host: str, port: int) -> SimulatedSocket:
        return self._loop.network.listen(self.host, port)


class _NoLock:
    """A host runs one process at a time."""

    def release(self) -> None:
        """Do nothing: there is no lock."""
