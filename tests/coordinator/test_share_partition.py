"""Records in flight in a share group: delivery, acknowledgement, locks and stored state."""

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.share.delivery import AcknowledgeType, DeliveryState, StateBatch, combine
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    AcquiredRange,
    AcquisitionRequest,
    DeliverySettings,
    FetchedBatch,
    SharePartition,
    StateWrite,
    check_acknowledgements,
)

SETTINGS = DeliverySettings(lock_duration_ms=1_000, delivery_count_limit=3, max_record_locks=100)
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT, RENEW = AcknowledgeType.REJECT, AcknowledgeType.RENEW
AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


class Leader:
    """A share partition whose clock stands, with what it has stored."""

    def __init__(self, start_offset: int = 0, *batches: StateBatch) -> None:
        self.core = SharePartition(start_offset, 0, batches)
        self.now_ms = 0
        self.writes: list[StateWrite] = []

    def fetch(
        self,
        member: str = "a",
        *batches: tuple[int, int],
        at: int | None = None,
        count: int = 500,
        is_record_limit: bool = False,
        settings: DeliverySettings = SETTINGS,
    ) -> list[AcquiredRange]:
        """Acquire from batches of the log, inclusive offsets; (0, 9) if none are given."""
        offset = self.core.next_fetch_offset(settings) if at is None else at
        assert offset is not None
        acquired = self.core.acquire(
            AcquisitionRequest(member, count, is_record_limit),
            [FetchedBatch(*batch) for batch in batches or [(0, 9)]],
            offset,
            settings,
            self.now_ms,
        )
        self.core.check()
        return acquired

    def acknowledge(
        self, first: int, last: int, *types: int, member: str = "a", is_stored: bool = True
    ) -> None:
        batch = AcknowledgedBatch(first, last, types or (ACCEPT,))
        if self.core.acknowledge(member, [batch], SETTINGS, self.now_ms):
            self.store(is_stored=is_stored)
        self.core.check()

    def store(self, *, is_stored: bool = True) -> None:
        write = self.core.begin_write()
        assert write is not None
        self.writes.append(write)
        self.core.end_write(is_stored=is_stored)
        self.core.check()

    def expire(self, after_ms: int = 1_000) -> None:
        self.now_ms += after_ms
        self.core.expire(SETTINGS, self.now_ms)
        self.core.check()

    def refused(self, first: int, last: int, *types: int, member: str = "a") -> ErrorCode:
        with pytest.raises(ApiError) as error:
            self.acknowledge(first, last, *types, member=member)
        return error.value.code


def test_accepted_records_move_the_start_offset() -> None:
    s = Leader()
    assert s.fetch() == [(0, 9, 1)]
    s.acknowledge(0, 9)
    assert s.writes == [StateWrite(10, 0, [])]
    assert s.core.start_offset == s.core.next_offset == 10


def test_a_record_in_front_holds_the_start_offset() -> None:
    s = Leader()
    s.fetch()
    s.acknowledge(1, 9)
    assert s.writes == [StateWrite(0, 9, [StateBatch(1, 9, ACKNOWLEDGED, 1)])]
    assert s.core.start_offset == 0
    s.acknowledge(0, 0)
    assert s.writes[-1] == StateWrite(10, 0, [])


def test_released_records_are_delivered_again_with_a_higher_count() -> None:
    s = Leader()
    s.fetch()
    s.acknowledge(3, 4, RELEASE)
    assert s.writes[-1].batches == [StateBatch(3, 4, AVAILABLE, 1)]
    assert s.core.next_fetch_offset(SETTINGS) == 3
    assert s.fetch("b") == [(3, 4, 2)]


def test_a_record_that_was_delivered_as_often_as_allowed_is_archived() -> None:
    s = Leader()
    for _ in range(2):
        s.fetch()
        s.acknowledge(0, 9, RELEASE)
    assert s.fetch() == [(0, 0, 3)]
    s.acknowledge(0, 0, RELEASE)
    assert s.core.start_offset == 1


def test_a_record_on_its_last_delivery_is_delivered_alone() -> None:
    s = Leader(0, StateBatch(0, 3, AVAILABLE, 1), StateBatch(4, 5, AVAILABLE, 2))
    assert s.fetch() == [(0, 3, 2)]
    assert s.fetch() == [(4, 4, 3)]
    assert s.fetch() == [(5, 5, 3)]
    assert s.fetch("a", (0, 9), (10, 14)) == [(6, 14, 1)]


def test_rejected_records_are_never_delivered_again() -> None:
    s = Leader()
    s.fetch()
    s.acknowledge(0, 9, *([REJECT] * 5), *([RELEASE] * 5))
    assert s.core.start_offset == 5
    assert s.fetch() == [(5, 9, 2)]


def test_an_acknowledgement_that_is_not_stored_leaves_the_record_with_its_member() -> None:
    s = Leader()
    s.fetch()
    s.acknowledge(0, 9, is_stored=False)
    assert s.core.start_offset == 0
    s.acknowledge(0, 9)
    assert s.core.start_offset == 10


