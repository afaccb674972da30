"""Counts and times of syncs, by log directory.

Only `sync` is measured; reads and appends go straight to the operating system.
"""

from collections.abc import Sequence
from time import perf_counter

from spindle.common.filesystem import OsFile, OsFileSystem
from spindle.common.ports import File


class DiskTimes:
    """The syncs of one directory, on its I/O thread and on the threads that flush for it.

    Attributes:
        syncs: files synced since the start.
        total_s: the sum of their times.
        longest_s: the longest sync since the last call of the method that takes it.
        errors: syncs that failed.
    """

    __slots__ = ("errors", "longest_s", "path", "syncs", "total_s")

    def __init__(self, path: str) -> None:
        self.path = path
        self.syncs = 0
        self.total_s = 0.0
        self.longest_s = 0.0
        self.errors = 0

    def observe(self, elapsed_s: float) -> None:
        self.syncs += 1
        self.total_s += elapsed_s
        self.longest_s = max(self.longest_s, elapsed_s)

    def take_longest_s(self) -> float:
        longest_s, self.longest_s = self.longest_s, 0.0
        return longest_s


class _MeasuredFile(OsFile):
    __slots__ = ("_times",)

    def __init__(self, path: str, times: DiskTimes, *, create: bool, writable: bool) -> None:
        super().__init__(path, create=create, writable=writable)
        self._times = times

    def sync(self) -> None:
        started_s = perf_counter()
        try:
            super().sync()
        except OSError:
            self._times.errors += 1
            raise
        self._times.observe(perf_counter() - started_s)


class MeasuredFileSystem(OsFileSystem):
    """The machine's file system, which measures the syncs in the given directories."""

    def __init__(self, directories: Sequence[str]) -> None:
        self.times = {path: DiskTimes(path) for path in directories}
        self._prefixes = [(path.rstrip("/") + "/", times) for path, times in self.times.items()]

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        for prefix, times in self._prefixes:
            if path.startswith(prefix):
                return _MeasuredFile(path, times, create=create, writable=writable)
        return super().open(path, create=create, writable=writable)
