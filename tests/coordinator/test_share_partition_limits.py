"""A share partition at its limits: 10,000 locked records, hundreds of members, hostile ranges."""

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    AcquisitionRequest,
    DeliverySettings,
    FetchedBatch,
    SharePartition,
    check_acknowledgements,
)

LIMIT = 10_000
"""The highest value of `share.partition.max.record.locks` by default."""
SETTINGS = DeliverySettings(max_record_locks=LIMIT)
MEMBERS, EACH = 500, 20
INT64_MAX = 2**63 - 1
ACCEPT, RELEASE = 1, 2


def acquire(partition: SharePartition, member: str, count: int) -> list[tuple[int, int]]:
    """Acquire records of a log with one huge batch; return the ranges."""
    offset = partition.next_fetch_offset(SETTINGS)
    if offset is None:
        return []
    request = AcquisitionRequest(member, count, is_record_limit=True)
    acquired = partition.acquire(request, [FetchedBatch(0, 10 * LIMIT)], offset, SETTINGS, 0)
    return [(one.first_offset, one.last_offset) for one in acquired]


def full() -> SharePartition:
    """Return a partition whose members hold as much as the group may."""
    partition = SharePartition(0, 0)
    for number in range(MEMBERS):
        first = number * EACH
        assert acquire(partition, f"m{number}", EACH) == [(first, first + EACH - 1)]
    return partition


def store(partition: SharePartition) -> None:
    assert partition.begin_write() is not None
    partition.end_write(is_stored=True)


def test_hundreds_of_members_hold_as_much_as_the_group_may_and_nobody_more() -> None:
    partition = full()
    assert partition.acquired_count == LIMIT
    assert partition.next_fetch_offset(SETTINGS) is None
    batch = [FetchedBatch(0, 10 * LIMIT)]
    assert partition.acquire(AcquisitionRequest("late", 1), batch, 0, SETTINGS, 0) == []
    assert partition.in_flight == LIMIT


def test_records_of_stuck_members_go_to_others_when_their_locks_expire() -> None:
    partition = full()
    for number in range(0, MEMBERS, 2):  # the others are stuck
        first = number * EACH
        done = [AcknowledgedBatch(first, first + EACH - 1, [ACCEPT, RELEASE] * (EACH // 2))]
        partition.acknowledge(f"m{number}", done, SETTINGS, 1)
    store(partition)
    assert partition.acquired_count == LIMIT // 2
    partition.expire(SETTINGS, SETTINGS.lock_duration_ms)
    assert partition.acquired_count == 0
    store(partition)

    again = []
    while ranges := acquire(partition, "other", LIMIT):
        again += ranges
        if ranges[-1][1] >= LIMIT:
            break
    held = sum(last - first + 1 for first, last in again if last < LIMIT)
    assert held == LIMIT - LIMIT // 4
    partition.check()


def test_a_partition_forgets_what_is_done() -> None:
    """Every second record first: the worst order for the number of ranges."""
    partition = full()
    for start in (0, 1):
        for number in range(MEMBERS):
            first = number * EACH + start
            done = [
                AcknowledgedBatch(at, at, [ACCEPT]) for at in range(first, first + EACH - start, 2)
            ]
            partition.acknowledge(f"m{number}", done, SETTINGS, 1)
        store(partition)
        assert len(partition.state_batches()) <= LIMIT
    assert partition.state_batches() == []
    assert (partition.start_offset, partition.in_flight) == (LIMIT, 0)


@pytest.mark.parametrize(
    ("first", "last", "code"),
    [
        (0, INT64_MAX, ErrorCode.INVALID_REQUEST),
        (INT64_MAX, INT64_MAX, ErrorCode.INVALID_REQUEST),
        (LIMIT, LIMIT, ErrorCode.INVALID_REQUEST),
        (0, LIMIT - 1, ErrorCode.INVALID_RECORD_STATE),  # most of it belongs to others
    ],
)
def test_a_range_that_is_not_held_is_refused_and_changes_nothing(
    first: int, last: int, code: ErrorCode
) -> None:
    partition = full()
    before = partition.state_batches()
    own = AcknowledgedBatch(0, EACH - 1, [ACCEPT])
    hostile = AcknowledgedBatch(first, last, [ACCEPT])
    for batches in ([hostile], [own, hostile] if first > 0 else [hostile]):
        with pytest.raises(ApiError) as refused:
            partition.acknowledge("m0", batches, SETTINGS, 1)
        assert refused.value.code is code
    assert partition.state_batches() == before
    assert not partition.must_write


@pytest.mark.parametrize("types", [[], [ACCEPT] * 3, [ACCEPT] * 100_000, [5], [-128], [127]])
def test_types_that_do_not_fit_are_refused_before_the_partition_sees_them(
    types: list[int],
) -> None:
    with pytest.raises(ApiError) as refused:
        check_acknowledgements([AcknowledgedBatch(0, INT64_MAX, types)], allows_renew=True)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message
