"""Changes of a disk that are not synced, some of which a power failure takes.

The node's process keeps the notes. After its death, the process of the test changes the files with
`lose_unsynced`. Files are named by inode, because they are renamed while they are open.
"""

import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

from spindle.common.ports import File

Notes = Mapping[str, Any]
"""The notes of one disk as JSON values."""


class NameChange(NamedTuple):
    """A new name in a directory. `old_name` is None for a file or directory that was created."""

    inode: int
    old_name: str | None


def inode_of(path: str) -> int:
    """Return the inode of a file or directory; 0 if another thread has removed it."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


class UnsyncedChanges:
    """The notes of one disk. All threads that use the disk share it.

    A removed name counts as durable at once, and with it the earlier changes of its directory. The
    same holds for a name that replaces another and for a name in another directory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durable_bytes: dict[int, int] = {}
        self._names: dict[int, list[NameChange]] = {}

    def to_json(self) -> Notes:
        with self._lock:
            return {
                "durable_bytes": list(self._durable_bytes.items()),
                "names": list(self._names.items()),
            }

    # -- bytes

    def grows(self, inode: int, size_bytes: int) -> None:
        """Note a write behind `size_bytes`, the present size of the file."""
        with self._lock:
            self._durable_bytes.setdefault(inode, size_bytes)

    def shrinks(self, inode: int, size_bytes: int) -> None:
        """Note a truncation, which counts as durable."""
        with self._lock:
            if inode in self._durable_bytes:
                self._durable_bytes[inode] = min(self._durable_bytes[inode], size_bytes)

    @contextmanager
    def sync(self, inode: int, file: File) -> Iterator[None]:
        """Note a sync, which the body carries out; it covers what was written before it began."""
        size_bytes = file.size()
        yield
        with self._lock:
            if inode in self._durable_bytes:
                self._durable_bytes[inode] = max(self._durable_bytes[inode], size_bytes)

    # -- names

    @contextmanager
    def create(self, path: str) -> Iterator[None]:
        """Note a file or directory that the body creates, unless it exists."""
        existed = os.path.lexists(path)
        yield
        if not existed:
            with self._lock:
                inode = inode_of(path)
                self._durable_bytes[inode] = 0
                self._add(path, NameChange(inode, None))

    @contextmanager
    def rename(self, source: str, target: str) -> Iterator[None]:
        """Note a rename, which the body carries out."""
        replaces = os.path.lexists(target)
        parents = os.path.dirname(source), os.path.dirname(target)
        yield
        with self._lock:
            if replaces or parents[0] != parents[1]:
                self._forget(parents)
            else:
                change = NameChange(inode_of(target), os.path.basename(source))
                self._add(target, change)

    def removed(self, path: str) -> None:
        """Note the removal of a file or directory."""
        with self._lock:
            self._forget([os.path.dirname(path)])

    def written_atomically(self, path: str) -> None:
        """Note a file that was written, synced and renamed, and whose directory was synced."""
        with self._lock:
            self._durable_bytes.pop(inode_of(path), None)
            self._forget([os.path.dirname(path)])

    @contextmanager
    def sync_directory(self, path: str) -> Iterator[None]:
        """Note the sync of a directory, which the body carries out."""
        inode = inode_of(path)
        with self._lock:
            before = len(self._names.get(inode, ()))
        yield
        with self._lock:
            if inode in self._names:
                self._names[inode] = self._names[inode][before:]

    def _add(self, path: str, change: NameChange) -> None:
        directory = inode_of(os.path.dirname(path))
        self._names.setdefault(directory, []).append(change)

    def _forget(self, directories: Sequence[str]) -> None:
        for directory in directories:
            self._names.pop(inode_of(directory), None)


def lose_unsynced(directory: str, notes: Notes, random: Random) -> list[str]:
    """Take some of the unsynced changes from the files of a disk whose node has ended.

    Files lose bytes at their ends, or have zeros there. Directories keep the first of their new
    names and lose the others.

    Args:
        notes: of `UnsyncedChanges.to_json`.

    Returns:
        a line for each file that has lost something.
    """
    by_inode = {os.stat(directory).st_ino: directory}
    for folder, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = os.path.join(folder, name)
            by_inode[os.lstat(path).st_ino] = path
    lost: list[str] = []
    for inode, durable_bytes in notes["durable_bytes"]:
        if inode in by_inode and os.path.isfile(by_inode[inode]):
            lost += _lose_bytes(by_inode[inode], durable_bytes, random)
    for inode, changes in notes["names"]:
        if inode in by_inode and os.path.isdir(by_inode[inode]):
            kept = random.randint(0, len(changes))
            lost += _lose_names(by_inode[inode], [NameChange(*row) for row in changes[kept:]])
    return lost


def _lose_bytes(path: str, durable_bytes: int, random: Random) -> Iterator[str]:
    size_bytes = os.stat(path).st_size
    kept_bytes = random.randint(min(durable_bytes, size_bytes), size_bytes)
    are_zeros = random.random() < 0.5
    if kept_bytes < size_bytes:
        os.truncate(path, kept_bytes)
        if are_zeros:
            os.truncate(path, size_bytes)
        yield f"{path}: {size_bytes - kept_bytes} bytes {'are zeros' if are_zeros else 'are lost'}"


def _lose_names(directory: str, changes: Sequence[NameChange]) -> Iterator[str]:
    for change in reversed(changes):
        with os.scandir(directory) as entries:
            entry = next((entry for entry in entries if entry.inode() == change.inode), None)
        if entry is None:
            continue
        if change.old_name is not None:
            os.rename(entry.path, os.path.join(directory, change.old_name))
            yield f"{entry.path}: has its old name {change.old_name}"
        elif entry.is_dir():
            shutil.rmtree(entry.path)
            yield f"{entry.path}: the directory does not exist"
        else:
            os.remove(entry.path)
            yield f"{entry.path}: the file does not exist"
