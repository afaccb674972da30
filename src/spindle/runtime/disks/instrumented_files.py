"""The machine's file system, which counts and times the operations on the files of log directories.

An `OSError` gets a note with the operation and the file, because its own text lacks the operation
and, for an open file, the name.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Final

from spindle.common.filesystem import OsFile, OsFileSystem
from spindle.common.ports import Bytes, File
from spindle.disks.io_counts import DirectoryIo, OperationCounts

_READING: Final = "reading"
_WRITING: Final = "writing"
_SYNCING: Final = "syncing"


def _failed(error: OSError, counts: OperationCounts, doing: str, path: str) -> None:
    counts.errors += 1
    error.add_note(f"while {doing} {path}")


@contextmanager
def _noting(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.add_note(f"while {doing} {path}")
        raise


class _MeasuredFile(OsFile):
    __slots__ = ("_io",)

    def __init__(self, path: str, io: DirectoryIo, *, create: bool, writable: bool) -> None:
        super().__init__(path, create=create, writable=writable)
        self._io = io

    def pread(self, size_bytes: int, position: int, /) -> bytes:
        began_ns = perf_counter_ns()
        try:
            data = OsFile.pread(self, size_bytes, position)
        except OSError as error:
            _failed(error, self._io.reads, _READING, self.path)
            raise
        self._io.reads.observe(perf_counter_ns() - began_ns, len(data))
        return data

    def send(self, socket_descriptor: int, size_bytes: int, position: int, /) -> int:
        # An error may come from the socket, so it is not counted.
        began_ns = perf_counter_ns()
        count = OsFile.send(self, socket_descriptor, size_bytes, position)
        self._io.reads.observe(perf_counter_ns() - began_ns, count)
        return count

    def append(self, parts: Sequence[Bytes], /) -> int:
        began_ns = perf_counter_ns()
        try:
            total = OsFile.append(self, parts)
        except OSError as error:
            _failed(error, self._io.writes, _WRITING, self.path)
            raise
        self._io.writes.observe(perf_counter_ns() - began_ns, total)
        return total

    def pwrite(self, data: Bytes, position: int, /) -> None:
        began_ns = perf_counter_ns()
        try:
            OsFile.pwrite(self, data, position)
        except OSError as error:
            _failed(error, self._io.writes, _WRITING, self.path)
            raise
        self._io.writes.observe(perf_counter_ns() - began_ns, len(data))

    def reserve(self, size_bytes: int, position: int, /) -> bool:
        try:
            return OsFile.reserve(self, size_bytes, position)
        except OSError as error:
            error.add_note(f"while reserving space for {self.path}")
            raise

    def sync(self) -> None:
        began_ns = perf_counter_ns()
        try:
            OsFile.sync(self)
        except OSError as error:
            _failed(error, self._io.syncs, _SYNCING, self.path)
            raise
        self._io.syncs.observe(perf_counter_ns() - began_ns)


class InstrumentedFileSystem(OsFileSystem):
    """The machine's file system; it measures operations on files in the given directories."""

    def __init__(self, directories: Sequence[str] = ()) -> None:
        self.by_directory: dict[str, DirectoryIo] = {}
        self._prefixes: list[tuple[str, DirectoryIo]] = []
        self._devices: dict[str, int] = {}
        for path in directories:
            self.of(path)

    def of(self, directory: str) -> DirectoryIo:
        """Return the counts of a directory; measure its files from now on."""
        io = self.by_directory.get(directory)
        if io is None:
            io = self.by_directory[directory] = DirectoryIo(directory)
            self._prefixes.append((directory.rstrip("/") + "/", io))
        return io

    def hold(self, directory: str) -> None:
        """Remember the file system of a directory, until `release`.

        Open files outlive the unmounting of their disk, but a new file would land on the disk of
        the mount point. So checkpoints, new logs and `capacity` raise ESTALE from then on.

        Raises:
            OSError: the directory cannot be read.
        """
        self._devices[directory] = os.stat(directory).st_dev

    def release(self, directory: str) -> None:
        """Forget the file system of a directory: another disk may be mounted there."""
        self._devices.pop(directory, None)

    def _check_device(self, directory: str) -> None:
        device = self._devices.get(directory)
        if device is not None and os.stat(directory).st_dev != device:
            error = OSError(errno.ESTALE, os.strerror(errno.ESTALE), directory)
            error.add_note(
                f"because {directory} is on another file system than before: its disk was "
                "unmounted, or another one was mounted over it"
            )
            raise error

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        with _noting("opening", path):
            for prefix, io in self._prefixes:
                if path.startswith(prefix):
                    return _MeasuredFile(path, io, create=create, writable=writable)
            return super().open(path, create=create, writable=writable)

    def read_bytes(self, path: str) -> bytes:
        with _noting(_READING, path):
            return super().read_bytes(path)

    def write_atomically(self, path: str, data: bytes) -> None:
        with _noting(_WRITING, path):
            self._check_device(os.path.dirname(path))
            super().write_atomically(path, data)

    def list_directory(self, path: str) -> list[str]:
        with _noting("listing", path):
            return super().list_directory(path)

    def capacity(self, path: str) -> tuple[int, int]:
        with _noting("measuring", path):
            self._check_device(path)
            return super().capacity(path)

    def make_directories(self, path: str) -> None:
        with _noting("creating", path):
            self._check_device(os.path.dirname(path))
            super().make_directories(path)

    def rename(self, source: str, target: str) -> None:
        with _noting("renaming", source):
            super().rename(source, target)

    def remove(self, path: str) -> None:
        with _noting("removing", path):
            super().remove(path)

    def remove_tree(self, path: str) -> None:
        with _noting("removing", path):
            super().remove_tree(path)

    def sync_directory(self, path: str) -> None:
        with _noting(_SYNCING, path):
            super().sync_directory(path)
