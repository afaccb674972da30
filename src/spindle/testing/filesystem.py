"""A file system in memory that can lose power and fail, for tests and the simulator.

It remembers, beside the present state, what a device would still hold after a power failure: the
content of a file as of its last `sync`, the names in a directory as of the last `sync_directory`.
`crash` goes back to that. Faults make chosen operations on chosen paths raise an `OSError`. A
directory can run full or turn read-only, like the file system of a disk of its own.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from spindle.common.ports import Bytes, File

_CAPACITY_BYTES: Final = 1 << 40
KeptChanges: TypeAlias = Callable[[str, int], Collection[int]]
"""From the path of a directory and the count of its unsynced changes (files created, renamed and
removed) to the numbers of those that survive a crash, from 0."""
KeptBytes: TypeAlias = Callable[[str, int], int]
"""From a path and the count of unsynced bytes at its end to how many of them survive a crash."""
HasZeros: TypeAlias = Callable[[str], bool]
"""Whether the bytes at the end of a file that a crash takes are zeros afterwards, and not missing.
"""


@dataclass(slots=True)
class Fault:
    """Operations that fail. Empty `operation` means all; `after` of them succeed before."""

    path_part: str
    operation: str = ""
    error_number: int = errno.EIO
    after: int = 0


_WRITES: Final = (
    "append",
    "pwrite",
    "reserve",
    "truncate",
    "write_atomically",
    "make_directories",
    "rename",
    "remove",
    "remove_tree",
)


class _File:
    """A file's content. Zeros that were added at its end take no memory."""

    __slots__ = (
        "_data",
        "_durable",
        "_durable_bytes",
        "modified_ms",
        "reserved_bytes",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.size_bytes = 0
        self.reserved_bytes = 0
        self.modified_ms = 0
        self._data = bytearray()
        self._durable = b""
        self._durable_bytes = 0

    def read(self, start: int, end: int) -> bytes:
        end = min(end, self.size_bytes)
        data = bytes(self._data[start:end])
        return data + bytes(max(0, end - start - len(data)))

    def write(self, data: Bytes, position: int) -> None:
        content = self._data
        if position > len(content):
            content += bytes(position - len(content))
        content[position : position + len(data)] = data
        self.size_bytes = max(self.size_bytes, position + len(data))

    def resize(self, size_bytes: int) -> None:
        del self._data[size_bytes:]
        self.size_bytes = size_bytes

    def sync(self) -> None:
        self._durable = bytes(self._data)
        self._durable_bytes = self.size_bytes

    @property
    def taken_bytes(self) -> int:
        """Return how many bytes of the disk the file takes."""
        return max(self.size_bytes, self.reserved_bytes)

    @property
    def is_durable(self) -> bool:
        """Whether the device holds the present content."""
        return self.size_bytes == self._durable_bytes and self._data == self._durable

    @property
    def unsynced_bytes(self) -> int:
        """The number of bytes at the end that are not synced."""
        return max(0, self.size_bytes - self._durable_bytes)

    def go_back(self, kept_bytes: int, *, has_zeros: bool) -> None:
        """Return to the durable content, and the given number of bytes written after it.

        Args:
            has_zeros: the size stays, and the bytes that are lost are zeros.
        """
        start = self._durable_bytes
        former_bytes = self.size_bytes
        tail = self.read(start, start + kept_bytes)
        self._data = bytearray(self._durable)
        self.size_bytes = start
        if tail:
            self.write(tail, start)
        if has_zeros:
            self.size_bytes = max(self.size_bytes, former_bytes)


class _Directory:
    """Names and what they stand for, now and on the device.

    `changes` are those since the last sync, in order, each with the names that it sets or removes
    (None).
    """

    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _File | _Directory] = {}
        self.durable: dict[str, _File | _Directory] = {}
        self.changes: list[dict[str, _File | _Directory | None]] = []

    def change(self, names: dict[str, _File | _Directory | None]) -> None:
        """Set or remove names at once."""
        _apply(names, self.entries)
        self.changes.append(names)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes = []

    def go_back(self, kept: Collection[int]) -> None:
        """Return to the durable names, and apply the later changes with these numbers."""
        self.entries = dict(self.durable)
        for number, names in enumerate(self.changes):
            if number in kept:
                _apply(names, self.entries)
        self.sync()


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    __slots__ = ("_file", "_is_open", "_owner", "path")

    def __init__(self, owner: MemoryFileSystem, path: str, file: _File) -> None:
        self._owner = owner
        self._file = file
        self._is_open = True
        self.path = path

    def pread(self, size_bytes: int, position: int, /) -> bytes:
        self._use("pread")
        return self._file.read(position, position + size_bytes)

    def send(self, socket_descriptor: int, size_bytes: int, position: int, /) -> int:
        raise OSError(errno.EINVAL, "a file in memory cannot be sent", self.path)

    def append(self, parts: Sequence[Bytes], /) -> int:
        self._use("append")
        data = b"".join(parts)
        self._write(data, self._file.size_bytes)
        return len(data)

    def pwrite(self, data: Bytes, position: int, /) -> None:
        self._use("pwrite")
        self._write(data, position)

    def reserve(self, size_bytes: int, position: int, /) -> bool:
        self._use("reserve")
        end = position + size_bytes
        wanted = max(0, end - self._file.taken_bytes)
        taken = self._owner.take_space(self.path, wanted)
        if taken < wanted:
            self._owner.give_space(self.path, taken)
            raise OSError(errno.ENOSPC, "no space to reserve", self.path)
        self._file.reserved_bytes = max(self._file.reserved_bytes, end)
        return True

    def size(self) -> int:
        self._use("size")
        return self._file.size_bytes

    def truncate(self, size_bytes: int, /) -> None:
        self._use("truncate")
        file = self._file
        self._owner.give_space(self.path, file.taken_bytes - file.size_bytes)
        file.reserved_bytes = 0
        file.resize(size_bytes)

    def sync(self) -> None:
        self._use("sync")
        self._file.sync()

    def forget_cached(self, size_bytes: int, position: int, /) -> None:
        """Do nothing: there is no cache."""

    def close(self) -> None:
        self._is_open = False

    def _write(self, data: Bytes, position: int) -> None:
        """Write as much as there is space for; like a real file, it then has part of the data."""
        growth = max(0, position + len(data) - self._file.taken_bytes)
        missing = growth - self._owner.take_space(self.path, growth)
        self._file.write(data[: len(data) - missing] if missing else data, position)
        self._file.modified_ms = self._owner.now_ms
        if missing:
            self._owner.refuse(errno.ENOSPC, "append", self.path)

    def _use(self, operation: str) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        self._owner.check(operation, self.path)


