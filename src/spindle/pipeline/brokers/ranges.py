"""Cut offset ranges into tasks.

With `minPartitions` or `maxRecordsPerPartition` the cut is that of Spark's `kafka` source: large
ranges in proportion to their share, small ones whole. Without these options it differs on purpose:
there are about twice as many tasks as cores, each with about the same number of bytes, and no task
is larger than a limit: what an executor had read when it died is read again. One task per partition
would leave cores idle or start hundreds of tiny tasks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid

_TASKS_PER_CORE: Final = 2
_TASK_BYTES: Final = 64 * 1024 * 1024
_MAX_TASK_BYTES: Final = 256 * 1024 * 1024
_SMALL_READ_BYTES: Final = 4 * 1024 * 1024
"""A read below this size is one task: a second one would cost more than it saves."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of one partition, with the topic id they were planned for.

    `from_earliest`: the read was to start at the log start, so a log start that has moved since is
    no data loss. `to_latest`: the range is the last one of a partition that is to be read to its
    current end. Both are False for a read of exact offsets.
    """

    partition: TopicPartition
    topic_id: Uuid
    start_offset: int
    end_offset: int
    from_earliest: bool = False
    to_latest: bool = False

    @property
    def size(self) -> int:
        """The number of offsets; records may be fewer (compaction, transaction markers)."""
        return self.end_offset - self.start_offset

    def holds(self, offset: int) -> bool:
        """Return True if an offset is in the range."""
        return self.start_offset <= offset < self.end_offset


def split_by_count(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Return one range per task, cut as the built-in source cuts.

    Args:
        min_partitions: Cut into about this many tasks if there are fewer ranges.
        max_records: The most offsets of a task.
    """
    pieces = [offset_range for offset_range in ranges if offset_range.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-piece.size // max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _cut_large(pieces, min_partitions)
    return [(piece,) for piece in pieces]


def size_of(
    ranges: Iterable[OffsetRange], bytes_per_offset: Mapping[TopicPartition, float]
) -> float:
    """Return the estimated bytes of the ranges."""
    return sum(
        max(0, offset_range.size) * bytes_per_offset[offset_range.partition]
        for offset_range in ranges
    )


def split_by_bytes(
    ranges: Sequence[OffsetRange], bytes_per_offset: Mapping[TopicPartition, float], task_count: int
) -> list[tuple[OffsetRange, ...]]:
    """Return at most this many tasks, of about the same number of bytes."""
    wanted = [offset_range for offset_range in ranges if offset_range.size > 0]
    weights = [
        offset_range.size * bytes_per_offset[offset_range.partition] for offset_range in wanted
    ]
    share = sum(weights) / task_count if wanted else 0.0
    tasks: list[list[OffsetRange]] = [[]]
    room = share
    for offset_range, weight in zip(wanted, weights, strict=True):
        per_offset = weight / offset_range.size
        rest = offset_range
        while rest.size > 0:
            if room < per_offset and tasks[-1] and len(tasks) < task_count:
                tasks.append([])
                room += share
            is_last = len(tasks) == task_count
            fitting = rest.size if is_last else min(rest.size, max(1, int(room / per_offset)))
            end = rest.start_offset + fitting
            tasks[-1].append(_piece(offset_range, rest.start_offset, end))
            room -= fitting * per_offset
            rest = _piece(offset_range, end, offset_range.end_offset)
    return [tuple(task) for task in tasks if task]


def tasks_for(total_bytes: float, cores: int) -> int:
    """Return the number of tasks for a read of this size."""
    if total_bytes < _SMALL_READ_BYTES:
        return 1
    by_size = -int(-total_bytes // _TASK_BYTES)
    at_least = -int(-total_bytes // _MAX_TASK_BYTES)
    return max(cores, min(_TASKS_PER_CORE * cores, by_size), at_least)


def _cut_large(ranges: Sequence[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Cut the ranges whose share is worth more than one task, and leave the small ones whole."""
    total = sum(offset_range.size for offset_range in ranges)
    small = [
        offset_range
        for offset_range in ranges
        if _parts(offset_range.size, total, min_partitions) == 1
    ]
    large_total = total - sum(offset_range.size for offset_range in small)
    large_parts = max(min_partitions - len(small), 1)
    cut = []
    for offset_range in ranges:
        is_small = _parts(offset_range.size, total, min_partitions) == 1
        parts = 1 if is_small else _parts(offset_range.size, large_total, large_parts)
        cut.extend(_cut(offset_range, parts))
    return cut


def _parts(size: int, total: int, parts: int) -> int:
    # Half rounds up, as in Java; Python's round() would go to the even number.
    return max(int(size / total * parts + 0.5), 1)


def _cut(each: OffsetRange, parts: int) -> list[OffsetRange]:
    """Cut a range into equal parts; the last parts take the remainder, and no part is empty."""
    cut = []
    start = each.start_offset
    parts = min(parts, each.size)
    for part in range(parts):
        end = start + (each.end_offset - start) // (parts - part)
        if end > start:
            cut.append(_piece(each, start, end))
        start = end
    return cut


def _piece(each: OffsetRange, start: int, end: int) -> OffsetRange:
    is_last = end == each.end_offset
    return replace(each, start_offset=start, end_offset=end, to_latest=each.to_latest and is_last)


def with_empty_ends(
    tasks: list[tuple[OffsetRange, ...]], ranges: Iterable[OffsetRange]
) -> list[tuple[OffsetRange, ...]]:
    """Add to the last task the ranges that are empty now and may have grown when it runs."""
    empty = tuple(
        offset_range for offset_range in ranges if offset_range.size <= 0 and offset_range.to_latest
    )
    if not empty:
        return tasks
    return [*tasks[:-1], (*(tasks[-1] if tasks else ()), *empty)]