def test_a_change_waits_for_the_write_that_is_running() -> None:
    s = Leader()
    s.fetch()
    s.core.acknowledge("a", [AcknowledgedBatch(0, 4, (ACCEPT,))], SETTINGS, 0)
    first = s.core.begin_write()
    s.core.acknowledge("a", [AcknowledgedBatch(5, 9, (ACCEPT,))], SETTINGS, 0)
    assert first == StateWrite(5, 0, [])
    assert s.core.begin_write() is None
    s.core.end_write(is_stored=True)
    assert s.core.start_offset == 5
    assert s.core.begin_write() == StateWrite(10, 0, [])


def test_a_lock_that_expires_releases_the_record_and_counts_the_delivery() -> None:
    s = Leader()
    s.fetch()
    s.expire(999)
    assert s.core.acquired_count == 10
    s.expire(1)
    assert s.core.acquired_count == 0
    s.store()
    assert s.writes[-1].batches == [StateBatch(0, 9, AVAILABLE, 1)]
    assert s.refused(0, 9) is ErrorCode.INVALID_RECORD_STATE
    assert s.fetch("b") == [(0, 9, 2)]


def test_a_lock_does_not_expire_while_its_acknowledgement_is_being_stored() -> None:
    s = Leader()
    s.fetch()
    s.core.acknowledge("a", [AcknowledgedBatch(0, 9, (ACCEPT,))], SETTINGS, 0)
    s.core.begin_write()
    s.expire(5_000)
    s.core.end_write(is_stored=True)
    assert s.core.start_offset == 10


def test_renewal_begins_the_lock_again_and_stores_nothing() -> None:
    s = Leader()
    s.fetch()
    s.now_ms = 900
    s.acknowledge(0, 9, RENEW)
    assert s.writes == []
    s.expire(999)
    assert s.core.acquired_count == 10
    assert s.core.next_deadline_ms() == 1_900


def test_renewal_is_refused_where_the_group_does_not_allow_it() -> None:
    s = Leader()
    s.fetch()
    batch = AcknowledgedBatch(0, 9, (RENEW,))
    with pytest.raises(ApiError) as error:
        s.core.acknowledge("a", [batch], SETTINGS._replace(may_renew=False), 0)
    assert error.value.code is ErrorCode.INVALID_RECORD_STATE


def test_a_member_that_leaves_releases_only_what_it_holds() -> None:
    s = Leader()
    s.fetch("a", (0, 4))
    s.fetch("b", (5, 9))
    assert s.core.release("a", SETTINGS)
    assert not s.core.release("a", SETTINGS)
    assert s.fetch("c") == [(0, 4, 2)]


