"""`.timeindex`: from timestamps to offsets of a segment (KIP-33).

An entry says: up to this offset (the last of a batch, relative to the segment's base) no timestamp
is larger than this one. Timestamps rise from entry to entry. When a segment is rolled or closed its
largest timestamp is added, even beyond the index's limit, so the last entry has it.
"""

from typing import NamedTuple

from spindle.log.formats.index_entries import TIME_ENTRY, TIME_ENTRY_KEY
from spindle.log.formats.names import TIME_INDEX_SUFFIX, offset_name
from spindle.log.open_files import FileHandles
from spindle.log.segments.index_file import IndexFile
from spindle.protocol.sentinels import NO_TIMESTAMP


class TimestampPosition(NamedTuple):
    """A timestamp and the last offset of the batch that contains it."""

    timestamp_ms: int
    offset: int


class TimeIndex:
    """The time index of one segment."""

    __slots__ = ("base_offset", "file", "last")

    def __init__(
        self, handles: FileHandles, directory: str, base_offset: int, max_bytes: int, suffix: str
    ) -> None:
        path = f"{directory}/{offset_name(base_offset, TIME_INDEX_SUFFIX)}{suffix}"
        self.file = IndexFile(handles, path, TIME_ENTRY, TIME_ENTRY_KEY, max_bytes)
        self.base_offset = base_offset
        self.last = TimestampPosition(NO_TIMESTAMP, base_offset)

    def create(self) -> None:
        """Create the file with its full size and no entries."""
        self.file.create()
        self.last = TimestampPosition(NO_TIMESTAMP, self.base_offset)

    def reset(self) -> None:
        """Drop all entries."""
        self.file.reset()
        self.last = TimestampPosition(NO_TIMESTAMP, self.base_offset)

    def open_trimmed(self, size_bytes: int) -> bool:
        """Open a closed file; return False if its entries are invalid and must be rebuilt."""
        if not self.file.open_trimmed(size_bytes):
            return False
        self._read_last()
        if self.file.count == 0:
            return True
        if self.file.count == 1:
            return self.last.offset >= self.base_offset
        first_timestamp, first_offset = self.file.entry_at(0)
        return first_timestamp <= self.last.timestamp_ms and self.last.offset >= (
            self.base_offset + first_offset
        )

    def append_if_later(
        self, timestamp_ms: int, last_offset: int, *, is_final: bool = False
    ) -> None:
        """Add an entry if its timestamp is larger than that of the last one."""
        if timestamp_ms > self.last.timestamp_ms:
            self.file.append(timestamp_ms, last_offset - self.base_offset, is_final=is_final)
            self.last = TimestampPosition(timestamp_ms, last_offset)

    def lookup(self, timestamp_ms: int) -> int:
        """Return an offset up to which every timestamp is <= `timestamp_ms`.

        At least the base offset.
        """
        entry = self.file.floor_entry(timestamp_ms)
        return self.base_offset + (0 if entry is None else entry[1])

    def truncate_to(self, offset: int) -> None:
        """Drop entries of `offset` and later."""
        count = self.file.count
        while count and self.base_offset + self.file.entry_at(count - 1)[1] >= offset:
            count -= 1
        self.file.keep(count)
        self._read_last()

    @property
    def is_full(self) -> bool:
        """True when there is room only for the segment's final entry."""
        return self.file.count >= self.file.max_entries - 1

    def _read_last(self) -> None:
        self.last = TimestampPosition(NO_TIMESTAMP, self.base_offset)
        if self.file.count:
            timestamp, relative_offset = self.file.entry_at(self.file.count - 1)
            self.last = TimestampPosition(timestamp, self.base_offset + relative_offset)
