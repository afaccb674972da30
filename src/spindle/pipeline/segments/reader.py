"""The work of a task of `spindle-segments`: read its ranges from the segments and decode them.

The bytes are read with pread into one reused buffer and cut at batch boundaries.
"""

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from spindle.client.isolation import AbortedTransactions
from spindle.columnar.corruption import (
    ADVICE,
    CorruptBatch,
    CorruptBatches,
    Place,
    corruption_log,
)
from spindle.columnar.decoder import BatchDecoder, batch_size
from spindle.columnar.segment_log import SegmentLog
from spindle.common.errors import CorruptLog
from spindle.pipeline.segments.failover import ReadSettings, read_resumed
from spindle.pipeline.segments.ranges import SegmentRange
from spindle.pipeline.segments.walk import OpenSegment, SegmentWalk
from spindle.protocol.records.batch import HEADER_BYTES


def read_ranges(ranges: Sequence[SegmentRange], settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Return the rows of all ranges, in offset order within each."""
    for piece in ranges:
        yield from settings.decoding.decoded(read_range(piece, settings), piece.partition)


def read_range(piece: SegmentRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Return the rows of one range as RecordBatches of about `chunk_bytes`.

    Raises:
        DataLoss: part of the range is no longer there, and `fail_on_data_loss` is on.
        LogChanged: the log was truncated while it was read.
        CorruptLog: a batch fails its checksum or does not parse.
    """
    return read_resumed(piece, settings, _RangeReader)


class _RangeReader:
    """Reads and decodes the segments of one range."""

    def __init__(self, piece: SegmentRange, settings: ReadSettings, log: SegmentLog) -> None:
        self._piece = piece
        self._log = log
        self._walk = SegmentWalk(piece, log, fail_on_data_loss=settings.fail_on_data_loss)
        self._buffer = bytearray(settings.chunk_bytes)
        self._torn: CorruptBatch | None = None
        self._is_tolerant = settings.corrupt_batches is not CorruptBatches.FAIL
        self._walk.passes_torn_ends = self._is_tolerant
        self._decoder = BatchDecoder(
            piece.partition,
            settings.columns,
            settings.row_filter(piece),
            aborted=AbortedTransactions(piece.aborted) if piece.aborted else None,
            chunk_bytes=settings.chunk_bytes,
            check_crcs=settings.check_crcs,
            corruption=corruption_log(settings.corrupt_batches, piece.partition, settings.columns),
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        for opened in self._walk:
            yield from self._note_torn()
            yield from self._segment_batches(opened)
            self._walk.next_offset = self._decoder.next_offset
            self._walk.is_finished = self._decoder.is_finished

    def _segment_batches(self, opened: OpenSegment) -> Iterator[pa.RecordBatch]:
        position = opened.position
        self._decoder.begin_segment(opened.segment.base_offset, opened.max_offset)
        while not self._decoder.is_finished:
            size_bytes = self._read(opened, position)
            try:
                yield from self._decoder.decode(
                    self._buffer, size_bytes, self._place(opened, position)
                )
            except CorruptBatch as error:
                position += error.position
                self._walk.check_epochs()
                if not self._is_tolerant:
                    finding = f"{error.finding}. {ADVICE}"
                    raise CorruptLog(str(opened.segment.path), position, finding) from error
                end = self._next_boundary(opened, position)
                yield from self._decoder.noted(error.of_size(end - position))
                self._walk.has_damage = True
                position = end
                continue
            self._walk.has_damage = self._walk.has_damage or self._decoder.has_damage
            consumed = self._decoder.consumed_bytes
            position += consumed
            if consumed == 0 and not self._grow(opened, position, size_bytes):
                following = self._pass_torn(opened, position, size_bytes)
                yield from self._note_torn(following is not None)
                if following is None:
                    return
                position = following

    def _read(self, opened: OpenSegment, position: int) -> int:
        try:
            return os.preadv(opened.file.fileno(), [self._buffer], position)
        except OSError as error:
            self._walk.next_offset = self._decoder.next_offset
            raise self._walk.interrupted(error) from error

    def _pass_torn(self, opened: OpenSegment, position: int, size_bytes: int) -> int | None:
        """Record a torn batch; return the position of the next batch that the index names."""
        left_bytes = os.fstat(opened.file.fileno()).st_size - position
        self._walk.left_bytes = left_bytes
        if not self._is_tolerant or left_bytes == 0:
            return None
        following = SegmentLog(self._log.path).boundary_after(opened.segment, position)
        lost_bytes = left_bytes if following is None else following - position
        data = bytes(self._buffer[:size_bytes]).ljust(HEADER_BYTES, b"\0")
        finding = f"{lost_bytes} bytes before the next one are not a whole batch"
        self._torn = self._decoder.torn(data, finding).of_size(lost_bytes)
        return following

    def _note_torn(self, is_inside: bool = True) -> Iterator[pa.RecordBatch]:
        """Note the torn batch, once it is known that another one follows."""
        if self._torn is not None and is_inside:
            error, self._torn = self._torn, None
            self._walk.has_damage = True
            yield from self._decoder.noted(error)

    def _place(self, opened: OpenSegment, position: int) -> Place:
        path = opened.segment.path
        return Place(
            self._piece.home.node_id, str(path.parent.parent), path.name, position, str(path)
        )

    def _next_boundary(self, opened: OpenSegment, position: int) -> int:
        """Return the first known batch boundary behind a corrupt batch, else the file's end."""
        current = SegmentLog(self._log.path)
        boundary = current.boundary_after(opened.segment, position)
        return os.fstat(opened.file.fileno()).st_size if boundary is None else boundary

    def _grow(self, opened: OpenSegment, position: int, size_bytes: int) -> bool:
        """Make room for a batch that is larger than the buffer.

        Return False at the end of the file.
        """
        if size_bytes < len(self._buffer) or size_bytes < HEADER_BYTES:
            return False
        needed = batch_size(memoryview(self._buffer), 0)
        left_bytes = os.fstat(opened.file.fileno()).st_size - position
        if needed <= len(self._buffer) or needed > left_bytes:
            return False
        self._buffer = bytearray(needed)
        return True
