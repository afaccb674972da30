"""Read a range to its end although its directory moves or its segments are replaced meanwhile.

A task begins with the directory of the plan. If this directory vanishes, the replica was moved or
deleted. The task looks for it in the other log directories and goes on at the offset that it has
reached.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from spindle.common.uuids import ZERO_UUID
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.records.corruption import CorruptBatches
from spindle.pipeline.records.decoder import DEFAULT_CHUNK_BYTES, RowFilter
from spindle.pipeline.schemas.rows import RAW_ROWS, RowDecoding
from spindle.pipeline.segments.discovery import expand_log_directories
from spindle.pipeline.segments.options import SegmentOptions
from spindle.pipeline.segments.ranges import SegmentRange
from spindle.pipeline.segments.segment_log import SegmentLog
from spindle.pipeline.segments.small_files import read_topic_id
from spindle.pipeline.segments.walk import WalkInterrupted

_ATTEMPTS_WITHOUT_PROGRESS: Final = 10


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a task beyond its ranges. Timestamps in ms, inclusive."""

    columns: tuple[str, ...]
    log_directories: tuple[str, ...]
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    fail_on_data_loss: bool = True
    check_crcs: bool = True
    corrupt_batches: CorruptBatches = CorruptBatches.FAIL
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    decoding: RowDecoding = RAW_ROWS

    def with_timestamps(self, least_ms: int | None, greatest_ms: int | None) -> "ReadSettings":
        return replace(self, min_timestamp_ms=least_ms, max_timestamp_ms=greatest_ms)

    def row_filter(self, piece: SegmentRange) -> RowFilter:
        """Return the rows of a range that are wanted."""
        wanted = RowFilter(piece.start_offset, piece.end_offset)
        if self.min_timestamp_ms is not None:
            wanted = wanted._replace(min_timestamp_ms=self.min_timestamp_ms)
        if self.max_timestamp_ms is not None:
            wanted = wanted._replace(max_timestamp_ms=self.max_timestamp_ms)
        return wanted


class _Reader(Protocol):
    def batches(self) -> Iterator[pa.RecordBatch]: ...


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
        decoding=options.decoding,
        corrupt_batches=options.corrupt_batches,
    )


def read_resumed(
    piece: SegmentRange,
    settings: ReadSettings,
    open_reader: Callable[[SegmentRange, ReadSettings, SegmentLog], _Reader],
) -> Iterator[pa.RecordBatch]:
    """Return what readers give for a range: a new one goes on where the one before was interrupted.

    Raises:
        DataLoss: part of the range is no longer there, and `fail_on_data_loss` is on.
        LogChanged: the log was truncated while it was read.
        CorruptLog: a batch fails its checksum or does not parse.
    """
    rest = piece
    attempts = 0
    while attempts < _ATTEMPTS_WITHOUT_PROGRESS and (log := _open_log(rest, settings)) is not None:
        try:
            yield from open_reader(rest, settings, log).batches()
            return
        except WalkInterrupted as interrupted:
            has_progress = interrupted.next_offset > rest.start_offset
            attempts = 0 if has_progress else attempts + 1
            rest = _rest(rest, interrupted.next_offset)
    if settings.fail_on_data_loss:
        raise DataLoss(
            f"{piece.partition}: {piece.path} does not exist any more; offsets "
            f"[{rest.start_offset}, {piece.end_offset}) were not read"
        )


def _rest(piece: SegmentRange, start_offset: int) -> SegmentRange:
    return replace(piece, start_offset=start_offset, segment_base_offset=-1, position=0)


def _open_log(piece: SegmentRange, settings: ReadSettings) -> SegmentLog | None:
    """Open the replica's log where it was planned, or in the directory it was moved to since."""
    name = Path(piece.path).name
    places = [Path(piece.path)] + [Path(path) / name for path in settings.log_directories]
    for place in places:
        if (read_topic_id(place) or ZERO_UUID) != piece.topic_id:
            continue
        try:
            return SegmentLog(place)
        except FileNotFoundError:
            continue
    return None
