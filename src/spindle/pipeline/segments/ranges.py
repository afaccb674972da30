"""Plan a read: offset ranges from options and filters, then tasks of about equal size.

The plan is complete before the first task runs: a task never reads past its planned end, even if
the log has grown. Ranges are cut at batch boundaries from the offset index.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spindle.client.fetching import AbortedProducer
from spindle.columnar.segment_log import Position
from spindle.columnar.transaction_state import aborted_transactions, overlapping
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.pipeline.errors import DataLoss, rights_explained
from spindle.pipeline.options.limits import AtTime, AtTimes, End, NoMatch, check_complete
from spindle.pipeline.segments.discovery import LogDirectoryIdentity
from spindle.pipeline.segments.options import SegmentOptions
from spindle.pipeline.segments.partitions import ReadablePartition, describe
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.protocol.sentinels import EARLIEST, LATEST

_MIN_TASK_BYTES: Final = 16 * 1024 * 1024
_MAX_TASK_BYTES: Final = 256 * 1024 * 1024
_TASKS_PER_CORE: Final = 2


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Offsets [start_offset, end_offset) of one partition, and where their bytes begin.

    `path` is the replica's directory, in a log directory of the identity `home`.
    `aborted` is None for read_uncommitted. `leader_epochs` is the partition's epoch checkpoint at
    the time of the plan. `size_bytes` is an estimate.
    """

    partition: TopicPartition
    topic_id: Uuid
    home: LogDirectoryIdentity
    path: str
    start_offset: int
    end_offset: int
    segment_base_offset: int = 0
    position: int = 0
    size_bytes: int = 1
    leader_epochs: tuple[tuple[int, int], ...] = ()
    aborted: tuple[AbortedProducer, ...] | None = None


def resolve_ranges(
    options: SegmentOptions,
    partitions: Sequence[ReadablePartition],
    filters: PushedFilters,
    *,
    keep_empty: bool = False,
) -> list[tuple[ReadablePartition, int, int]]:
    """Return (partition, start, end) of every range to read, without empty ones by default.

    Raises:
        DataLoss: an offset asked for is outside the log, and `failOnDataLoss` is on.
        ValueError: a map of offsets does not name exactly the partitions that are read.
    """
    existing = [partition.partition for partition in partitions]
    check_complete(options.start, End.START, existing)
    check_complete(options.stop, End.STOP, existing)
    ranges: list[tuple[ReadablePartition, int, int]] = []
    for partition in partitions:
        if not filters.wants(partition.partition):
            continue
        start = _inside(options, partition, "starting", _start(options, partition))
        end = _inside(options, partition, "ending", _end(options, partition))
        start, end = _narrowed(partition, start, end, filters)
        if start < end or (keep_empty and start == end):
            ranges.append((partition, start, end))
    return ranges


def range_of(partition: ReadablePartition, start: int, end: int) -> SegmentRange:
    """Return offsets [start, end) of a partition, not yet located in its segments."""
    return SegmentRange(
        partition.partition,
        partition.topic_id,
        partition.directory.identity,
        str(partition.log.path),
        start,
        end,
        leader_epochs=partition.leader_epochs,
    )


@rights_explained()
def plan_tasks(
    options: SegmentOptions, resolved: Sequence[tuple[ReadablePartition, int, int]]
) -> list[tuple[SegmentRange, ...]]:
    """Cut and pack the ranges into tasks. Small partitions share one, large ones get several."""
    for partition, start, end in resolved:
        partition.log.check_formats(start, end)
    located = [_located(partition, start, end) for partition, start, end in resolved]
    total_bytes = sum(whole.size_bytes for _, whole in located)
    target_bytes = options.task_bytes or _target_bytes(options, total_bytes)
    ranges: list[SegmentRange] = []
    for (partition, _, _), (first, whole) in zip(resolved, located, strict=True):
        cuts = _cuts(partition, first, whole, target_bytes, options.max_records_per_partition)
        pieces = list(_pieces(whole, cuts))
        ranges += _with_aborted(options, partition, pieces)
    limit = None if options.max_records_per_partition is None else 1
    return list(_packed(ranges, target_bytes, limit))


@rights_explained()
def locate_pieces(
    options: SegmentOptions,
    resolved: Sequence[tuple[ReadablePartition, int, int]],
    pieces: Mapping[TopicPartition, Sequence[tuple[int, int]]],
) -> dict[TopicPartition, list[SegmentRange]]:
    """Return the parts of given pieces, (start, end) in order, that are inside the ranges."""
    located = {}
    for partition, start, end in resolved:
        partition.log.check_formats(start, end)
        inside = [
            (max(first, start), min(last, end))
            for first, last in pieces[partition.partition]
            if first < end and last > start
        ]
        segment_ranges = [_located(partition, first, last)[1] for first, last in inside]
        located[partition.partition] = _with_aborted(options, partition, segment_ranges)
    return located


def _located(partition: ReadablePartition, start: int, end: int) -> tuple[Position, SegmentRange]:
    first, size_bytes = _sized(partition, start, end)
    whole = replace(
        range_of(partition, start, end),
        segment_base_offset=first.segment.base_offset,
        position=first.position,
        size_bytes=size_bytes,
    )
    return first, whole


def _with_aborted(
    options: SegmentOptions, partition: ReadablePartition, pieces: list[SegmentRange]
) -> list[SegmentRange]:
    if not options.is_read_committed:
        return pieces
    transactions = aborted_transactions(partition.log)
    return [
        replace(piece, aborted=overlapping(transactions, piece.start_offset, piece.end_offset))
        for piece in pieces
    ]


def log_bytes(partition: ReadablePartition, start: int, end: int) -> int:
    """Return the size of offsets [start, end) in the log, by the offset index; at least 1."""
    return _sized(partition, start, end)[1]


