"""The machine that a node runs on: clocks, randomness, disks, ports.

Besides the event loop, this is a node's only access to the outside world, so that a simulation can
run the same node on simulated disks, clocks and networks.
"""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

from spindle.common.errors import ConfigError, LogDirectoryFailed
from spindle.common.ports import FileSystem
from spindle.common.uuids import Uuid, uuid_from_random
from spindle.disks.device_health import DeviceHealth
from spindle.disks.executor import DirectoryExecutor
from spindle.runtime.disks.device_healths import DeviceHealths
from spindle.runtime.disks.directory_lock import DirectoryLock
from spindle.runtime.disks.directory_thread import DirectoryThread
from spindle.runtime.disks.instrumented_files import InstrumentedFileSystem
from spindle.runtime.disks.open_files import open_files_limit
from spindle.runtime.lanes.native_lanes import NativeLanes

_BACKLOG: Final = 512

DirectoryFailureListener = Callable[[LogDirectoryFailed], None]


class Lock(Protocol):
    """A lock on a log directory."""

    def release(self) -> None: ...


class Machine(Protocol):
    """One machine, for one node."""

    random: Random

    def wall_clock_ms(self) -> int:
        """Return the wall clock in ms since the epoch, for timestamps, never for durations."""
        ...

    def steady_clock_ms(self) -> int:
        """Return ms since the epoch by a monotonic clock."""
        ...

    def new_uuid(self) -> Uuid: ...

    def file_system(self, directories: Sequence[str]) -> FileSystem:
        """Return the file system; it measures the operations in these directories."""
        ...

    def open_directory(
        self, path: str, on_failure: DirectoryFailureListener, hang_limit_s: float
    ) -> DirectoryExecutor:
        """Return the I/O thread of a directory. Call on the event loop.

        Args:
            hang_limit_s: a disk that has not responded for this long has failed.
        """
        ...

    def lock_directory(self, path: str) -> Lock:
        """Keep every other process out of the directory.

        Raises:
            ConfigError: another process holds it.
            OSError: the directory cannot be written.
        """
        ...

    def open_files_limit(self) -> int:
        """Return the limit of file descriptors of the process."""
        ...

    def native_lanes(self) -> NativeLanes:
        """Return the native code that serves Produce and Fetch.

        Raises:
            ImportError: there is none here.
        """
        ...

    def device_health(self, directories: Sequence[str]) -> Mapping[str, DeviceHealth]:
        """Return the known health of the devices below directories, by path. Does not wait."""
        ...

    async def listen(self, name: str, host: str, port: int) -> Any:
        """Return a bound socket for `create_server`, which queues connections until then.

        Raises:
            ConfigError: the listener cannot bind its address.
        """
        ...


class _HeldDirectory(DirectoryLock):
    """The lock of a directory, which must stay on the same file system while it is held."""

    def __init__(self, path: str, files: InstrumentedFileSystem) -> None:
        super().__init__(path)
        self._directory, self._files = path, files
        try:
            files.hold(path)
        except OSError:
            super().release()
            raise

    def release(self) -> None:
        self._files.release(self._directory)
        super().release()


class LocalMachine:
    """The machine that this process runs on."""

    def __init__(self) -> None:
        self.random = Random(secrets.randbits(64))
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._files = InstrumentedFileSystem()
        self._device_healths = DeviceHealths()

    def wall_clock_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_clock_ms(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000

    def new_uuid(self) -> Uuid:
        return uuid_from_random(secrets.token_bytes)

    def file_system(self, directories: Sequence[str]) -> FileSystem:
        self._files = InstrumentedFileSystem(directories)
        return self._files

    def open_directory(
        self, path: str, on_failure: DirectoryFailureListener, hang_limit_s: float
    ) -> DirectoryExecutor:
        loop = asyncio.get_running_loop()
        io = self._files.of(path)
        return DirectoryThread(path, loop, on_failure, hang_limit_s, io, self.wall_clock_ms)

    def lock_directory(self, path: str) -> Lock:
        return _HeldDirectory(path, self._files)

    def open_files_limit(self) -> int:
        return open_files_limit()

    def native_lanes(self) -> NativeLanes:
        from spindle import _native

        return NativeLanes(_native.Lane, _native.targets_of_produce, _native.targets_of_fetch)

    def device_health(self, directories: Sequence[str]) -> Mapping[str, DeviceHealth]:
        return self._device_healths.of(directories)

    async def listen(self, name: str, host: str, port: int) -> socket.socket:
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, kind, protocol, _, address = min(
                addresses, key=lambda f: f[0] != socket.AF_INET
            )
            bound = socket.socket(family, kind, protocol)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(_BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"Socket server failed to bind to {host}:{port} "
                f"(listener {name}): {error.strerror or error}"
            ) from error
        bound.setblocking(False)
        return bound
