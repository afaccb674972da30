"""Index files: entries of one size, in ascending order of the number they begin with.

The index of the segment that is written to has its full size from the start, with zeros after the
last entry; it is cut to its entries when the segment is rolled or closed. So the size of a file
that was not closed is meaningless, and such an index is rebuilt.

An index that was loaded grows to its full size with its first new entry.
"""

from struct import Struct
from typing import Final

from spindle.log.open_files import FileHandles

_SEARCH_BYTES: Final = 4096


class IndexFile:
    """Entry storage of one index; entries are appended at the end or cut off there."""

    __slots__ = (
        "_entry",
        "_handles",
        "_has_full_size",
        "_is_dirty",
        "_key",
        "count",
        "max_entries",
        "path",
    )

    def __init__(
        self, handles: FileHandles, path: str, entry: Struct, key: Struct, max_bytes: int
    ) -> None:
        """Nothing is read or written yet.

        Args:
            key: how to read the number at the beginning of an entry.
            max_bytes: the full size of the file, rounded down to whole entries.
        """
        self._handles = handles
        self._entry = entry
        self._key = key
        self._has_full_size = False
        self._is_dirty = False
        self.path = path
        self.count = 0
        self.limit(max_bytes)

    def limit(self, max_bytes: int) -> None:
        """Set the full size. A file that was created with another full size keeps that size."""
        self.max_entries = max(1, max_bytes // self._entry.size)

    def use(self, handles: FileHandles) -> None:
        """Use another cache of open files."""
        self._handles = handles

    def create(self) -> None:
        """Make an empty file of full size."""
        file = self._handles.get(self.path, create=True)
        if file.size():
            file.truncate(0)
        file.truncate(self.max_entries * self._entry.size)
        self.count = 0
        self._has_full_size = True
        self._is_dirty = True

    def open_trimmed(self, size_bytes: int) -> bool:
        """Load the entries of a closed file; return False if its size is invalid."""
        self.count, rest = divmod(size_bytes, self._entry.size)
        self._has_full_size = False
        return rest == 0

    def reset(self) -> None:
        """Forget all entries; the file becomes empty (and is created if it is missing)."""
        file = self._handles.get(self.path, create=True)
        if file.size():
            file.truncate(0)
        self.count = 0
        self._has_full_size = False
        self._is_dirty = True

    def append(self, *fields: int, is_final: bool = False) -> None:
        """Add an entry; the caller keeps to `max_entries` and to the order.

        Args:
            is_final: no other entry will follow, so the file need not grow to its full size.
        """
        file = self._handles.get(self.path, create=True)
        if not is_final:
            self.grow_to_full_size()
        file.pwrite(self._entry.pack(*fields), self.count * self._entry.size)
        self.count += 1
        self._is_dirty = True

    def grow_to_full_size(self) -> None:
        """Give the file its full size, as its next entry would."""
        if not self._has_full_size:
            size_bytes = max(self.max_entries, self.count + 1) * self._entry.size
            self._handles.get(self.path, create=True).truncate(size_bytes)
            self._has_full_size = True
            self._is_dirty = True

    def appended_elsewhere(self, count: int) -> None:
        """Count the entries that were written to the file by other code."""
        if count != self.count:
            self.count = count
            self._is_dirty = True

    def entry_at(self, index: int) -> tuple[int, ...]:
        """Return the entry at `index`, 0 <= index < count."""
        size = self._entry.size
        return self._entry.unpack(self._handles.get(self.path).pread(size, index * size))

    def keep(self, count: int) -> None:
        """Drop all entries from index `count` on."""
        if count < self.count:
            self.count = count
            self._handles.get(self.path).truncate(count * self._entry.size)
            self._has_full_size = False
            self._is_dirty = True

    def trim(self) -> None:
        """Cut the file to its entries."""
        file = self._handles.get(self.path, create=True)
        if file.size() != self.count * self._entry.size:
            file.truncate(self.count * self._entry.size)
            self._is_dirty = True
        self._has_full_size = False

    def sync(self) -> None:
        """Return when all changes since the last `sync` are on the device."""
        if self._is_dirty:
            self._handles.get(self.path, create=True).sync()
            self._is_dirty = False

    def floor(self, number: int) -> int:
        """Return the index of the last entry whose leading number is <= `number`; else -1."""
        return self._search(number, 0)[0]

    def floor_entry(self, number: int, at: int = 0) -> tuple[int, ...] | None:
        """Return the last entry whose leading number is <= `number`; None if there is none.

        Args:
            at: byte of the entry where a number of the same size is to be compared instead; it must
                ascend, too.
        """
        index, first, block = self._search(number, at)
        if index < 0:
            return None
        if index < first:
            return self.entry_at(index)
        return self._entry.unpack_from(block, (index - first) * self._entry.size)

    def _search(self, number: int, at: int) -> tuple[int, int, bytes]:
        """Return the index of an entry, and the entries that were read last with the index of their
        first.
        """
        size = self._entry.size
        low, high = 0, self.count
        if high == 0:
            return -1, 0, b""
        file = self._handles.get(self.path)
        key = self._key
        while (high - low) * size > _SEARCH_BYTES:
            middle = (low + high) // 2
            if key.unpack(file.pread(key.size, middle * size + at))[0] <= number:
                low = middle
            else:
                high = middle
        block = file.pread((high - low) * size, low * size)
        first = low
        while low < high:
            middle = (low + high) // 2
            if key.unpack_from(block, (middle - first) * size + at)[0] <= number:
                low = middle + 1
            else:
                high = middle
        return low - 1, first, block
