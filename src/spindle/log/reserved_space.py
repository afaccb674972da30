"""Disk space that is reserved ahead of the segments that grow fast.

An append of 1 MB into reserved space takes a sixth less CPU time than one for which the file system
has to find blocks (benchmarks/README.md). The space lies after the end of the file, so neither the
size of the file changes nor do readers see it. `du` and the disk's free space include it.
Therefore few files of a directory have reserved space, and only while the disk has plenty of free
space. It is released when a segment is finished, when nothing was appended for a while, and when
the disk runs full. (Kafka's `preallocate` differs: it makes the file as long as the segment may
become.)
"""

import errno
from collections.abc import Callable
from typing import Final

from spindle.common.ports import File, FileSystem

_MAX_FILES: Final = 16
_MIN_FREE_STEPS: Final = 128
"""Reserve only while this many reservations fit the free space."""
_VOLUME_DIVISOR: Final = 8
"""A segment gets no reserved space below this share of a step."""
_NO_WRITE: Final = 2**63 - 1
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: OSError) -> bool:
    """Return whether a write failed because the disk, or the quota, has no space left."""
    return error.errno in _DISK_FULL


class ReservedSpace:
    """The files of one log directory that have reserved space; used only on the directory's thread.

    Args:
        open_file: returns the open file at a path.
    """

    __slots__ = ("_file_system", "_is_possible", "_open_file", "_step_bytes", "_used")

    def __init__(self, file_system: FileSystem, open_file: Callable[[str], File]) -> None:
        self._file_system = file_system
        self._open_file = open_file
        self._step_bytes = file_system.reservation_bytes
        self._is_possible = True
        self._used: dict[str, bool] = {}
        """Whether space was reserved for the file since the last `give_back_unused`, by path."""

    def __len__(self) -> int:
        return len(self._used)

    @property
    def least_volume_bytes(self) -> int:
        """The size up to which no segment has reserved space."""
        return self._step_bytes // _VOLUME_DIVISOR

    def extend(self, path: str, start: int, end: int, limit: int) -> int:
        """Reserve space for a write from `start` to `end` and for what will follow, below `limit`.

        Returns:
            The log size at which to call this again.
        """
        target = min(start + self._step_bytes, limit)
        if target <= end:
            return end + self._step_bytes
        if self._may_reserve(path):
            try:
                self._is_possible = self._open_file(path).reserve(target - start, start)
                self._used[path] = True
            except OSError as error:
                if not is_disk_full(error):
                    raise
                self.give_back()
        return target if self._is_possible else _NO_WRITE

    def _may_reserve(self, path: str) -> bool:
        if not self._is_possible or (path not in self._used and len(self._used) >= _MAX_FILES):
            return False
        _, usable_bytes = self._file_system.capacity(path.rpartition("/")[0])
        if usable_bytes >= _MIN_FREE_STEPS * self._step_bytes:
            return True
        self.give_back()
        return False

    def forget(self, path: str) -> None:
        """Forget a file that was removed or renamed, or whose space was released."""
        self._used.pop(path, None)

    def forget_below(self, directory: str) -> None:
        """Forget the files in a directory."""
        prefix = directory + "/"
        for path in [path for path in self._used if path.startswith(prefix)]:
            del self._used[path]

    def give_back(self) -> bool:
        """Release all reserved space; return whether there was any."""
        paths = list(self._used)
        for path in paths:
            self._give_back(path)
        return bool(paths)

    def give_back_unused(self) -> None:
        """Release the space of files for which nothing was reserved since the previous call."""
        for path, is_used in list(self._used.items()):
            if is_used:
                self._used[path] = False
            else:
                self._give_back(path)

    def _give_back(self, path: str) -> None:
        del self._used[path]
        file = self._open_file(path)
        file.truncate(file.size())
