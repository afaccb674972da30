"""A file system whose log directories fail as their `FaultyDisk` says."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TypeVar

from spindle.common.ports import Bytes, File, FileSystem
from spindle.testing.faults.disk_faults import DiskOperation, FaultyDisk, no_space, used_bytes
from spindle.testing.faults.unsynced import inode_of

T = TypeVar("T")


class FaultyFile:
    """An open file on a disk that may fail at any time."""

    __slots__ = ("_disk", "_file", "_generation", "_inode", "path")

    def __init__(self, path: str, file: File, disk: FaultyDisk, inode: int) -> None:
        self.path = path
        self._file = file
        self._disk = disk
        self._inode = inode
        self._generation = disk.faults.generation

    def _enter(self, operation: DiskOperation) -> None:
        self._disk.enter(operation, self.path, self._generation)

    def pread(self, size_bytes: int, position: int, /) -> bytes:
        self._enter(DiskOperation.READ)
        return self._file.pread(size_bytes, position)

    def send(self, socket_descriptor: int, size_bytes: int, position: int, /) -> int:
        self._enter(DiskOperation.READ)
        return self._file.send(socket_descriptor, size_bytes, position)

    def append(self, parts: Sequence[Bytes], /) -> int:
        self._enter(DiskOperation.WRITE)
        total = sum(map(len, parts))
        torn = self._disk.torn_bytes(self.path, total)
        if torn is not None:
            self._file.append([b"".join(parts)[:torn]])
            raise self._disk.after_tear(self.path)
        room = self._disk.take_room(self.path, total)
        self._disk.unsynced.grows(self._inode, self._file.size())
        if room < total:
            # A full disk takes the bytes that fit, and then fails.
            self._file.append([b"".join(parts)[:room]])
            raise no_space(self.path)
        return self._file.append(parts)

    def pwrite(self, data: Bytes, position: int, /) -> None:
        self._enter(DiskOperation.WRITE)
        view = memoryview(data)
        torn = self._disk.torn_bytes(self.path, len(view))
        if torn is not None:
            self._file.pwrite(view[:torn], position)
            raise self._disk.after_tear(self.path)
        size_bytes = self._file.size()
        growth = max(0, position + len(view) - size_bytes)
        if growth:
            self._disk.unsynced.grows(self._inode, size_bytes)
        room = self._disk.take_room(self.path, growth)
        if room < growth:
            self._file.pwrite(view[: len(view) - growth + room], position)
            raise no_space(self.path)
        self._file.pwrite(view, position)

    def reserve(self, size_bytes: int, position: int, /) -> bool:
        self._enter(DiskOperation.WRITE)
        return self._file.reserve(size_bytes, position)

    def size(self) -> int:
        # The inode of an open file is in memory.
        return self._file.size()

    def truncate(self, size_bytes: int, /) -> None:
        self._enter(DiskOperation.WRITE)
        freed = self._file.size() - size_bytes
        self._file.truncate(size_bytes)
        self._disk.unsynced.shrinks(self._inode, size_bytes)
        self._disk.give_room(max(0, freed))

    def sync(self) -> None:
        self._enter(DiskOperation.SYNC)
        with self._disk.syncing(), self._disk.unsynced.sync(self._inode, self._file):
            self._file.sync()

    def forget_cached(self, size_bytes: int, position: int, /) -> None:
        self._file.forget_cached(size_bytes, position)

    def close(self) -> None:
        self._file.close()


class FaultyFileSystem:
    """`FileSystem` over another one, with faults in the directories of `disks`.

    Args:
        disks: by absolute path of the log directory. More may be added later.
    """

    def __init__(self, below: FileSystem, disks: Mapping[str, FaultyDisk]) -> None:
        self._below = below
        self._disks = disks

    @property
    def reservation_bytes(self) -> int:
        return self._below.reservation_bytes

    def _disk(self, path: str) -> FaultyDisk | None:
        while path not in self._disks:
            parent = os.path.dirname(path)
            if parent == path:
                return None
            path = parent
        return self._disks[path]

    def _enter(self, operation: DiskOperation, path: str) -> FaultyDisk | None:
        disk = self._disk(path)
        if disk is not None:
            disk.enter(operation, path)
        return disk

    def _read(self, function: Callable[[str], T], path: str) -> T:
        self._enter(DiskOperation.READ, path)
        return function(path)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        disk = self._disk(path)
        if disk is None:
            return self._below.open(path, create=create, writable=writable)
        disk.enter(DiskOperation.WRITE if writable else DiskOperation.READ, path)
        with disk.unsynced.create(path) if create else nullcontext():
            file = self._below.open(path, create=create, writable=writable)
        return FaultyFile(path, file, disk, inode_of(path))

    def read_bytes(self, path: str) -> bytes:
        return self._read(self._below.read_bytes, path)

    def write_atomically(self, path: str, data: bytes) -> None:
        disk = self._enter(DiskOperation.WRITE, path)
        if disk is not None:
            disk.enter(DiskOperation.SYNC, path)
            temporary = path + ".tmp"
            torn = disk.torn_bytes(path, len(data))
            if torn is not None:
                self._leave(temporary, data[:torn])
                raise disk.after_tear(path)
            freed = self._below.size(path) if self._below.exists(path) else 0
            room = disk.take_room(path, len(data))
            if room < len(data):
                self._leave(temporary, data[:room])
                raise no_space(path)
            disk.give_room(freed)
            with disk.syncing():
                self._below.write_atomically(path, data)
                disk.unsynced.written_atomically(path)
            return
        self._below.write_atomically(path, data)

    def _leave(self, path: str, data: bytes) -> None:
        """Write the part of a temporary file that arrived."""
        file = self._below.open(path, create=True)
        try:
            file.truncate(0)
            file.append([data])
        finally:
            file.close()

    def exists(self, path: str) -> bool:
        return self._read(self._below.exists, path)

    def capacity(self, path: str) -> tuple[int, int]:
        disk = self._enter(DiskOperation.READ, path)
        total, usable = self._below.capacity(path)
        return total, usable if disk is None else disk.usable_bytes(usable)

    def is_directory(self, path: str) -> bool:
        return self._read(self._below.is_directory, path)

    def list_directory(self, path: str) -> list[str]:
        return self._read(self._below.list_directory, path)

    def size(self, path: str) -> int:
        return self._read(self._below.size, path)

    def modified_ms(self, path: str) -> int:
        return self._read(self._below.modified_ms, path)

    def make_directories(self, path: str) -> None:
        disk = self._enter(DiskOperation.WRITE, path)
        with disk.unsynced.create(path) if disk is not None else nullcontext():
            self._below.make_directories(path)

    def rename(self, source: str, target: str) -> None:
        self._enter(DiskOperation.WRITE, source)
        disk = self._enter(DiskOperation.WRITE, target)
        with disk.unsynced.rename(source, target) if disk is not None else nullcontext():
            self._below.rename(source, target)

    def remove(self, path: str) -> None:
        disk = self._enter(DiskOperation.WRITE, path)
        freed = self._below.size(path) if disk is not None else 0
        self._below.remove(path)
        if disk is not None:
            disk.unsynced.removed(path)
            disk.give_room(freed)

    def remove_tree(self, path: str) -> None:
        disk = self._enter(DiskOperation.WRITE, path)
        freed = used_bytes(path) if disk is not None else 0
        self._below.remove_tree(path)
        if disk is not None:
            disk.unsynced.removed(path)
            disk.give_room(freed)

    def sync_directory(self, path: str) -> None:
        disk = self._enter(DiskOperation.SYNC, path)
        if disk is None:
            self._below.sync_directory(path)
            return
        with disk.syncing(), disk.unsynced.sync_directory(path):
            self._below.sync_directory(path)

    def make_read_only(self, path: str) -> None:
        self._enter(DiskOperation.WRITE, path)
        self._below.make_read_only(path)

    def mount_point(self, path: str) -> str:
        return self._below.mount_point(path)


def faulty_disks(paths: Iterable[str]) -> dict[str, FaultyDisk]:
    """Return a healthy disk for each directory, by its absolute path."""
    return {path: FaultyDisk(path) for path in map(os.path.abspath, paths)}