@pytest.mark.parametrize(
    ("first", "last", "member", "code"),
    [
        (0, 9, "b", ErrorCode.INVALID_RECORD_STATE),
        (0, 10, "a", ErrorCode.INVALID_REQUEST),
        (10, 10, "a", ErrorCode.INVALID_REQUEST),
        (0, 2**62, "a", ErrorCode.INVALID_REQUEST),
        (4, 5, "a", ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_hostile_acknowledgements_are_refused_and_change_nothing(
    first: int, last: int, member: str, code: ErrorCode
) -> None:
    s = Leader()
    s.fetch()
    s.acknowledge(5, 5)
    before = s.core.state_batches()
    assert s.refused(first, last, member=member) is code
    assert s.core.state_batches() == before


def test_one_bad_batch_refuses_all_batches_of_the_partition() -> None:
    s = Leader()
    s.fetch()
    batches = [AcknowledgedBatch(0, 1, (ACCEPT,)), AcknowledgedBatch(5, 50, (ACCEPT,))]
    with pytest.raises(ApiError):
        s.core.acknowledge("a", batches, SETTINGS, 0)
    assert s.core.begin_write() is None


def test_acknowledgements_below_the_start_offset_are_ignored() -> None:
    s = Leader()
    s.fetch()
    s.acknowledge(0, 4)
    s.acknowledge(2, 4)
    s.acknowledge(3, 6)
    assert s.core.start_offset == 7


@pytest.mark.parametrize(
    "batches",
    [
        [AcknowledgedBatch(3, 2, (1,))],
        [AcknowledgedBatch(0, 2, ())],
        [AcknowledgedBatch(0, 2, (1, 1))],
        [AcknowledgedBatch(0, 2, (5,))],
        [AcknowledgedBatch(0, 2, (-1,))],
        [AcknowledgedBatch(0, 2, (RENEW,))],
        [AcknowledgedBatch(-5, 2, (1,))],
        [AcknowledgedBatch(5, 8, (1,)), AcknowledgedBatch(6, 7, (1,))],
        [AcknowledgedBatch(5, 6, (1,)), AcknowledgedBatch(0, 1, (1,))],
    ],
)
def test_malformed_acknowledgements_are_refused(batches: list[AcknowledgedBatch]) -> None:
    with pytest.raises(ApiError) as error:
        check_acknowledgements(batches, allows_renew=False)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_whole_batches_are_acquired_unless_the_limit_is_strict() -> None:
    s = Leader()
    assert s.fetch("a", (0, 9), (10, 19), (20, 29), count=15) == [(0, 19, 1)]
    assert s.fetch("b", (20, 29), count=3, is_record_limit=True) == [(20, 22, 1)]
    assert s.core.next_fetch_offset(SETTINGS) == 23


def test_a_group_holds_no_more_records_than_allowed() -> None:
    s = Leader()
    assert s.fetch("a", (0, 499)) == [(0, 99, 1)]
    assert s.core.next_fetch_offset(SETTINGS) is None
    s.acknowledge(50, 99)
    assert s.core.next_fetch_offset(SETTINGS) is None
    s.acknowledge(0, 49)
    assert s.core.next_fetch_offset(SETTINGS) == 100


def test_available_records_are_delivered_also_if_the_limit_is_reached() -> None:
    s = Leader()
    s.fetch("a", (0, 99))
    s.acknowledge(98, 99, RELEASE)
    assert s.core.next_fetch_offset(SETTINGS) == 98
    assert s.fetch("b", (0, 99)) == [(98, 99, 2)]


def test_offsets_without_records_and_hidden_batches_are_archived() -> None:
    s = Leader()
    acquired = s.core.acquire(
        AcquisitionRequest("a", 500),
        [FetchedBatch(2, 4), FetchedBatch(5, 5, is_hidden=True), FetchedBatch(8, 9)],
        0,
        SETTINGS,
        0,
    )
    s.core.check()
    assert acquired == [(2, 4, 1), (8, 9, 1)]
    assert s.core.start_offset == 2
    s.acknowledge(2, 4)
    s.acknowledge(8, 9)
    assert s.core.start_offset == 10


def test_records_that_the_log_deletes_are_dropped() -> None:
    s = Leader()
    s.fetch()
    assert s.core.advance_log_start(5)
    s.core.check()
    s.store()
    assert s.writes == [StateWrite(5, 0, [])]
    s.acknowledge(0, 9)
    assert s.core.start_offset == 10
    assert s.core.advance_log_start(100)
    assert s.core.start_offset == s.core.next_offset == 100


def test_a_range_that_the_log_deletes_while_it_is_stored_stays_deleted() -> None:
    s = Leader()
    s.fetch()
    s.core.acknowledge("a", [AcknowledgedBatch(3, 6, (RELEASE,))], SETTINGS, 0)
    s.core.begin_write()
    s.core.advance_log_start(5)
    s.core.end_write(is_stored=True)
    s.core.check()
    assert s.core.next_fetch_offset(SETTINGS) == 5


def test_a_restart_continues_with_the_stored_state() -> None:
    s = Leader(
        5,
        StateBatch(0, 6, ACKNOWLEDGED, 1),
        StateBatch(9, 10, ARCHIVED, 3),
        StateBatch(12, 12, AVAILABLE, 1),
    )
    s.core.check()
    assert (s.core.start_offset, s.core.next_offset) == (7, 13)
    # Nobody has stored 7, 8 and 11: the members that had them are gone.
    assert s.fetch("a", (0, 20)) == [(7, 8, 1), (11, 11, 1), (12, 12, 2), (13, 20, 1)]


def test_the_delivery_complete_count_counts_what_is_done_behind_the_start() -> None:
    s = Leader()
    s.fetch()
    s.acknowledge(2, 3)
    s.acknowledge(7, 9)
    assert [write.delivery_complete_count for write in s.writes] == [2, 5]


def test_neighbours_in_the_same_state_take_no_memory_of_their_own() -> None:
    s = Leader()
    s.fetch("a", (0, 99))
    for offset in range(99, 0, -1):
        s.acknowledge(offset, offset)
    assert len(s.core.state_batches()) == 2


def test_combined_batches_have_the_newest_state_of_each_offset() -> None:
    stored = [StateBatch(0, 9, 0, 1), StateBatch(10, 19, 2, 1)]
    written = [StateBatch(5, 12, 4, 3), StateBatch(13, 13, 0, 2)]
    assert combine(stored, written, 3) == [
        (3, 4, 0, 1),
        (5, 12, 4, 3),
        (13, 13, 0, 2),
        (14, 19, 2, 1),
    ]
    assert combine(stored, [StateBatch(0, 19, 2, 1)], 0) == [(0, 19, 2, 1)]
    assert combine([], written, 100) == []


def test_an_offset_that_is_acknowledged_twice_in_a_request_is_refused() -> None:
    batches = [AcknowledgedBatch(5, 6, (1,)), AcknowledgedBatch(6, 7, (1,))]
    with pytest.raises(ApiError) as error:
        check_acknowledgements(batches, allows_renew=False)
    assert error.value.code is ErrorCode.INVALID_RECORD_STATE
