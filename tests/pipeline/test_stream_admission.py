"""How much of a backlog a batch reads, and when a small backlog waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.ids import TopicPartition
from spindle.pipeline.streaming.admission import (
    Backlog,
    TriggerLimits,
    admitted_ends,
    must_wait,
)

PARTITIONS = [TopicPartition("a", n) for n in range(4)]
limits = st.none() | st.integers(1, 10_000)


def backlog(*sizes: int, start: int = 0) -> Backlog:
    starts = dict.fromkeys(PARTITIONS[: len(sizes)], start)
    return Backlog(
        starts, {partition: start + n for partition, n in zip(PARTITIONS, sizes, strict=False)}
    )


def admitted(of: Backlog, limits: TriggerLimits, backlog_bytes: int = 0) -> list[int]:
    ends = admitted_ends(of, limits, backlog_bytes)
    return [ends[partition] - of.start[partition] for partition in of.start]


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ((300, 700), 100, [30, 70]),
        ((300, 700), 1000, [300, 700]),
        ((300, 700), 5000, [300, 700]),
        ((1, 999_999), 100, [1, 99]),
        ((0, 10), 5, [0, 5]),
        ((0, 0), 5, [0, 0]),
        ((333, 333, 333), 100, [33, 33, 33]),
    ],
)
def test_offsets_are_shared_in_proportion_to_the_backlog(
    sizes: tuple[int, ...], most: int, expected: list[int]
) -> None:
    assert admitted(backlog(*sizes, start=5), TriggerLimits(max_offsets=most)) == expected


def test_bytes_are_shared_by_the_same_share_of_each_partition() -> None:
    limits = TriggerLimits(max_bytes=1000)
    assert admitted(backlog(300, 100), limits, backlog_bytes=4000) == [75, 25]
    assert admitted(backlog(300, 100), limits, backlog_bytes=900) == [300, 100]


def test_the_smaller_of_two_limits_counts() -> None:
    limits = TriggerLimits(max_offsets=40, max_bytes=1000)
    assert admitted(backlog(300, 100), limits, backlog_bytes=4000) == [30, 10]
    assert admitted(backlog(300, 100), limits, backlog_bytes=400_000) == [1, 1]


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=4),
    limits,
    limits,
    st.integers(0, 2**50),
)
def test_a_batch_moves_on_and_stays_within_backlog_and_limits(
    sizes: list[int], max_offsets: int | None, max_bytes: int | None, backlog_bytes: int
) -> None:
    wanted = TriggerLimits(max_offsets=max_offsets, max_bytes=max_bytes)
    counts = admitted(backlog(*sizes, start=7), wanted, backlog_bytes)
    assert all(
        (0 < count <= size) if size else count == 0
        for count, size in zip(counts, sizes, strict=True)
    )
    if max_offsets is not None:
        assert sum(counts) <= max(max_offsets, 0) + len(sizes)
    if max_offsets is None and (max_bytes is None or backlog_bytes <= max_bytes):
        assert counts == sizes


@given(st.lists(st.integers(0, 500), min_size=1, max_size=4), st.integers(1, 50))
def test_batches_reach_the_end_and_read_every_offset_once(sizes: list[int], most: int) -> None:
    left = backlog(*sizes)
    for _ in range(sum(sizes) + 1):
        ends = admitted_ends(left, TriggerLimits(max_offsets=most), 0)
        left = Backlog(ends, left.end)
    assert left.start == left.end


@pytest.mark.parametrize(
    ("limits", "backlog_bytes", "waited_ms", "waits"),
    [
        (TriggerLimits(), 0, 0, False),
        (TriggerLimits(min_offsets=100), 0, 0, False),
        (TriggerLimits(min_offsets=101), 0, 0, True),
        (TriggerLimits(min_offsets=101), 0, None, False),
        (TriggerLimits(min_offsets=101, max_delay_ms=50), 0, 49, True),
        (TriggerLimits(min_offsets=101, max_delay_ms=50), 0, 50, False),
        (TriggerLimits(min_bytes=500), 499, 0, True),
        (TriggerLimits(min_bytes=500), 500, 0, False),
        (TriggerLimits(min_offsets=101, min_bytes=500), 500, 0, False),
        (TriggerLimits(min_offsets=100, min_bytes=500), 0, 0, False),
        (TriggerLimits(min_offsets=101, min_bytes=500), 0, 0, True),
        (TriggerLimits(max_offsets=5), 0, 0, False),
    ],
)
def test_a_small_backlog_waits_for_more_or_for_the_delay(
    limits: TriggerLimits, backlog_bytes: int, waited_ms: int | None, waits: bool
) -> None:
    assert must_wait(backlog(60, 40), limits, backlog_bytes, waited_ms=waited_ms) == waits


def test_the_size_of_a_backlog_is_that_of_its_partitions() -> None:
    sizes = dict(zip(PARTITIONS, (2.5, 10.0), strict=False))
    assert backlog(4, 3, start=100).size_bytes(sizes) == 40
