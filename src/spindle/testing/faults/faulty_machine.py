"""The machine of a node whose disks fail on demand."""

from collections.abc import Callable, Sequence

from spindle.common.errors import LogDirectoryFailed
from spindle.common.ports import FileSystem
from spindle.disks.executor import DirectoryExecutor
from spindle.runtime.machine import DirectoryFailureListener, LocalMachine, Lock
from spindle.testing.faults.disk_faults import DiskOperation, FaultyDisk
from spindle.testing.faults.faulty_files import FaultyFileSystem


class FaultyMachine(LocalMachine):
    """This machine, with a `FaultyDisk` for each log directory.

    Attributes:
        disks: by absolute path of the log directory.
        offline: the reason of each directory that the node has taken offline, by path. It belongs
            to the event loop.
    """

    def __init__(self, disks: dict[str, FaultyDisk]) -> None:
        super().__init__()
        self.disks = disks
        self.offline: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []

    def disk(self, path: str) -> FaultyDisk:
        """Return the disk of a log directory, also of one that was added while the node ran."""
        return self.disks.setdefault(path, FaultyDisk(path))

    def file_system(self, directories: Sequence[str]) -> FileSystem:
        for path in directories:
            self.disk(path)
        return FaultyFileSystem(super().file_system(directories), self.disks)

    def open_directory(
        self, path: str, on_failure: DirectoryFailureListener, hang_limit_s: float
    ) -> DirectoryExecutor:
        self.disk(path)
        self.offline.pop(path, None)

        def note(failure: LogDirectoryFailed) -> None:
            self.offline[path] = failure.reason
            on_failure(failure)
            for listener in list(self._listeners):
                listener()

        return super().open_directory(path, note, hang_limit_s)

    def on_offline(self, listener: Callable[[], None]) -> None:
        """Call the listener on the event loop after each failure of a directory."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)

    def lock_directory(self, path: str) -> Lock:
        disk = self.disk(path)
        disk.enter(DiskOperation.WRITE, path)
        return _FaultyLock(super().lock_directory(path), disk)


class _FaultyLock:
    """A lock file, which is on the disk, too."""

    def __init__(self, lock: Lock, disk: FaultyDisk) -> None:
        self._lock = lock
        self._disk = disk
        self._generation = disk.faults.generation

    def release(self) -> None:
        self._disk.enter(DiskOperation.WRITE, self._disk.path, self._generation)
        self._lock.release()
