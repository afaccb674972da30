"""The faults of one disk, and what they do to an operation on it."""

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from typing import Any, Final

from spindle.testing.faults.choice_enum import ChoiceEnum
from spindle.testing.faults.unsynced import Notes, UnsyncedChanges

_MIN_TORN_BYTES: Final = 2
_SYNC_S: Final = 10.0
"""A sync that takes longer than this counts as one that has not happened."""


class DiskOperation(ChoiceEnum):
    """Kinds of operations on a disk.

    Renaming, removing and creating count as writes; listing, opening and looking up as reads.
    """

    READ = "read"
    WRITE = "write"
    SYNC = "sync"


ALL_OPERATIONS: Final = frozenset(DiskOperation)


class AfterTear(ChoiceEnum):
    """The end of a torn write: the process dies, or the disk fails from then on."""

    KILL = "kill"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """The faults of a disk at one time. The default is a healthy disk.

    Attributes:
        error_number: of the `OSError` that operations raise; 0 for none.
        operations: the operations that raise it.
        quota_bytes: the maximum size of all files of the disk; None for no limit.
        slow_ms: delay of each operation.
        is_hung: no operation returns until this is over.
        is_readonly: writes raise EROFS.
        tear: the end of the next write to a file that matches `torn_files`; None if none is torn.
        torn_files: a pattern as in `fnmatch`, for the path below the disk.
        generation: counts the replacements of the disk; open files of an older one fail.
    """

    error_number: int = 0
    operations: frozenset[DiskOperation] = ALL_OPERATIONS
    quota_bytes: int | None = None
    slow_ms: float = 0
    is_hung: bool = False
    is_readonly: bool = False
    tear: AfterTear | None = None
    torn_files: str = "*"
    generation: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "operations": sorted(self.operations)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DiskFaults":
        """Return the faults of `to_json`."""
        tear = None if fields["tear"] is None else AfterTear(fields["tear"])
        operations = frozenset(map(DiskOperation, fields["operations"]))
        return cls(**{**fields, "operations": operations, "tear": tear})


def used_bytes(directory: str) -> int:
    """Return the sum of the sizes of all files below a directory."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # removed meanwhile
    return total


class FaultyDisk:
    """A log directory's disk inside the node. Its threads and the control thread use it.

    Args:
        path: of the log directory, absolute.
    """

    def __init__(self, path: str, faults: DiskFaults | None = None) -> None:
        self.path = path
        self._faults = DiskFaults()
        self._lock = threading.Lock()
        self._free_bytes: int | None = None
        self._goes_on = threading.Event()
        self._has_power = True
        self._syncs = 0
        self._sync_ended = threading.Condition()
        self.unsynced = UnsyncedChanges()
        self.set(faults or DiskFaults())

    @property
    def faults(self) -> DiskFaults:
        return self._faults

    def set(self, faults: DiskFaults) -> None:
        """Replace the faults. Operations that hang continue if the new faults allow it."""
        with self._lock:
            if faults.quota_bytes is None:
                self._free_bytes = None
            elif faults.quota_bytes != self._faults.quota_bytes:
                self._free_bytes = max(0, faults.quota_bytes - used_bytes(self.path))
            self._faults = faults
            if faults.is_hung or not self._has_power:
                self._goes_on.clear()
            else:
                self._goes_on.set()

    def cut_power(self) -> Notes:
        """Let no further operation begin, and return what is not synced.

        The process must end then. A running sync completes first, because the node may have seen
        its success.
        """
        self._goes_on.clear()
        with self._sync_ended:
            self._has_power = False
            self._sync_ended.wait_for(lambda: not self._syncs, _SYNC_S)
            return self.unsynced.to_json()

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """Count the body as a running sync. Without power it does not begin."""
        with self._sync_ended:
            self._sync_ended.wait_for(lambda: self._has_power)
            self._syncs += 1
        try:
            yield
        finally:
            with self._sync_ended:
                self._syncs -= 1
                self._sync_ended.notify_all()

    # -- for the file system

    def enter(self, operation: DiskOperation, path: str, generation: int | None = None) -> None:
        """Begin an operation: wait, or raise its error.

        Args:
            generation: of the disk when the file was opened; None for an operation by path.

        Raises:
            OSError: the operation fails.
        """
        self._goes_on.wait()
        faults = self._faults
        if faults.slow_ms:
            time.sleep(faults.slow_ms / 1000)
            faults = self._faults
        if generation is not None and generation != faults.generation:
            raise _os_error(errno.EIO, path)
        if faults.error_number and operation in faults.operations:
            raise _os_error(faults.error_number, path)
        if faults.is_readonly and operation is DiskOperation.WRITE:
            raise _os_error(errno.EROFS, path)

    def take_room(self, path: str, size_bytes: int) -> int:
        """Return how many of the bytes that a file is to grow by fit on the disk."""
        with self._lock:
            if self._free_bytes is None:
                return size_bytes
            taken = min(self._free_bytes, size_bytes)
            self._free_bytes -= taken
            return taken

    def give_room(self, size_bytes: int) -> None:
        """Count the bytes of a file that was removed or has become shorter."""
        with self._lock:
            if self._free_bytes is not None:
                self._free_bytes += size_bytes

    def usable_bytes(self, real_bytes: int) -> int:
        """Return the free bytes that the disk reports; `real_bytes` are free on the real disk."""
        with self._lock:
            return real_bytes if self._free_bytes is None else min(real_bytes, self._free_bytes)

    def torn_bytes(self, path: str, size_bytes: int) -> int | None:
        """Return how many bytes of this write arrive if it is torn, else None."""
        if self._faults.tear is None or size_bytes < _MIN_TORN_BYTES:
            return None
        if not fnmatch(os.path.relpath(path, self.path), self._faults.torn_files):
            return None
        return size_bytes // 2

    def after_tear(self, path: str) -> OSError:
        """End the process, or return the error of the torn write; the disk then stays failed."""
        if self._faults.tear is AfterTear.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        with self._lock:
            self._faults = DiskFaults(errno.EIO, generation=self._faults.generation)
        return _os_error(errno.EIO, path)


def no_space(path: str) -> OSError:
    """Return the error of a write to a full disk."""
    return _os_error(errno.ENOSPC, path)


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
