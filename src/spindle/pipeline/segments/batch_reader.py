"""The work of a task of `spindle-batches`: walk over the batch headers of its ranges.

Records are decoded only for `rowCount`, and only those of batches of which a part may not be
wanted: a compacted batch at an end of the range, or one around an end of the wanted times.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from spindle.columnar import header_table
from spindle.columnar.batch_columns import ROW_COUNT_COLUMN
from spindle.columnar.batch_rows import batch_rows
from spindle.columnar.headers import HeaderWalk
from spindle.columnar.row_counts import RowCounter
from spindle.columnar.segment_log import SegmentLog
from spindle.columnar.tables import MISPLACED_OFFSETS, SCAN_FINDINGS
from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.pipeline.segments.failover import ReadSettings, read_resumed
from spindle.pipeline.segments.ranges import SegmentRange
from spindle.pipeline.segments.walk import OpenSegment, SegmentWalk
from spindle.protocol.records.batch import HEADER_BYTES

_WINDOW_BYTES: Final = 512 * 1024
_SPARSE_BYTES: Final = 128 * 1024
"""Where headers are further apart than this, each is read alone, without records around it."""
_ROWS: Final = 8192
"""The least rows of an Arrow batch before the end of a segment."""


def read_batch_ranges(
    ranges: Sequence[SegmentRange], settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    """Return a row for each batch that holds offsets of the ranges.

    Raises:
        DataLoss, LogChanged, CorruptLog: as `reader.read_range`.
    """
    for piece in ranges:
        yield from read_resumed(piece, settings, _HeaderReader)


class _HeaderReader:
    """Walks over the batches of one range."""

    def __init__(self, piece: SegmentRange, settings: ReadSettings, log: SegmentLog) -> None:
        self._columns = settings.columns
        self._check_crcs = settings.check_crcs
        self._segments = SegmentWalk(piece, log, fail_on_data_loss=settings.fail_on_data_loss)
        self._start_offset, self._end_offset = piece.start_offset, piece.end_offset
        # All batches, because a wrong base offset may put one before the start.
        self._headers = HeaderWalk(0, piece.end_offset, check_crcs=settings.check_crcs)
        self._headers.next_offset = piece.start_offset
        self._headers.is_finished = piece.start_offset >= piece.end_offset
        self._counter = (
            RowCounter(piece.partition, settings.row_filter(piece), piece.aborted or ())
            if ROW_COUNT_COLUMN in settings.columns
            else None
        )
        self._buffer = bytearray(_WINDOW_BYTES)
        self._place = {
            "topic": piece.partition.topic,
            "partition": piece.partition.partition,
            "broker": piece.home.node_id,
            "directory": str(log.path.parent),
        }

    def batches(self) -> Iterator[pa.RecordBatch]:
        for opened in self._segments:
            yield from self._segment_rows(opened)
            self._segments.next_offset = self._headers.next_offset
            self._segments.is_finished = self._headers.is_finished

    def _segment_rows(self, opened: OpenSegment) -> Iterator[pa.RecordBatch]:
        file, walk = opened.file, self._headers
        place = {**self._place, "segment": opened.segment.path.name}
        position = opened.position
        window = memoryview(self._buffer)
        gathered: list[Any] = []
        count = 0
        min_offset = opened.segment.base_offset
        while not walk.is_finished:
            file_bytes = os.fstat(file.fileno()).st_size
            try:
                size_bytes = os.preadv(file.fileno(), [window], position)
            except OSError as error:
                self._segments.next_offset = walk.next_offset
                raise self._segments.interrupted(error) from error
            fields = walk.fields(window[:size_bytes], position, file_bytes)
            self._check_offsets(opened, fields, min_offset, position)
            if fields.shape[1]:
                min_offset = walk.next_offset
            last_offsets = fields[header_table.BASE_OFFSET] + fields[header_table.LAST_DELTA]
            fields = fields[:, last_offsets >= self._start_offset]
            gathered.append(fields)
            count += fields.shape[1]
            is_end = walk.is_torn or file_bytes - walk.position < HEADER_BYTES
            if count and (count >= _ROWS or is_end or walk.finding or walk.is_finished):
                yield self._rows(opened, place, np.concatenate(gathered, axis=1))
                gathered, count = [], 0
            if walk.finding:
                self._segments.check_epochs()
                raise CorruptLog(str(opened.segment.path), walk.position, walk.finding)
            has_moved = walk.position > position
            if is_end:
                self._segments.left_bytes = max(0, file_bytes - walk.position)
                return
            is_sparse = walk.position - position > _SPARSE_BYTES * max(1, fields.shape[1])
            position = walk.position
            if not has_moved:
                self._buffer = bytearray(int.from_bytes(self._buffer[8:12], "big") + 12)
            is_alone = is_sparse and not self._check_crcs
            window = memoryview(self._buffer)[: HEADER_BYTES if is_alone else None]

    def _check_offsets(
        self, opened: OpenSegment, fields: Any, min_offset: int, window_at: int
    ) -> None:
        """Refuse batches whose offsets are outside of the segment, or do not ascend.

        The checksum does not cover the base offset. A wrong one could end the range too early.

        Raises:
            CorruptLog: names the batch.
        """
        walk = self._headers
        positions, first = fields[header_table.POSITION], fields[header_table.BASE_OFFSET]
        last = first + fields[header_table.LAST_DELTA]
        is_wrong = last > opened.max_offset
        is_wrong |= first <= np.concatenate(([min_offset - 1], last))[:-1]
        wrong_at = positions[is_wrong].tolist()
        if walk.is_finished and walk.next_offset < self._end_offset:
            # The next batch ended the range by its base offset, and is not among the fields.
            at = walk.position - window_at
            base_offset = int.from_bytes(self._buffer[at : at + 8], "big")
            if base_offset > opened.max_offset:
                wrong_at.append(walk.position)
        if wrong_at:
            self._segments.check_epochs()
            finding = SCAN_FINDINGS[MISPLACED_OFFSETS]
            raise CorruptLog(str(opened.segment.path), wrong_at[0], finding)

    def _rows(self, opened: OpenSegment, place: dict[str, Any], fields: Any) -> pa.RecordBatch:
        counts: Any = None
        if self._counter is not None:
            try:
                counts = self._counter.counts(fields, partial(_batch_at, opened.file))
            except CorruptRecords as error:
                raise CorruptLog(
                    str(opened.segment.path), int(fields[header_table.POSITION, 0]), str(error)
                ) from error
        return batch_rows(self._columns, fields, place, counts, has_computed_crcs=self._check_crcs)


def _batch_at(file: Any, position: int, size_bytes: int) -> bytes:
    return os.pread(file.fileno(), size_bytes, position)
