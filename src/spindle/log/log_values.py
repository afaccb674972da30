"""Arguments and results of the methods of a log."""

from collections.abc import Sequence
from typing import NamedTuple

from spindle.common.ports import Bytes
from spindle.log.leader_epochs import LeaderEpochs
from spindle.log.producers.entry import BatchMetadata
from spindle.log.producers.state import ProducerState
from spindle.log.segments.segment_list import Segments
from spindle.protocol.records.batch import BatchHeader
from spindle.protocol.sentinels import NO_TIMESTAMP


class AppendInfo(NamedTuple):
    """The result of an append. Offsets are inclusive; `log_append_time_ms` is -1 for create time.

    For a batch that was in the log already (`is_duplicate`) the offsets are those it got then, and
    nothing was written. An append of nothing has `last_offset == first_offset - 1`. `records` is
    what was written, for readers that wait for it.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
    size_bytes: int
    records: Bytes = b""


def nothing_appended(log_start_offset: int, log_end_offset: int) -> AppendInfo:
    """Return the result of an append of nothing."""
    start, end = log_start_offset, log_end_offset
    return AppendInfo(end, end - 1, NO_TIMESTAMP, NO_TIMESTAMP, start, False, 0)


def duplicate_append(
    earlier: BatchMetadata, header: BatchHeader, log_start_offset: int
) -> AppendInfo:
    """Return the result for a batch that is in the log already, as `earlier`."""
    return AppendInfo(
        earlier.first_offset,
        earlier.last_offset,
        earlier.timestamp_ms,
        earlier.timestamp_ms if header.has_log_append_time else NO_TIMESTAMP,
        log_start_offset,
        True,
        0,
    )


class FetchedRecords(NamedTuple):
    """Whole batches; `first_offset` is the base offset of the first, at most the requested one.

    If `records` is empty, `first_offset` is the requested offset.
    """

    records: memoryview
    first_offset: int


class Gap(NamedTuple):
    """Offsets from `first_offset` to below `end_offset` that have no records."""

    first_offset: int
    end_offset: int


class LoadedState(NamedTuple):
    """The state of a log that was loaded or created."""

    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerState
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    unverified_gaps: tuple[Gap, ...] = ()


class MovedLogState(NamedTuple):
    """The state of a log beside its records, for the copy that replaces the log (KIP-113)."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    epochs: Sequence[tuple[int, int]]
    producers: ProducerState
    unverified_gaps: tuple[Gap, ...]
