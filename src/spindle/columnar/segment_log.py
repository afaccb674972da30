"""Read-only lookups in a partition's directory: by offset, by timestamp, and the log end.

Positions come from the indexes and are checked against the batch header there, so an index entry
that a crash or a truncation left behind makes a lookup slower and never loses rows.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spindle.columnar.index_files import read_offset_index, read_time_index
from spindle.columnar.segment_files import (
    SegmentFile,
    list_segments,
    open_segment,
    walk_headers,
)
from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.protocol.records.batch import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    BatchHeader,
    check_crc,
)
from spindle.protocol.records.record import Record, decode_records


class Position(NamedTuple):
    """A batch boundary: byte `position` of a segment, at which the batch with `offset` begins."""

    segment: SegmentFile
    position: int
    offset: int


class SegmentLog:
    """The segments of one replica in offset order.

    Args:
        path: The replica's directory.

    Raises:
        FileNotFoundError: the directory is gone (deleted, or moved to another log directory).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.segments = list_segments(path)

    @property
    def names(self) -> list[str]:
        """Names of the segment files, to compare two listings."""
        return [segment.path.name for segment in self.segments]

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment; 0 without segments."""
        return self.segments[0].base_offset if self.segments else 0

    def segment_after(self, segment: SegmentFile) -> SegmentFile | None:
        """Return the next segment, None for the last one."""
        index = bisect_right(self.segments, segment.base_offset, key=lambda each: each.base_offset)
        return self.segments[index] if index < len(self.segments) else None

    def position_of(self, offset: int) -> Position | None:
        """Return a batch boundary at or before the batch of `offset`, None without segments.

        It is at most about one index interval before the batch.

        The boundary is the start of the first segment for an offset below it.
        """
        if not self.segments:
            return None
        segment = self.segments[self._segment_index(offset)]
        offsets, positions = self._offset_index(segment)
        entry = int(np.searchsorted(offsets, offset - segment.base_offset, side="right")) - 1
        return self._checked(segment, offsets, positions, entry)

    def boundary_near(self, segment: SegmentFile, position: int) -> Position:
        """Return the last indexed batch boundary of `segment` at or before byte `position`."""
        offsets, positions = self._offset_index(segment)
        entry = int(np.searchsorted(positions, position, side="right")) - 1
        return self._checked(segment, offsets, positions, entry)

    def headers_from(self, start: Position) -> Iterator[tuple[Position, BatchHeader]]:
        """Yield headers from `start` to the end of the log, over segments; stop at a torn batch."""
        index = self._segment_index(start.segment.base_offset)
        position = start.position
        for segment in self.segments[index:]:
            with open_segment(segment) as file:
                for at, header in walk_headers(file, position, str(segment.path)):
                    yield Position(segment, at, header.base_offset), header
            position = 0

    def undamaged_headers(self, start: Position, end: int) -> Iterator[BatchHeader]:
        """Yield headers from `start` to the offset `end` (exclusive), over segments.

        The checksums of batches with a producer id are verified, and that offsets ascend up to the
        batch after `end`: no checksum covers the base offset.

        Raises:
            CorruptLog: bytes before `end` are no batch, a checksum is wrong, or an offset is too
                high or too low.
        """
        index = self._segment_index(start.segment.base_offset)
        position, next_offset, path = start.position, start.offset, str(start.segment.path)
        is_past_end = False
        for segment in self.segments[index:]:
            if segment != start.segment:
                _check_ascending(path, position, next_offset, segment.base_offset)
                position = 0
            if segment.base_offset >= end:
                return
            path, next_offset = str(segment.path), max(next_offset, segment.base_offset)
            with open_segment(segment) as file:
                for at, header in walk_headers(file, position, path):
                    _check_ascending(path, position, next_offset, header.base_offset)
                    if is_past_end:
                        return
                    is_past_end = header.base_offset >= end
                    if not is_past_end:
                        if header.has_producer_id:
                            _check_batch(file, at, header, path)
                        yield header
                    position, next_offset = at + header.size_bytes, header.next_offset
            if position < segment.size_bytes and next_offset < end:
                raise CorruptLog(path, position, f"no whole batch at offset {next_offset}")

    def end_offset(self, checked_from: int | None = None, *, checks_crcs: bool = True) -> int:
        """Return the log end offset: the one after the last whole batch with a valid CRC.

        Args:
            checked_from: Offset from which batches are not known to be on disk (the recovery point
                of a directory that was not shut down cleanly). None: only the tail behind the
                last index entry is checked.
            checks_crcs: False counts corrupt batches as well. A log that was closed cleanly has no
                torn end, so such a batch is damage that its reader has to see.
        """
        if not self.segments:
            return 0
        last = self.segments[-1]
        start = self.boundary_near(last, last.size_bytes)
        if checked_from is not None and checked_from < start.offset:
            start = self.position_of(checked_from) or start
        end = start.offset
        for segment in self.segments[self._segment_index(start.segment.base_offset) :]:
            position = start.position if segment == start.segment else 0
            end = max(end, segment.base_offset)
            size_bytes, end = _valid_prefix(segment, position, end, checks_crcs)
            if size_bytes < segment.size_bytes:
                break
        return end

    def offset_for_timestamp(self, timestamp_ms: int, start: int, end: int) -> int | None:
        """Return the first offset in [start, end) whose record has at least this timestamp.

        Raises:
            CorruptLog: the batch that should hold it does not parse.
        """
        for segment in self.segments[self._segment_index(start) :]:
            if segment.base_offset >= end:
                return None
            offset = self._search_segment(segment, timestamp_ms, start, end)
            if offset is not None:
                return offset
        return None

    def _search_segment(
        self, segment: SegmentFile, timestamp_ms: int, start: int, end: int
    ) -> int | None:
        timestamps, offsets = read_time_index(segment.path.with_suffix(".timeindex"))
        is_last = segment == self.segments[-1]
        if timestamps.size and not is_last and timestamps[-1] < timestamp_ms:
            return None
        entry = int(np.searchsorted(timestamps, timestamp_ms, side="left")) - 1
        # All records up to the entry's offset are older, so the search may begin there.
        known_older = segment.base_offset + int(offsets[entry]) if entry >= 0 else 0
        first = self.position_of(max(known_older, start, segment.base_offset))
        position = first.position if first and first.segment == segment else 0
        with open_segment(segment) as file:
            for at, header in walk_headers(file, position, str(segment.path)):
                if header.base_offset >= end:
                    return None
                if header.max_timestamp < timestamp_ms or header.is_control:
                    continue
                data = os.pread(file.fileno(), header.size_bytes, at)
                for record in _decoded(segment, at, data, header):
                    if record.timestamp_ms >= timestamp_ms and start <= record.offset < end:
                        return record.offset
        return None

    def _segment_index(self, offset: int) -> int:
        """Return the index of the last segment whose base offset is not above `offset`."""
        index = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return max(0, index - 1)

    def _offset_index(self, segment: SegmentFile) -> tuple[Any, Any]:
        return read_offset_index(segment.path.with_suffix(".index"), segment.size_bytes)

    def _checked(self, segment: SegmentFile, offsets: Any, positions: Any, entry: int) -> Position:
        """Return the boundary of an index entry, or of the nearest valid one before it."""
        with open_segment(segment) as file:
            for index in range(entry, -1, -1):
                position = _boundary(file, segment, int(positions[index]), int(offsets[index]))
                if position is not None:
                    return position
        return Position(segment, 0, segment.base_offset)

    def boundary_after(self, segment: SegmentFile, position: int) -> int | None:
        """Return the byte of the first indexed batch after a position, None if there is none."""
        offsets, positions = self._offset_index(segment)
        first = int(np.searchsorted(positions, position, side="right"))
        with open_segment(segment) as file:
            for index in range(first, positions.size):
                boundary = _boundary(file, segment, int(positions[index]), int(offsets[index]))
                if boundary is not None:
                    return boundary.position
        return None

    def check_formats(self, start: int, end: int) -> None:
        """Refuse segments with offsets in [start, end) that begin with an old message format.

        Raises:
            CorruptLog: naming the segment.
        """
        for segment in self.segments[self._segment_index(start) :]:
            if segment.base_offset >= end:
                return
            with open_segment(segment) as file:
                for _ in walk_headers(file, 0, str(segment.path), read_ahead_bytes=HEADER_BYTES):
                    break


def _boundary(file: Any, segment: SegmentFile, position: int, relative: int) -> Position | None:
    """Return the boundary at the position of an index entry, None if there is no such batch."""
    data = os.pread(file.fileno(), HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        return None
    header = BatchHeader._make(HEADER.unpack(data))
    # An entry of an old broker has the last offset of several batches.
    is_batch = (
        header.magic == MAGIC
        and segment.base_offset <= header.base_offset
        and header.base_offset <= header.last_offset <= segment.base_offset + relative
    )
    return Position(segment, position, header.base_offset) if is_batch else None


def _check_ascending(path: str, position: int, next_offset: int, offset: int) -> None:
    if offset < next_offset:
        raise CorruptLog(
            path, position, f"offset {offset} follows a batch that ends before {next_offset}"
        )


def _check_batch(file: Any, position: int, header: BatchHeader, path: str) -> None:
    try:
        check_crc(os.pread(file.fileno(), header.size_bytes, position), 0, header)
    except CorruptRecords as error:
        raise CorruptLog(
            path, position, f"batch at offset {header.base_offset}: {error}"
        ) from error


def _valid_prefix(
    segment: SegmentFile, position: int, offset: int, checks_crcs: bool
) -> tuple[int, int]:
    """Return (bytes, next offset) of a segment up to its first torn or corrupt batch."""
    with open_segment(segment) as file:
        for at, header in walk_headers(file, position, str(segment.path)):
            if checks_crcs:
                data = os.pread(file.fileno(), header.size_bytes, at)
                try:
                    check_crc(data, 0, header)
                except CorruptRecords:
                    break
            position, offset = at + header.size_bytes, header.next_offset
    return position, offset


def _decoded(segment: SegmentFile, position: int, data: bytes, header: BatchHeader) -> list[Record]:
    try:
        check_crc(data, 0, header)
        return decode_records(data, 0, header)
    except CorruptRecords as error:
        raise CorruptLog(str(segment.path), position, str(error)) from error
