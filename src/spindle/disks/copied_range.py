"""Proof that copied records are on the disk: their digest while copying, and after reading back.

`read_back` runs beside the thread of the target directory.
"""

from typing import Final, NamedTuple

from spindle.common.checksums import crc32c
from spindle.common.ports import FileSystem

COPIED_RANGE_BYTES: Final = 32 * 1024 * 1024
"""Bytes that are synced and read back at a time."""

_READ_BYTES: Final = 1024 * 1024


class FileSpan(NamedTuple):
    """A range of a file to which records were copied."""

    path: str
    position: int
    size_bytes: int


class CopiedRange(NamedTuple):
    """Consecutive copied records.

    `crc` is that of the records as they were read from the current log. `truncation_count` is that
    of the future log when they were written.
    """

    first_offset: int
    end_offset: int
    crc: int
    parts: tuple[FileSpan, ...]
    truncation_count: int

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    def extended(self, following: "CopiedRange") -> "CopiedRange":
        """Return the range extended by the records after it; their `crc` continues this range's."""
        *before, last = self.parts
        first, *after = following.parts
        if (first.path, first.position) == (last.path, last.position + last.size_bytes):
            middle = [last._replace(size_bytes=last.size_bytes + first.size_bytes)]
        else:
            middle = [last, first]
        return following._replace(first_offset=self.first_offset, parts=(*before, *middle, *after))


def read_back(file_system: FileSystem, copied: CopiedRange) -> int | None:
    """Sync a range, read it back from the device, and return its checksum.

    None if a file is not there any more, or not that long: the future log was truncated, or
    retention has removed a segment.
    """
    crc = 0
    for part in copied.parts:
        try:
            file = file_system.open(part.path, writable=False)
        except FileNotFoundError:
            return None
        try:
            file.sync()
            file.forget_cached(part.size_bytes, part.position)
            position, end = part.position, part.position + part.size_bytes
            while position < end:
                data = file.pread(min(_READ_BYTES, end - position), position)
                if not data:
                    return None
                crc = crc32c(data, crc)
                position += len(data)
        finally:
            file.close()
    return crc
