"""A partition whose log is lent to a lane, and what remains Python's."""

from collections.abc import Sequence

from broker_scenario import BrokerScenario

from spindle.common.errors import ErrorCode
from spindle.log.lease import LeasedProducer, LogLease, SegmentProgress
from spindle.log.log import Log


class FakeLease(LogLease):
    """The lease of a lane that appends only what the test stores."""

    def __init__(self, log: Log) -> None:
        self._end_offset, self._high_watermark = log.log_end_offset, log.high_watermark
        self._has_ended = False
        self.was_cut = False

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    def end(self, *, was_cut: bool = False) -> None:
        self._has_ended = True
        self.was_cut |= was_cut

    def wake_for_appends(self, *, is_waiting: bool) -> None:
        """Nobody waits."""

    def raise_high_watermark(self, offset: int) -> None:
        self._high_watermark = max(self._high_watermark, min(offset, self._end_offset))

    def refresh(
        self,
        end_offset: int,
        high_watermark: int,
        progress: SegmentProgress,
        producers: Sequence[LeasedProducer],
    ) -> None:
        self._end_offset = end_offset
        self.raise_high_watermark(high_watermark)

    def append(self, count: int) -> None:
        """Append records as the lane does, without a word to Python."""
        self._end_offset += count


def lent(scenario: BrokerScenario) -> FakeLease:
    """Lend the log of partition 0 of "t"."""
    partition = scenario.partition()
    partition.log.lease = lease = FakeLease(partition.log)
    partition.lend(lease, lambda: None)
    return lease


def leading(*replicas: int) -> BrokerScenario:
    scenario = BrokerScenario()
    scenario.create("t", replicas)
    assert scenario.append("a", acks=1).code == ErrorCode.NONE
    return scenario


def test_a_transaction_that_ends_the_lease_moves_the_last_stable_offset() -> None:
    s = leading(1, 2)
    s.follower_fetches(2, 1)
    lease = lent(s)
    s.append("b", acks=1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert lease.has_ended
    s.end_transaction(7, is_committed=True)
    s.follower_fetches(2, 3)
    assert s.partition().last_stable_offset == 3


def test_a_log_whose_lease_the_thread_has_ended_follows_the_high_watermark() -> None:
    s = leading(1, 2)
    lent(s)
    s.partition().log.end_lease()
    s.follower_fetches(2, 1)
    s.append("b", acks=1)  # notes are written before the next function
    assert s.partition().log.high_watermark == 1


def test_a_high_watermark_raised_during_the_append_that_ends_the_lease_is_kept() -> None:
    s = leading(1, 2)
    log = s.partition().log
    lease = lent(s)
    suspended = log.suspend_lease()
    assert suspended is lease
    lease.raise_high_watermark(1)
    log.after_append(lease, None, [])
    assert (lease.has_ended, log.high_watermark) == (True, 1)


def test_an_append_that_the_lane_makes_while_an_epoch_begins_is_committed() -> None:
    s = leading(1)
    lease = lent(s)
    s.change("t", leader=1)  # the same leader, in a new epoch
    assert lease.has_ended
    s.partition().log.lease_ended(2, 2)  # the thread takes over what the lane has appended last
    s.partition().lane_appended()
    assert s.partition().high_watermark == 2


def test_records_that_are_cut_later_are_cut_for_the_former_lease() -> None:
    s = leading(1, 2)
    log = s.partition().log
    lease = lent(s)
    log.end_lease()
    assert not lease.was_cut
    log.truncate_to(0)
    assert lease.was_cut


def test_appends_of_the_lane_are_committed_before_a_replica_is_added() -> None:
    s = leading(1)
    lease = lent(s)
    lease.append(1)
    lease.raise_high_watermark(2)
    s.change("t", replicas=(1, 2), adding_replicas=(2,))
    assert lease.has_ended
    assert s.partition().high_watermark == 2