class MemoryFileSystem:
    """`FileSystem` in memory.

    Attributes:
        now_ms: the time that files written to are stamped with.
        free_bytes: by path of a directory; a directory without an entry never runs full. Released
            reservations free space, removed files do not.
        reservation_bytes: see the port.
        read_only: paths of the directories that cannot be changed.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.reservation_bytes = 1024 * 1024
        self.faults: list[Fault] = []
        self.free_bytes: dict[str, int] = {}
        self.read_only: set[str] = set()
        self.operations: list[tuple[str, str]] = []
        """Every operation so far with its path, in order."""
        self._root = _Directory()

    def check(self, operation: str, path: str) -> None:
        """Note an operation; raise the error of the first fault that is for it."""
        self.operations.append((operation, path))
        for fault in self.faults:
            if fault.path_part in path and fault.operation in ("", operation):
                if fault.after > 0:
                    fault.after -= 1
                    continue
                self.refuse(fault.error_number, operation, path)
        if self.read_only and operation in _WRITES:
            self._check_writable(operation, path)

    def refuse(self, error_number: int, operation: str, path: str) -> NoReturn:
        """Raise the error of an operation.

        Raises:
            OSError: always.
        """
        raise OSError(error_number, f"injected fault in {operation}", path)

    def take_space(self, path: str, wanted_bytes: int) -> int:
        """Return how much of the wanted space the file's directory has left, and take it."""
        for directory, free_bytes in self.free_bytes.items():
            if is_within(path, directory):
                taken_bytes = min(free_bytes, wanted_bytes)
                self.free_bytes[directory] = free_bytes - taken_bytes
                return taken_bytes
        return wanted_bytes

    def give_space(self, path: str, size_bytes: int) -> None:
        """Add to the space that the file's directory has left."""
        for directory in self.free_bytes:
            if is_within(path, directory):
                self.free_bytes[directory] += size_bytes
                return

    def _check_writable(self, operation: str, path: str) -> None:
        if any(is_within(path, directory) for directory in self.read_only):
            self.refuse(errno.EROFS, operation, path)

    # Whole disks.

    def copy_of(self, path: str) -> object:
        """Return a copy of a directory's content, for `put_back`."""
        return copy.deepcopy(self._directory(path))

    def empty(self) -> object:
        """Return the content of a new disk, for `put_back`."""
        return _Directory()

    def put_back(self, path: str, content: object) -> None:
        """Replace a directory's content by that of an earlier time."""
        assert isinstance(content, _Directory)
        self._directory(path)
        parent, name = self._parent(path)
        parent.entries[name] = parent.durable[name] = content
        parent.changes = [c for c in parent.changes if name not in c]

    def swap(self, first: str, second: str) -> None:
        """Exchange the content of two directories, as if their disks were mounted differently."""
        one, other = self._directory(first), self._directory(second)
        self.put_back(first, other)
        self.put_back(second, one)

    def crash(
        self,
        kept: KeptBytes | None = None,
        kept_changes: KeptChanges | None = None,
        has_zeros: HasZeros | None = None,
    ) -> None:
        """Lose power: only what was synced remains, with the bytes and changes that are kept.

        Open files must not be used any more.
        """
        _go_back(
            self._root,
            "",
            kept or (lambda path, unsynced: 0),
            kept_changes or (lambda path, changes: ()),
            has_zeros or (lambda path: False),
        )

    def is_durable(self, path: str) -> bool:
        """Return whether a power failure leaves the file under its name and with its content."""
        parent, name = self._parent(path)
        file = self._file(path)
        return parent.durable.get(name) is file and file.is_durable

    # The port.

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        self.check("open", path)
        if writable or create:
            self._check_writable("open", path)
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = _File()
            parent.change({name: node})
            node.modified_ms = self.now_ms
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return MemoryFile(self, path, node)

    def read_bytes(self, path: str) -> bytes:
        self.check("read_bytes", path)
        file = self._file(path)
        return file.read(0, file.size_bytes)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.check("write_atomically", path)
        if self.take_space(path, len(data)) < len(data):
            self.refuse(errno.ENOSPC, "write_atomically", path)
        parent, name = self._parent(path)
        file = _File()
        file.write(data, 0)
        file.sync()
        file.modified_ms = self.now_ms
        parent.change({name: file})
        parent.sync()

    def exists(self, path: str) -> bool:
        self.check("exists", path)
        return self._find(path) is not None

    def capacity(self, path: str) -> tuple[int, int]:
        self.check("capacity", path)
        self._directory(path)
        return _CAPACITY_BYTES, _CAPACITY_BYTES

    def is_directory(self, path: str) -> bool:
        self.check("is_directory", path)
        return isinstance(self._find(path), _Directory)

    def list_directory(self, path: str) -> list[str]:
        self.check("list_directory", path)
        return sorted(self._directory(path).entries)

    def size(self, path: str) -> int:
        self.check("size", path)
        return self._file(path).size_bytes

    def modified_ms(self, path: str) -> int:
        self.check("modified_ms", path)
        return self._file(path).modified_ms

    def make_directories(self, path: str) -> None:
        self.check("make_directories", path)
        directory = self._root
        for name in _names(path):
            child = directory.entries.get(name)
            if child is None:
                child = _Directory()
                directory.change({name: child})
            if isinstance(child, _File):
                raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
            directory = child

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        parent, name = self._parent(source)
        node = parent.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
        new_parent, new_name = self._parent(target)
        replaced = new_parent.entries.get(new_name)
        if isinstance(replaced, _Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "directory is not empty", target)
        if new_parent is parent:
            parent.change({name: None, new_name: node})
        else:
            parent.change({name: None})
            new_parent.change({new_name: node})

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self._file(path)
        parent, name = self._parent(path)
        parent.change({name: None})

    def remove_tree(self, path: str) -> None:
        self.check("remove_tree", path)
        self._directory(path)
        parent, name = self._parent(path)
        parent.change({name: None})

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        self._directory(path).sync()

    def make_read_only(self, path: str) -> None:
        self.check("make_read_only", path)
        self._file(path)

    def mount_point(self, path: str) -> str:
        return "/"

    # Finding nodes.

    def _find(self, path: str) -> _File | _Directory | None:
        node: _File | _Directory | None = self._root
        for name in _names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if isinstance(node, _File):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def is_within(path: str, directory: str) -> bool:
    """Return whether the path is the directory or below it."""
    return f"{path}/".startswith(f"{directory}/")


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _apply(
    names: Mapping[str, _File | _Directory | None], entries: dict[str, _File | _Directory]
) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _go_back(
    directory: _Directory,
    path: str,
    kept: KeptBytes,
    kept_changes: KeptChanges,
    has_zeros: HasZeros,
) -> None:
    directory.go_back(kept_changes(path, len(directory.changes)) if directory.changes else ())
    for name, node in directory.entries.items():
        child_path = f"{path}/{name}"
        if isinstance(node, _Directory):
            _go_back(node, child_path, kept, kept_changes, has_zeros)
            continue
        unsynced_bytes = node.unsynced_bytes
        node.go_back(
            kept(child_path, unsynced_bytes) if unsynced_bytes else 0,
            has_zeros=unsynced_bytes > 0 and has_zeros(child_path),
        )
