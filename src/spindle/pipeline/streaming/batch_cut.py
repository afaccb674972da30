"""How a batch of a stream is cut into tasks: decided once, when the batch is planned.

The checkpoint keeps the decision, so a batch that is repeated has the same tasks, whatever has
become of the logs, the executors and the options since. The exactly-once sink needs that: if a
batch is partly committed, it writes the rest task by task.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.ranges import (
    OffsetRange,
    size_of,
    split_by_bytes,
    split_by_count,
)

_BYTES_PER_OFFSET: Final = "bytesPerOffset"
_TASKS: Final = "tasks"
_MIN_PARTITIONS: Final = "minPartitions"
_MAX_RECORDS: Final = "maxRecordsPerPartition"


@dataclass(frozen=True, slots=True)
class CutByBytes:
    """Tasks of about the same number of bytes.

    Attributes:
        bytes_per_offset: Average bytes of an offset of each topic, at least 1.
    """

    tasks: int
    bytes_per_offset: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CutByCount:
    """One range for each task, by numbers of offsets, as the options of these names say."""

    min_partitions: int | None = None
    max_records: int | None = None


BatchCut: TypeAlias = CutByBytes | CutByCount


def cut_batch(ranges: Sequence[OffsetRange], cut: BatchCut) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task."""
    match cut:
        case CutByCount(min_partitions, max_records):
            return split_by_count(ranges, min_partitions, max_records)
        case CutByBytes(tasks, bytes_per_offset):
            return split_by_bytes(ranges, by_partition(ranges, bytes_per_offset), tasks)


def by_partition(
    ranges: Iterable[OffsetRange], bytes_per_offset: Mapping[str, int]
) -> dict[TopicPartition, float]:
    """Return the bytes per offset of each partition, from those of its topic."""
    return {
        offset_range.partition: bytes_per_offset[offset_range.partition.topic]
        for offset_range in ranges
    }


def topic_averages(
    ranges: Iterable[OffsetRange], bytes_per_offset: Mapping[TopicPartition, float]
) -> dict[str, int]:
    """Return the average bytes of an offset of each topic in these ranges, rounded up."""
    by_topic: dict[str, list[OffsetRange]] = {}
    for offset_range in ranges:
        by_topic.setdefault(offset_range.partition.topic, []).append(offset_range)
    return {
        topic: max(
            1, math.ceil(size_of(own, bytes_per_offset) / sum(directory.size for directory in own))
        )
        for topic, own in by_topic.items()
    }


def cut_to_json(cut: BatchCut) -> dict[str, Any]:
    """Return the form for the checkpoint."""
    match cut:
        case CutByBytes(tasks, bytes_per_offset):
            return {_TASKS: tasks, _BYTES_PER_OFFSET: dict(sorted(bytes_per_offset.items()))}
        case CutByCount(min_partitions, max_records):
            given = {_MIN_PARTITIONS: min_partitions, _MAX_RECORDS: max_records}
            return {name: number for name, number in given.items() if number is not None}


def cut_from_json(content: Any) -> BatchCut:
    """Return the cut in a checkpoint.

    Raises:
        ValueError, TypeError, AttributeError: it is none.
    """
    if _TASKS in content:
        bytes_per_offset = content[_BYTES_PER_OFFSET]
        numbers = [content[_TASKS], *bytes_per_offset.values()]
        cut: BatchCut = CutByBytes(content[_TASKS], bytes_per_offset)
    else:
        cut = CutByCount(content.get(_MIN_PARTITIONS), content.get(_MAX_RECORDS))
        numbers = list(content.values())
    if any(type(number) is not int or number < 1 for number in numbers):
        raise ValueError(content)
    return cut
