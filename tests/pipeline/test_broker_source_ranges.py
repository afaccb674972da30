"""Tasks of a read: no offset is lost or read twice, and the tasks are of about equal size."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.pipeline.brokers.ranges import (
    OffsetRange,
    size_of,
    split_by_bytes,
    split_by_count,
    tasks_for,
)

MIB = 1024 * 1024


def ranges_of(*bounds: tuple[int, int]) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", index), ZERO_UUID, start, end)
        for index, (start, end) in enumerate(bounds)
    ]


def offsets_of(tasks: list[tuple[OffsetRange, ...]]) -> list[tuple[int, int]]:
    """Return every (partition, offset) in the order of the tasks."""
    return [
        (part.partition.partition, offset)
        for task in tasks
        for part in task
        for offset in range(part.start_offset, part.end_offset)
    ]


def bounds_of(tasks: list[tuple[OffsetRange, ...]]) -> list[tuple[int, int, int]]:
    return [(r.partition.partition, r.start_offset, r.end_offset) for task in tasks for r in task]


SOME_RANGES = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 60)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=6,
)


@given(
    bounds=SOME_RANGES,
    min_partitions=st.none() | st.integers(1, 20),
    max_records=st.none() | st.integers(1, 30),
)
def test_splitting_by_count_keeps_every_offset(
    bounds: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = ranges_of(*bounds)
    tasks = split_by_count(ranges, min_partitions, max_records)
    assert offsets_of(tasks) == offsets_of([tuple(ranges)])
    assert all(len(task) == 1 and task[0].size > 0 for task in tasks)
    if max_records is not None:
        assert all(task[0].size <= max_records for task in tasks)


@given(
    bounds=SOME_RANGES,
    bytes_per_offset=st.lists(st.floats(0.5, 10 * MIB), min_size=6, max_size=6),
    cores=st.integers(1, 8),
)
def test_splitting_by_bytes_keeps_every_offset(
    bounds: list[tuple[int, int]], bytes_per_offset: list[float], cores: int
) -> None:
    ranges = ranges_of(*bounds)
    weights = {
        offset_range.partition: w for offset_range, w in zip(ranges, bytes_per_offset, strict=False)
    }
    tasks = split_by_bytes(ranges, weights, tasks_for(size_of(ranges, weights), cores))
    assert offsets_of(tasks) == offsets_of([tuple(ranges)])
    assert all(tasks)
    assert all(part.size > 0 for task in tasks for part in task)
    total_bytes = sum(
        offset_range.size * weights[offset_range.partition] for offset_range in ranges
    )
    assert len(tasks) <= max(2 * cores, math.ceil(total_bytes / (256 * MIB)))


def test_min_partitions_splits_in_proportion() -> None:
    # Spark's rule: the range is worth 3 of 5 tasks, and the last part takes the remainder.
    tasks = split_by_count(ranges_of((0, 10), (0, 1000)), 5, None)
    assert bounds_of(tasks) == [
        (0, 0, 10),
        (1, 0, 250),
        (1, 250, 500),
        (1, 500, 750),
        (1, 750, 1000),
    ]


def test_enough_partitions_are_left_alone() -> None:
    tasks = split_by_count(ranges_of((0, 10), (5, 5), (0, 1000)), 2, None)
    assert bounds_of(tasks) == [(0, 0, 10), (2, 0, 1000)]


def test_more_tasks_than_offsets_are_one_for_each_offset() -> None:
    tasks = split_by_count(ranges_of((5, 8)), 2**31 - 1, None)
    assert bounds_of(tasks) == [(0, 5, 6), (0, 6, 7), (0, 7, 8)]


def test_max_records_splits_evenly() -> None:
    tasks = split_by_count(ranges_of((0, 10)), None, 4)
    assert bounds_of(tasks) == [(0, 0, 3), (0, 3, 6), (0, 6, 10)]


@pytest.mark.parametrize(
    ("total_bytes", "tasks"),
    [(0, 1), (4 * MIB - 1, 1), (4 * MIB, 4), (400 * MIB, 7), (2048 * MIB, 8), (10_000 * MIB, 40)],
)
def test_the_number_of_tasks_follows_size_and_cores(total_bytes: int, tasks: int) -> None:
    assert tasks_for(total_bytes, cores=4) == tasks


def test_one_large_partition_uses_every_core() -> None:
    ranges = ranges_of((0, 1_000_000))
    tasks = split_by_bytes(ranges, {ranges[0].partition: 1000.0}, 4)
    assert [task[0].size for task in tasks] == [250_000] * 4


def test_many_small_partitions_share_tasks() -> None:
    ranges = ranges_of(*[(0, 1000)] * 64)
    weights = {offset_range.partition: 100.0 for offset_range in ranges}
    tasks = split_by_bytes(ranges, weights, 2)
    assert [sum(part.size for part in task) for task in tasks] == [32_000, 32_000]


def test_a_partition_with_large_records_is_cut_finer() -> None:
    ranges = ranges_of((0, 1000), (0, 1000))
    weights = {ranges[0].partition: 0.6 * MIB, ranges[1].partition: 0.2 * MIB}
    tasks = split_by_bytes(ranges, weights, 4)
    volumes = [sum(r.size * weights[r.partition] for r in task) / MIB for task in tasks]
    assert volumes == pytest.approx([200] * 4, abs=1)
