"""`.index`: from offsets to byte positions of a segment, one entry every few KiB.

An entry holds the *last* offset of a batch (relative to the segment's base) and the position where
that batch *starts*. The first batch of a segment never has one.
"""

from typing import NamedTuple

from spindle.log.formats.index_entries import OFFSET_ENTRY, OFFSET_ENTRY_KEY
from spindle.log.formats.names import INDEX_SUFFIX, offset_name
from spindle.log.open_files import FileHandles
from spindle.log.segments.index_file import IndexFile


class OffsetPosition(NamedTuple):
    """A batch by its last offset, and where it starts."""

    offset: int
    position: int


class OffsetIndex:
    """The offset index of one segment."""

    __slots__ = ("base_offset", "file", "last")

    def __init__(
        self, handles: FileHandles, directory: str, base_offset: int, max_bytes: int, suffix: str
    ) -> None:
        path = f"{directory}/{offset_name(base_offset, INDEX_SUFFIX)}{suffix}"
        self.file = IndexFile(handles, path, OFFSET_ENTRY, OFFSET_ENTRY_KEY, max_bytes)
        self.base_offset = base_offset
        self.last = OffsetPosition(base_offset, 0)

    def create(self) -> None:
        """Create the file with its full size and no entries."""
        self.file.create()
        self.last = OffsetPosition(self.base_offset, 0)

    def reset(self) -> None:
        """Drop all entries."""
        self.file.reset()
        self.last = OffsetPosition(self.base_offset, 0)

    def open_trimmed(self, size_bytes: int, segment_bytes: int) -> bool:
        """Open a closed file; return False if its entries are invalid and must be rebuilt."""
        if not self.file.open_trimmed(size_bytes):
            return False
        self._read_last()
        return self.file.count == 0 or (
            self.last.offset > self.base_offset and 0 < self.last.position < segment_bytes
        )

    def append(self, last_offset: int, position: int) -> None:
        """Add the batch that ends at `last_offset` and starts at `position`."""
        self.file.append(last_offset - self.base_offset, position)
        self.last = OffsetPosition(last_offset, position)

    def lookup(self, offset: int) -> int:
        """Return the nearest indexed position at or before the batch with `offset`."""
        if offset >= self.last.offset:
            return self.last.position
        entry = self.file.floor_entry(offset - self.base_offset)
        return 0 if entry is None else entry[1]

    def batch_before(self, position: int) -> int:
        """Return the nearest indexed start of a batch at or before `position`."""
        if position >= self.last.position:
            return self.last.position
        entry = self.file.floor_entry(position, OFFSET_ENTRY_KEY.size)
        return 0 if entry is None else entry[1]

    def truncate_to(self, offset: int) -> None:
        """Drop entries of `offset` and later."""
        self.file.keep(self.file.floor(offset - self.base_offset - 1) + 1)
        self._read_last()

    @property
    def is_full(self) -> bool:
        return self.file.count >= self.file.max_entries

    def _read_last(self) -> None:
        self.last = OffsetPosition(self.base_offset, 0)
        if self.file.count:
            relative_offset, position = self.file.entry_at(self.file.count - 1)
            self.last = OffsetPosition(self.base_offset + relative_offset, position)
