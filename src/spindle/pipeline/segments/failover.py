"""Read a range to its end although its directory moves or its segments are replaced meanwhile.

A task begins with the directory of the plan. If this directory vanishes, the replica was moved or
deleted. The task looks for it in the broker's other log directories and continues at the offset
that it has reached. Where the directories are not on the task's machine, or cannot be read, or no
longer have the replica, the task reads the rest through the brokers, if the options name them.
"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from spindle.columnar.corruption import CorruptBatches
from spindle.columnar.decoder import DEFAULT_CHUNK_BYTES, RowFilter
from spindle.columnar.directory_files import read_topic_id
from spindle.columnar.segment_log import SegmentLog
from spindle.common.uuids import ZERO_UUID
from spindle.pipeline.errors import DataLoss, WrongHost
from spindle.pipeline.schemas.rows import RAW_ROWS, RowDecoding
from spindle.pipeline.segments.discovery import expand_log_directories, identity_of
from spindle.pipeline.segments.options import SegmentOptions
from spindle.pipeline.segments.ranges import SegmentRange
from spindle.pipeline.segments.walk import WalkInterrupted

_ATTEMPTS_WITHOUT_PROGRESS: Final = 10


ThroughBrokers: TypeAlias = Callable[[SegmentRange, "ReadSettings"], Iterator[pa.RecordBatch]]
"""Reads a range from the brokers, in place of a directory that is not here."""


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
    through_brokers: ThroughBrokers | None = None

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


def read_settings(
    options: SegmentOptions, through_brokers: ThroughBrokers | None = None
) -> ReadSettings:
    """Return the part of the options that tasks need.

    Args:
        through_brokers: Used for directories that are not on the machine of a task.

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
        through_brokers=through_brokers,
        corrupt_batches=options.corrupt_batches,
    )


def read_resumed(
    piece: SegmentRange,
    settings: ReadSettings,
    open_reader: Callable[[SegmentRange, ReadSettings, SegmentLog], _Reader],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range; after an interruption, a new reader continues.

    Raises:
        DataLoss: part of the range is no longer there, and `fail_on_data_loss` is on.
        LogChanged: the log was truncated while it was read.
        CorruptLog: a batch fails its checksum or does not parse.
    """
    rest = piece
    failure: Exception | None = None
    attempts = 0
    while attempts < _ATTEMPTS_WITHOUT_PROGRESS and failure is None:
        try:
            log = _open_log(rest, settings)
            if log is None:
                break
            yield from open_reader(rest, settings, log).batches()
            return
        except WalkInterrupted as interrupted:
            has_progress = interrupted.next_offset > rest.start_offset
            attempts = 0 if has_progress else attempts + 1
            rest = _rest(rest, interrupted.next_offset)
            failure = interrupted.failure
        except (WrongHost, PermissionError) as error:
            failure = error
    if settings.through_brokers is not None:
        yield from settings.through_brokers(rest, settings)
    elif failure is not None:
        raise _explained(failure) from failure
    elif settings.fail_on_data_loss:
        raise DataLoss(
            f"{piece.partition}: {piece.path} does not exist any more; offsets "
            f"[{rest.start_offset}, {piece.end_offset}) were not read"
        )


def _explained(error: Exception) -> WrongHost:
    return WrongHost(
        f"{error} (on host {socket.gethostname()}). With the option kafka.bootstrap.servers, tasks "
        "read through the brokers what they cannot read from their machine"
    )


def _rest(piece: SegmentRange, start_offset: int) -> SegmentRange:
    return replace(piece, start_offset=start_offset, segment_base_offset=-1, position=0)


def _open_log(piece: SegmentRange, settings: ReadSettings) -> SegmentLog | None:
    """Open the replica's log where it was planned, or in the directory it was moved to since.

    Raises:
        WrongHost: the planned log directory, or any of its broker, is not on this machine.
    """
    planned = Path(piece.path)
    identity = identity_of(planned.parent)
    if identity != piece.home:
        raise WrongHost(
            f"{piece.partition} was planned in log directory {planned.parent} of {piece.home}; "
            + ("there is no such log directory" if identity is None else f"that is {identity}")
        )
    for place in (planned, *(Path(path) / planned.name for path in settings.log_directories)):
        # Another broker's replica may be behind, so a move is followed within the broker only.
        home = identity_of(place.parent)
        if home is None or home[:2] != piece.home[:2]:
            continue
        if (read_topic_id(place) or ZERO_UUID) != piece.topic_id:
            continue
        try:
            return SegmentLog(place)
        except FileNotFoundError:
            continue
    return None
