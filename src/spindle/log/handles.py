"""Open files of one log directory, as many as a limit allows, least recently used closed first.

A partition without reads and writes holds no descriptor, so a directory may have thousands of
partitions under any limit of open files.
"""

from contextlib import suppress
from typing import Final

from spindle.common.ports import File, FileSystem
from spindle.log.reserved_space import ReservedSpace

DEFAULT_OPEN_FILES: Final = 512


class FileHandles:
    """A cache of open files by path, and the space that is reserved for some of them."""

    __slots__ = ("_capacity", "_open", "file_system", "reserved")

    def __init__(self, file_system: FileSystem, capacity: int = DEFAULT_OPEN_FILES) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}, want at least 1 open file")
        self.file_system = file_system
        self._capacity = capacity
        self._open: dict[str, File] = {}
        self.reserved = ReservedSpace(file_system, self.get)

    def get(self, path: str, *, create: bool = False) -> File:
        """Return the open file at `path`; open it for reading and writing if necessary.

        The file may be closed by a later `get` of another path: use it at once, do not keep it.
        """
        file = self._open.pop(path, None)
        if file is None:
            file = self.file_system.open(path, create=create)
            while len(self._open) >= self._capacity:
                self._open.pop(next(iter(self._open))).close()
        self._open[path] = file
        return file

    def limit(self, capacity: int) -> None:
        """Keep at most `capacity` files open from now on."""
        self._capacity = capacity
        while len(self._open) > capacity:
            self._open.pop(next(iter(self._open))).close()

    def release(self, path: str) -> None:
        """Close the file if it is open (before it is renamed or removed)."""
        self.reserved.forget(path)
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def release_below(self, directory: str) -> None:
        """Close every open file in `directory` (before it is renamed or removed)."""
        self.reserved.forget_below(directory)
        prefix = directory + "/"
        for path in [path for path in self._open if path.startswith(prefix)]:
            self._open.pop(path).close()

    def close(self) -> None:
        """Close all files; the cache can be used again."""
        while self._open:
            self._open.popitem()[1].close()

    def abandon(self) -> None:
        """Close all files of a dead disk, where closing may fail as well."""
        while self._open:
            with suppress(OSError):
                self._open.popitem()[1].close()

    def __len__(self) -> int:
        return len(self._open)
