"""The work of a task: read its ranges from the segments and decode them.

The bytes are read with pread into one reused buffer and cut at batch boundaries. The directory is
listed again at every segment, because segments roll, merge and are deleted while a task runs.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.pipeline.errors import DataLoss, LogChanged
from spindle.pipeline.records.decoder import (
    DEFAULT_CHUNK_BYTES,
    BatchDecoder,
    RowFilter,
    batch_size,
)
from spindle.pipeline.records.transactions import AbortedTransactions
from spindle.pipeline.segments.discovery import expand_log_directories
from spindle.pipeline.segments.options import SegmentOptions
from spindle.pipeline.segments.ranges import SegmentRange
from spindle.pipeline.segments.segment_log import Position, SegmentFile, SegmentLog
from spindle.pipeline.segments.small_files import read_leader_epochs, read_topic_id
from spindle.protocol.records.batch import HEADER_BYTES


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a task beyond its ranges. Timestamps in ms, inclusive."""

    columns: tuple[str, ...]
    log_directories: tuple[str, ...]
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    fail_on_data_loss: bool = True
    check_crcs: bool = True
    chunk_bytes: int = DEFAULT_CHUNK_BYTES

    def with_timestamps(self, least_ms: int | None, greatest_ms: int | None) -> "ReadSettings":
        return replace(self, min_timestamp_ms=least_ms, max_timestamp_ms=greatest_ms)


def read_settings(options: SegmentOptions) -> ReadSettings:
    """Return the part of the options that tasks need.

    Raises:
        ValueError: the log directories are not what the option says (see `discovery`).
    """
    directories = expand_log_directories(options.log_directories)
    return ReadSettings(
        columns=options.columns,
        log_directories=tuple(str(directory.path) for directory in directories),
        fail_on_data_loss=options.fail_on_data_loss,
        check_crcs=options.check_crcs,
    )


def read_ranges(ranges: Sequence[SegmentRange], settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Return the rows of all ranges, in offset order within each."""
    for piece in ranges:
        yield from read_range(piece, settings)


def read_range(piece: SegmentRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """Return the rows of one range as RecordBatches of about `chunk_bytes`.

    Raises:
        DataLoss: part of the range is no longer there, and `fail_on_data_loss` is on.
        LogChanged: the log was truncated while it was read.
        CorruptLog: a batch fails its checksum or does not parse.
    """
    log = _open_log(piece, settings)
    if log is None:
        if settings.fail_on_data_loss:
            raise DataLoss(
                f"{piece.partition}: {piece.path} does not exist any more; nothing was read"
            )
        return
    yield from _RangeReader(piece, settings, log).batches()


class _RangeReader:
    """Walks the segments of one range."""

    def __init__(self, piece: SegmentRange, settings: ReadSettings, log: SegmentLog) -> None:
        self._piece = piece
        self._settings = settings
        self._log = log
        self._buffer = bytearray(settings.chunk_bytes)
        self._left_bytes = 0
        row_filter = RowFilter(piece.start_offset, piece.end_offset)
        if settings.min_timestamp_ms is not None:
            row_filter = row_filter._replace(min_timestamp_ms=settings.min_timestamp_ms)
        if settings.max_timestamp_ms is not None:
            row_filter = row_filter._replace(max_timestamp_ms=settings.max_timestamp_ms)
        self._decoder = BatchDecoder(
            piece.partition,
            settings.columns,
            row_filter,
            aborted=AbortedTransactions(piece.aborted) if piece.aborted else None,
            chunk_bytes=settings.chunk_bytes,
            check_crcs=settings.check_crcs,
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        start = self._start()
        segment: SegmentFile | None = start.segment
        position = start.position
        while segment is not None:
            try:
                file = open(segment.path, "rb", buffering=0)  # noqa: SIM115
            except FileNotFoundError:
                segment = self._after_missing(segment)
                position = 0
                continue
            with file:
                yield from self._segment_batches(file, segment, position)
            if self._decoder.is_finished:
                break
            following = self._next_segment(segment)
            if following is not None and self._left_bytes:
                raise CorruptLog(
                    str(segment.path),
                    os.stat(segment.path).st_size - self._left_bytes,
                    f"{self._left_bytes} bytes before the next segment are no whole batch",
                )
            segment, position = following, 0
        if not self._decoder.is_finished:
            self._lost(f"the log ends at {self._decoder.next_offset}")
        self._check_epochs()

    def _segment_batches(
        self, file: Any, segment: SegmentFile, position: int
    ) -> Iterator[pa.RecordBatch]:
        while not self._decoder.is_finished:
            size_bytes = os.preadv(file.fileno(), [self._buffer], position)
            try:
                yield from self._decoder.decode(self._buffer, size_bytes)
            except CorruptRecords as error:
                self._check_epochs()
                raise CorruptLog(str(segment.path), position, str(error)) from error
            consumed = self._decoder.consumed_bytes
            position += consumed
            if consumed == 0 and not self._grow(size_bytes):
                self._left_bytes = size_bytes
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

    def _start(self) -> Position:
        """Return the planned position if the segment still has it, else search for the offset."""
        piece = self._piece
        for segment in self._log.segments:
            if segment.base_offset == piece.segment_base_offset:
                near = self._log.boundary_near(segment, piece.position)
                if near.position <= piece.position and near.offset <= piece.start_offset:
                    return near
        if self._log.first_offset > piece.start_offset:
            self._lost(f"the log begins at {self._log.first_offset}")
        near_start = self._log.position_of(piece.start_offset)
        if near_start is None:
            raise DataLoss(f"{piece.partition}: {self._log.path} has no segments")
        return near_start

    def _next_segment(self, current: SegmentFile) -> SegmentFile | None:
        self._log = SegmentLog(self._log.path)
        for segment in self._log.segments:
            if segment.base_offset > current.base_offset:
                return segment
        return None

    def _after_missing(self, missing: SegmentFile) -> SegmentFile | None:
        """Find where to continue if the segment was deleted or merged after it was listed."""
        self._log = SegmentLog(self._log.path)
        next_offset = self._decoder.next_offset
        if self._log.first_offset > next_offset:
            self._lost(f"the log begins at {self._log.first_offset}")
        near = self._log.position_of(next_offset)
        if near is None or near.segment == missing:
            return None
        return near.segment

    def _lost(self, finding: str) -> None:
        if self._settings.fail_on_data_loss:
            raise DataLoss(
                f"{self._piece.partition}: planned offsets [{self._piece.start_offset}, "
                f"{self._piece.end_offset}), but {finding}"
            )

    def _check_epochs(self) -> None:
        """Raise LogChanged if a new leader truncated planned offsets.

        The epoch history below the end then differs from the planned one.
        """
        end = self._piece.end_offset
        now = [entry for entry in read_leader_epochs(self._log.path) if entry[1] < end]
        planned = [entry for entry in self._piece.leader_epochs if entry[1] < end]
        # Retention removes old epochs from the front, so the newest ones are compared.
        if now and planned and now[-1] != planned[-1]:
            raise LogChanged(
                f"{self._piece.partition}: the leader epochs below offset {end} changed from "
                f"{planned} to {now} while it was read"
            )


def _open_log(piece: SegmentRange, settings: ReadSettings) -> SegmentLog | None:
    """Open the replica's log where it was planned, or in the directory it was moved to since."""
    name = Path(piece.path).name
    places = [Path(piece.path)] + [Path(path) / name for path in settings.log_directories]
    for place in places:
        if read_topic_id(place) not in (piece.topic_id, None):
            continue
        try:
            return SegmentLog(place)
        except FileNotFoundError:
            continue
    return None