def _start(options: SegmentOptions, partition: ReadablePartition) -> int:
    place = options.start.of(partition.partition)
    if not isinstance(options.start, AtTime | AtTimes):
        return partition.log_start_offset if place == EARLIEST else place
    offset = _at_timestamp(partition, place)
    if offset is not None:
        return offset
    if options.no_match is NoMatch.LATEST:
        return partition.end_offset
    raise ValueError(
        f"{describe(partition)} has no record with a timestamp of {place} or later; "
        "startingOffsetsByTimestampStrategy=latest starts at the end then"
    )


def _end(options: SegmentOptions, partition: ReadablePartition) -> int:
    place = options.stop.of(partition.partition)
    if not isinstance(options.stop, AtTime | AtTimes):
        return partition.end_offset if place == LATEST else place
    offset = _at_timestamp(partition, place)
    return partition.end_offset if offset is None else offset


def _at_timestamp(partition: ReadablePartition, timestamp_ms: int) -> int | None:
    return partition.log.offset_for_timestamp(
        timestamp_ms, partition.log_start_offset, partition.end_offset
    )


def _inside(options: SegmentOptions, partition: ReadablePartition, name: str, offset: int) -> int:
    first, end = partition.log_start_offset, partition.end_offset
    if first <= offset <= end:
        return offset
    if options.fail_on_data_loss:
        raise DataLoss(
            f"{describe(partition)}: {name} offset {offset} is outside the log, which has "
            f"[{first}, {end}) (failOnDataLoss=false reads what is there)"
        )
    return min(max(offset, first), end)


def _narrowed(
    partition: ReadablePartition, start: int, end: int, filters: PushedFilters
) -> tuple[int, int]:
    start, end = max(start, filters.min_offset), min(end, filters.end_offset)
    if filters.min_timestamp_ms is not None and start < end:
        # All records before the first one with that time are older.
        offset = partition.log.offset_for_timestamp(filters.min_timestamp_ms, start, end)
        start = end if offset is None else offset
    return start, end


def _sized(partition: ReadablePartition, start: int, end: int) -> tuple[Position, int]:
    first = partition.log.position_of(start)
    last = partition.log.position_of(end)
    assert first is not None
    assert last is not None
    size_bytes = last.position - first.position
    for segment in partition.log.segments:
        if first.segment.base_offset <= segment.base_offset < last.segment.base_offset:
            size_bytes += segment.size_bytes
    return first, max(1, size_bytes)


def _target_bytes(options: SegmentOptions, total_bytes: int) -> int:
    cores = options.parallelism or os.cpu_count() or 1
    target_bytes = -(-total_bytes // (_TASKS_PER_CORE * cores))
    target_bytes = min(max(target_bytes, _MIN_TASK_BYTES), _MAX_TASK_BYTES)
    if options.min_partitions is not None:
        target_bytes = min(target_bytes, -(-total_bytes // options.min_partitions))
    return max(1, target_bytes)


def _cuts(
    partition: ReadablePartition,
    first: Position,
    whole: SegmentRange,
    target_bytes: int,
    max_records: int | None,
) -> list[Position]:
    """Return the offsets at which the pieces after the first begin, ascending."""
    offsets = whole.end_offset - whole.start_offset
    pieces = min(-(-whole.size_bytes // target_bytes), max(1, offsets))
    wanted = [whole.size_bytes * piece // pieces for piece in range(1, pieces)]
    cuts = list(_boundaries(partition, first, wanted))
    if max_records is not None:
        for offset in range(whole.start_offset + max_records, whole.end_offset, max_records):
            near = partition.log.position_of(offset)
            if near is not None:
                cuts.append(near._replace(offset=offset))
    cuts.sort(key=lambda cut: cut.offset)
    ascending: list[Position] = []
    for cut in cuts:
        previous = ascending[-1].offset if ascending else whole.start_offset
        if previous < cut.offset < whole.end_offset:
            ascending.append(cut)
    return ascending


def _boundaries(
    partition: ReadablePartition, first: Position, distances: Sequence[int]
) -> Iterator[Position]:
    """Return batch boundaries near the given distances, in bytes from `first`, ascending."""
    segments = [
        segment
        for segment in partition.log.segments
        if segment.base_offset >= first.segment.base_offset
    ]
    passed_bytes = -first.position
    index = 0
    for distance in distances:
        while index + 1 < len(segments) and passed_bytes + segments[index].size_bytes <= distance:
            passed_bytes += segments[index].size_bytes
            index += 1
        yield partition.log.boundary_near(segments[index], distance - passed_bytes)


def _pieces(whole: SegmentRange, cuts: Sequence[Position]) -> Iterator[SegmentRange]:
    count = len(cuts) + 1
    ends = [cut.offset for cut in cuts] + [whole.end_offset]
    piece = replace(whole, end_offset=ends[0], size_bytes=max(1, whole.size_bytes // count))
    yield piece
    for cut, end in zip(cuts, ends[1:], strict=True):
        yield replace(
            piece,
            start_offset=cut.offset,
            end_offset=end,
            segment_base_offset=cut.segment.base_offset,
            position=cut.position,
        )


def _packed(
    ranges: Sequence[SegmentRange], target_bytes: int, max_ranges: int | None
) -> Iterator[tuple[SegmentRange, ...]]:
    task: list[SegmentRange] = []
    task_bytes = 0
    for piece in ranges:
        is_full = task_bytes + piece.size_bytes > target_bytes or len(task) == max_ranges
        if task and is_full:
            yield tuple(task)
            task, task_bytes = [], 0
        task.append(piece)
        task_bytes += piece.size_bytes
    if task:
        yield tuple(task)
