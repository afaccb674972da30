"""The work of a task of `spindle-segments`: read its ranges from the segments and decode them.

The bytes are read with pread into one reused buffer and cut at batch boundaries.
"""

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.pipeline.records.decoder import BatchDecoder, batch_size
from spindle.pipeline.records.transactions import AbortedTransactions
from spindle.pipeline.segments.ranges import SegmentRange
from spindle.pipeline.segments.resuming import ReadSettings, read_resumed
from spindle.pipeline.segments.segment_log import SegmentLog
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
        self._walk = SegmentWalk(piece, log, fail_on_data_loss=settings.fail_on_data_loss)
        self._buffer = bytearray(settings.chunk_bytes)
        self._decoder = BatchDecoder(
            piece.partition,
            settings.columns,
            settings.row_filter(piece),
            aborted=AbortedTransactions(piece.aborted) if piece.aborted else None,
            chunk_bytes=settings.chunk_bytes,
            check_crcs=settings.check_crcs,
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        for opened in self._walk:
            yield from self._segment_batches(opened)
            self._walk.next_offset = self._decoder.next_offset
            self._walk.is_finished = self._decoder.is_finished

    def _segment_batches(self, opened: OpenSegment) -> Iterator[pa.RecordBatch]:
        position = opened.position
        while not self._decoder.is_finished:
            size_bytes = os.preadv(opened.file.fileno(), [self._buffer], position)
            try:
                yield from self._decoder.decode(self._buffer, size_bytes)
            except CorruptRecords as error:
                self._walk.check_epochs()
                raise CorruptLog(str(opened.segment.path), position, str(error)) from error
            consumed = self._decoder.consumed_bytes
            position += consumed
            if consumed == 0 and not self._grow(size_bytes):
                self._walk.left_bytes = size_bytes
                return

    def _grow(self, size_bytes: int) -> bool:
        """Make room for a batch that is larger than the buffer.

        Return False at the end of the file.
        """
        if size_bytes < len(self._buffer) or size_bytes < HEADER_BYTES:
            return False
        needed = batch_size(memoryview(self._buffer), 0)
        if needed <= len(self._buffer):
            return False
        self._buffer = bytearray(needed)
        return True
