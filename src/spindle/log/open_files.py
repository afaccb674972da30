"""Open files of one log directory up to a limit; the least recently used is closed first.

A partition without reads and writes holds no descriptor, so a directory may have thousands of
partitions under any limit of open files. A file that is being sent to a client may be pinned: it
stays open when its path is renamed or removed, within the same limit.
"""

from contextlib import suppress
from typing import Final

from spindle.common.ports import File, FileSystem
from spindle.log.reserved_space import ReservedSpace

DEFAULT_OPEN_FILES: Final = 512
_SHARE_LEFT_OPEN: Final = 4
"""A quarter of the open files at most may be pinned."""


class FileHandles:
    """A cache of open files by path, and the space that is reserved for some of them."""

    __slots__ = ("_capacity", "_held", "_left_open", "_open", "file_system", "reserved")

    def __init__(self, file_system: FileSystem, capacity: int = DEFAULT_OPEN_FILES) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}, want at least 1 open file")
        self.file_system = file_system
        self._capacity = capacity
        self._open: dict[str, File] = {}
        self._held: dict[File, int] = {}
        self._left_open: dict[File, None] = {}
        self.reserved = ReservedSpace(file_system, self.get)

    def get(self, path: str, *, create: bool = False) -> File:
        """Return the open file at `path`; open it for reading and writing if necessary.

        The file may be closed by a later `get` of another path: use it at once, do not keep it.
        """
        file = self._open.pop(path, None)
        if file is None:
            file = self.file_system.open(path, create=create)
            self._shrink_to(self._capacity - 1)
        self._open[path] = file
        return file

    def pin(self, path: str) -> File:
        """Return the open file at `path`, which stays open until `drop`.

        If too many files are pinned, it may be closed earlier: see `is_held`.
        """
        file = self.get(path)
        self._held[file] = self._held.get(file, 0) + 1
        return file

    def is_held(self, file: File) -> bool:
        """Return True if a file that `pin` returned is still open."""
        return file in self._held

    def drop(self, file: File) -> None:
        """End one `pin` of the file."""
        count = self._held.pop(file, 0)
        if count > 1:
            self._held[file] = count - 1
        elif file in self._left_open:
            del self._left_open[file]
            file.close()

    def limit(self, capacity: int) -> None:
        """Keep at most `capacity` files open from now on."""
        self._capacity = capacity
        self._shrink_to(capacity)

    def _shrink_to(self, count: int) -> None:
        while self._open and len(self._open) + len(self._left_open) > count:
            self._let_go(self._open.pop(next(iter(self._open))))

    def _let_go(self, file: File) -> None:
        """Close a file whose path was renamed or removed, unless it is held."""
        if file in self._held and len(self._left_open) < self._capacity // _SHARE_LEFT_OPEN:
            self._left_open[file] = None
            return
        self._held.pop(file, None)
        file.close()

    def release(self, path: str) -> None:
        """Close the file if it is open and not held (before it is renamed or removed)."""
        self.reserved.forget(path)
        file = self._open.pop(path, None)
        if file is not None:
            self._let_go(file)

    def release_below(self, directory: str) -> None:
        """Close every open file in `directory` (before it is renamed or removed)."""
        self.reserved.forget_below(directory)
        prefix = directory + "/"
        for path in [path for path in self._open if path.startswith(prefix)]:
            self._let_go(self._open.pop(path))

    def close(self) -> None:
        """Close all files, held or not; the cache can be used again."""
        for file in self._take_all():
            file.close()

    def abandon(self) -> None:
        """Close all files of a dead disk, where closing may fail as well."""
        for file in self._take_all():
            with suppress(OSError):
                file.close()

    def _take_all(self) -> list[File]:
        files = [*self._open.values(), *self._left_open]
        self._open.clear()
        self._left_open.clear()
        self._held.clear()
        return files

    def __len__(self) -> int:
        return len(self._open) + len(self._left_open)
