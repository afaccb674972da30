"""Read the batch headers of one segment, with computed checksums, and continue after damage.

The file is read in windows with pread, because a mapped file that its broker truncates would end
this process. After an invalid header, the walk continues at the next batch that the offset index
names.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

from spindle.audit import file_limits
from spindle.columnar.headers import HeaderWalk
from spindle.common.checksums import crc32c
from spindle.protocol.records.batch import (
    CRC_COVERS_FROM,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
)

WINDOW_BYTES: Final = 1 << 20
"""Bytes of one read; a window stays in the processor's cache while its checksums are computed."""
MAX_BAD_SPANS: Final = 10_000
"""After this many bad spans, the rest of a file is skipped: it may have no valid batch."""
_FIRST_OFFSET: Final = -(2**63)
_LAST_OFFSET: Final = 2**63 - 1


class BadSpan(NamedTuple):
    """Bytes [start, end) that cannot be read as batches.

    Attributes:
        reason: why the header at `start` is invalid; empty if the file ends inside its batch.
        is_zeros: the span begins with zeros, as preallocated space does.
        is_at_end: no batch follows in this file.
        is_too_large: the span begins with a batch that is not read because of its size.
    """

    start: int
    end: int
    reason: str
    is_zeros: bool
    is_at_end: bool
    is_too_large: bool = False


class SegmentScan:
    """One pass over a segment.

    Args:
        file: the open file.
        size_bytes: its size; later appends are not read.
        resume_positions: ascending byte positions at which batches may begin (int64 array).
        on_bytes: called with the bytes of a batch that is too large for a window, as they are read;
            the caller counts other batches with their window.
        checks_records: walk over the records of batches, too: see `records`.
        start_position: where the first batch to be read begins.
    """

    def __init__(
        self,
        file: Any,
        size_bytes: int,
        resume_positions: Any,
        on_bytes: Callable[[int], None],
        *,
        checks_records: bool = False,
        start_position: int = 0,
    ) -> None:
        self._file = file
        self._resume_positions = resume_positions
        self._on_bytes = on_bytes
        self._walk = HeaderWalk(
            _FIRST_OFFSET, _LAST_OFFSET, check_crcs=True, check_records=checks_records
        )
        self._buffer = bytearray(max(HEADER_BYTES, min(WINDOW_BYTES, size_bytes)))
        self.size_bytes = size_bytes
        self._start_position = start_position
        self._without_checksum_until = 0
        self.bad_spans: list[BadSpan] = []
        self.window_at = 0

    def windows(self) -> Iterator[Any]:
        """Yield the fields of batches, arrays (FIELD_COUNT, batches), none of them empty.

        Raises:
            OSError: the disk refuses to read.
        """
        walk = self._walk
        position = self._start_position
        while position < self.size_bytes:
            window = memoryview(self._buffer)[: self.size_bytes - position]
            read_bytes = os.preadv(self._file.fileno(), [window], position)
            if read_bytes == 0:
                self.size_bytes = position  # truncated since
                return
            fields = walk.fields(window[:read_bytes], position, self.size_bytes)
            if fields.shape[1]:
                self.window_at = position
                yield fields
            before, position = position, max(walk.position, position)
            left_bytes = self.size_bytes - position
            if walk.finding or walk.is_torn or 0 < left_bytes < HEADER_BYTES:
                position = self._pass_over(position, walk.finding)
            elif position == before and left_bytes:
                head = os.pread(self._file.fileno(), HEADER_BYTES, position)
                if len(head) < HEADER_BYTES:
                    self.size_bytes = position
                    return
                needed_bytes = BatchHeader._make(HEADER.unpack(head)).size_bytes
                if needed_bytes > file_limits.MAX_BATCH_BYTES:
                    position = self._pass_over_large(position, needed_bytes)
                elif needed_bytes > len(self._buffer):
                    self._buffer = bytearray(needed_bytes)
                elif position + read_bytes < self.size_bytes:
                    self.size_bytes = position + read_bytes  # truncated since

    @property
    def view(self) -> memoryview:
        """The bytes of the file from `window_at` on, until the next window is read."""
        return memoryview(self._buffer)

    @property
    def records(self) -> Any:
        """The checks of the records in the present window (`HeaderWalk.records`)."""
        return self._walk.records

    def _pass_over_large(self, position: int, size_bytes: int) -> int:
        """Skip a large batch; if its checksum is wrong, its length may be damaged."""
        reason = f"the batch has {size_bytes} bytes, at most {file_limits.MAX_BATCH_BYTES} are read"
        if self._has_checksum(position, size_bytes):
            return self._pass_over(position, reason, is_too_large=True)
        return self._pass_over(position, f"{reason}, and its checksum is wrong")

    def _has_checksum(self, position: int, size_bytes: int) -> bool:
        """Return whether a batch has the checksum of its bytes, which are read in blocks."""
        if position < self._without_checksum_until:
            return False  # otherwise a file could refer to the same bytes repeatedly
        descriptor, end = self._file.fileno(), position + size_bytes
        at = position + CRC_COVERS_FROM
        crc = 0
        while at < end:
            block = os.pread(descriptor, min(WINDOW_BYTES, end - at), at)
            if not block:
                break  # truncated since
            self._on_bytes(len(block))
            crc = crc32c(block, crc)
            at += len(block)
        head = os.pread(descriptor, HEADER_BYTES, position)
        if len(head) == HEADER_BYTES and BatchHeader._make(HEADER.unpack(head)).crc == crc:
            return True
        self._without_checksum_until = end
        return False

    def _pass_over(self, position: int, reason: str, *, is_too_large: bool = False) -> int:
        """Record a bad span that begins at a position; return the position of the next batch."""
        head = os.pread(self._file.fileno(), HEADER_BYTES, position)
        end = self._next_batch(position, head)
        if len(self.bad_spans) == MAX_BAD_SPANS:
            end, reason = None, f"there are {MAX_BAD_SPANS} damaged places before it"
        is_zeros = not any(head)
        self.bad_spans.append(
            BadSpan(position, end or self.size_bytes, reason, is_zeros, end is None, is_too_large)
        )
        return self.size_bytes if end is None else end

    def _next_batch(self, position: int, head: bytes) -> int | None:
        if len(head) == HEADER_BYTES:
            end = position + BatchHeader._make(HEADER.unpack(head)).size_bytes
            if end >= position + HEADER_BYTES and self._is_batch(end):
                return end
        first = int(self._resume_positions.searchsorted(position, side="right"))
        for candidate in self._resume_positions[first:].tolist():
            if self._is_batch(candidate):
                return int(candidate)
        return None

    def _is_batch(self, position: int) -> bool:
        head = os.pread(self._file.fileno(), HEADER_BYTES, position)
        if len(head) < HEADER_BYTES:
            return False
        header = BatchHeader._make(HEADER.unpack(head))
        end = position + header.size_bytes
        return header.magic == MAGIC and position + HEADER_BYTES <= end <= self.size_bytes

    def span_at(self, position: int) -> BadSpan | None:
        """Return the bad span that holds a position."""
        index = bisect_right(self.bad_spans, position, key=attrgetter("start")) - 1
        span = self.bad_spans[index] if index >= 0 else None
        return span if span is not None and position < span.end else None
