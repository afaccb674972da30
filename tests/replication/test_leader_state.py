"""The high watermark follows the in-sync replicas (KIP-497, KIP-966)."""

from spindle.common.errors import ErrorCode
from spindle.replication.leader_state import IsrProposal, LeaderState

NOW_MS = 1_000_000
LAG_MS = 30_000


class Brokers:
    """Brokers that may join the ISR, and with which epoch."""

    def __init__(self) -> None:
        self.epochs = {2: 20, 3: 30}
        self.away: set[int] = set()

    def is_eligible(self, replica_id: int, broker_epoch: int) -> bool:
        return self.is_alive(replica_id) and broker_epoch in (-1, self.epochs[replica_id])

    def is_alive(self, replica_id: int) -> bool:
        return replica_id in self.epochs and replica_id not in self.away


def leader(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    min_isr: int = 1,
    end: int = 0,
    brokers: Brokers | None = None,
    high_watermark: int = 0,
) -> LeaderState:
    return LeaderState(
        local_id=1,
        leader_epoch=3,
        partition_epoch=0,
        replicas=replicas,
        isr=isr,
        min_isr=min_isr,
        log_end_offset=end,
        high_watermark=high_watermark,
        eligibility=brokers or Brokers(),
        max_lag_ms=LAG_MS,
        now_ms=NOW_MS,
    )


def append(state: LeaderState, end: int, now_ms: int = NOW_MS) -> bool:
    return state.on_append(end, now_ms)


def fetch(state: LeaderState, replica: int, offset: int, now_ms: int = NOW_MS) -> bool:
    return state.on_follower_fetch(replica, offset, 0, replica * 10, now_ms)


def isr_is(state: LeaderState, isr: tuple[int, ...], partition_epoch: int = 1) -> bool:
    return state.update(
        partition_epoch=partition_epoch, replicas=state.replicas, isr=isr, now_ms=NOW_MS
    )


def test_a_sole_replica_commits_what_it_appends() -> None:
    state = leader((1,), (1,))
    assert state.is_sole_replica
    assert append(state, 10)
    assert state.high_watermark == 10


def test_the_slowest_in_sync_replica_holds_the_high_watermark() -> None:
    state = leader((1, 2, 3), (1, 2, 3))
    assert not append(state, 10)
    assert not fetch(state, 2, 10)
    assert fetch(state, 3, 7)
    assert state.high_watermark == 7


def test_a_replica_far_behind_outside_the_isr_does_not_hold_the_high_watermark() -> None:
    state = leader((1, 2, 3), (1, 2))
    append(state, 10)
    fetch(state, 3, 1)
    assert fetch(state, 2, 9)
    assert state.high_watermark == 9


def test_a_replica_that_is_about_to_join_holds_the_high_watermark() -> None:
    brokers = Brokers()
    state = leader((1, 2, 3), (1, 2), brokers=brokers)
    append(state, 10)
    fetch(state, 3, 10)
    fetch(state, 2, 10)
    append(state, 20)
    assert not fetch(state, 2, 20)
    assert state.high_watermark == 10
    # Its broker is fenced, or its disk has died: nobody waits for it any more.
    brokers.away.add(3)
    assert state.advance(NOW_MS)
    assert state.high_watermark == 20


def test_a_replica_that_has_fallen_behind_is_not_waited_for() -> None:
    state = leader((1, 2, 3), (1, 2))
    append(state, 10)
    fetch(state, 3, 10)
    append(state, 20)
    late_ms = NOW_MS + LAG_MS + 1
    assert fetch(state, 2, 20, late_ms)
    assert state.high_watermark == 20


def test_the_high_watermark_never_goes_back() -> None:
    state = leader((1, 2), (1, 2))
    append(state, 10)
    fetch(state, 2, 8)
    assert not fetch(state, 2, 5)
    assert state.high_watermark == 8


def test_below_min_isr_the_high_watermark_stands_still() -> None:
    state = leader((1, 2, 3), (1,), min_isr=2)
    assert not append(state, 10)
    assert state.high_watermark == 0
    isr_is(state, (1, 2))
    assert fetch(state, 2, 10)
    assert state.high_watermark == 10


def test_min_isr_is_capped_by_the_replica_count() -> None:
    state = leader((1,), (1,), min_isr=2)
    assert state.effective_min_isr == 1
    assert append(state, 4)


def test_a_fetch_of_a_broker_without_a_replica_changes_nothing() -> None:
    state = leader((1, 2), (1, 2))
    append(state, 5)
    assert not fetch(state, 9, 5)
    assert state.follower(9) is None


def test_progress_of_followers_survives_an_isr_change() -> None:
    state = leader((1, 2, 3), (1, 2, 3))
    append(state, 10)
    fetch(state, 2, 10)
    assert isr_is(state, (1, 2))
    assert state.high_watermark == 10


# -- the in-sync replicas


def committed(state: LeaderState, proposal: IsrProposal, now_ms: int = NOW_MS) -> bool:
    return state.on_committed(
        proposal,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch + 1,
        isr=proposal.isr,
        now_ms=now_ms,
    )


def expansion(state: LeaderState) -> IsrProposal:
    proposal = state.propose_expansion()
    assert proposal is not None
    return proposal


def test_a_replica_joins_once_it_has_the_high_watermark_and_the_start_of_the_epoch() -> None:
    state = leader((1, 2, 3), (1, 2), end=10, high_watermark=5)
    fetch(state, 3, 7)
    assert state.propose_expansion() is None  # what came before the epoch may have been committed
    fetch(state, 3, 10)
    proposal = expansion(state)
    assert proposal == IsrProposal((1, 2, 3), (-1, -1, 30), 3, 0, 0)


def test_a_replica_does_not_join_with_the_epoch_of_an_earlier_life() -> None:
    state = leader((1, 2), (1,))
    state.on_follower_fetch(2, 0, 0, 19, NOW_MS)
    assert state.propose_expansion() is None
    state.on_follower_fetch(2, 0, 0, 20, NOW_MS)
    assert expansion(state).broker_epochs == (-1, 20)


def test_a_proposed_isr_counts_for_the_high_watermark_before_it_is_committed() -> None:
    brokers = Brokers()
    state = leader((1, 2), (1,), brokers=brokers)
    fetch(state, 2, 0)
    proposal = expansion(state)
    brokers.away.add(2)
    assert not append(state, 10)
    assert committed(state, proposal) is False
    assert state.isr == (1, 2)
    assert state.high_watermark == 0


def test_one_change_at_a_time() -> None:
    state = leader((1, 2, 3), (1,))
    fetch(state, 2, 0)
    proposal = expansion(state)
    fetch(state, 3, 0)
    assert state.propose_expansion() is None
    committed(state, proposal)
    assert expansion(state).isr == (1, 2, 3)


def test_a_replica_that_lags_leaves_and_holds_the_high_watermark_until_that_is_committed() -> None:
    state = leader((1, 2, 3), (1, 2, 3))
    append(state, 10)
    fetch(state, 2, 10)
    assert state.propose_shrink(NOW_MS + LAG_MS) is None
    late_ms = NOW_MS + LAG_MS + 1
    proposal = state.propose_shrink(late_ms)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert not state.advance(late_ms)
    assert committed(state, proposal, late_ms)
    assert state.high_watermark == 10


def test_a_replica_with_everything_stays_however_long_it_is_silent() -> None:
    state = leader((1, 2), (1, 2), end=10)
    fetch(state, 2, 10)
    assert state.propose_shrink(NOW_MS + 10 * LAG_MS) is None


def test_a_replica_that_always_has_what_was_there_a_fetch_ago_keeps_up() -> None:
    state = leader((1, 2), (1, 2))
    end = now_ms = 0
    for step in range(10):
        end, now_ms = (step + 1) * 100, NOW_MS + step * LAG_MS // 2
        append(state, end, now_ms)
        fetch(state, 2, end - 100, now_ms)
    assert state.propose_shrink(now_ms + LAG_MS // 3) is None


def test_a_refusal_without_effect_is_taken_back() -> None:
    state = leader((1, 2), (1,))
    fetch(state, 2, 0)
    proposal = expansion(state)
    append(state, 10)
    late_ms = NOW_MS + LAG_MS + 1
    assert state.on_refused(proposal, ErrorCode.INELIGIBLE_REPLICA, late_ms) == (False, True)
    assert state.high_watermark == 10
    assert state.pending is None


def test_a_refusal_that_may_have_had_an_effect_holds_the_high_watermark() -> None:
    brokers = Brokers()
    state = leader((1, 2), (1,), brokers=brokers)
    fetch(state, 2, 0)
    proposal = expansion(state)
    brokers.away.add(2)
    assert state.on_refused(proposal, ErrorCode.INVALID_UPDATE_VERSION, NOW_MS) == (False, False)
    assert not append(state, 10)
    assert isr_is(state, (1,))
    assert state.high_watermark == 10


def test_an_unexpected_refusal_is_sent_again() -> None:
    state = leader((1, 2), (1,))
    fetch(state, 2, 0)
    proposal = expansion(state)
    assert state.on_refused(proposal, ErrorCode.NOT_CONTROLLER, NOW_MS) == (True, False)
    assert state.pending is proposal


def test_metadata_of_an_older_partition_epoch_is_passed_over() -> None:
    state = leader((1, 2), (1,))
    fetch(state, 2, 0)
    committed(state, expansion(state))
    isr_is(state, (1,), partition_epoch=0)
    assert state.isr == (1, 2)


def test_an_answer_that_comes_after_newer_metadata_is_passed_over() -> None:
    state = leader((1, 2, 3), (1,))
    fetch(state, 2, 0)
    proposal = expansion(state)
    isr_is(state, (1, 3), partition_epoch=5)
    committed(state, proposal)
    assert (state.isr, state.partition_epoch) == ((1, 3), 5)


def test_a_leader_that_leads_on_keeps_its_high_watermark_and_waits_for_new_fetches() -> None:
    state = leader((1, 2), (1, 2))
    append(state, 10)
    fetch(state, 2, 10)
    append(state, 20)
    begin_epoch(state, 4, (1, 2), (1, 2))
    assert (state.high_watermark, state.epoch_start_offset, state.is_new) == (10, 20, True)
    assert fetch(state, 2, 20)
    assert not state.is_new


def test_replicas_that_are_away_keep_no_deleted_records_waiting() -> None:
    brokers = Brokers()
    state = leader((1, 2, 3), (1, 2, 3), brokers=brokers)
    state.on_follower_fetch(2, 0, 5, 20, NOW_MS)
    assert state.low_watermark(7) == -1
    brokers.away.add(3)
    assert state.low_watermark(7) == 5


# -- what is known of a follower belongs to one leader epoch


def begin_epoch(
    state: LeaderState, leader_epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...]
) -> bool:
    return state.begin_epoch(
        leader_epoch=leader_epoch,
        partition_epoch=state.partition_epoch + 1,
        replicas=replicas,
        isr=isr,
        log_end_offset=state.log_end_offset,
        now_ms=NOW_MS,
    )


def test_a_replica_that_was_removed_and_added_again_has_nothing_until_it_fetches() -> None:
    state = leader((1, 2, 3), (1, 3), end=10, high_watermark=10)
    fetch(state, 2, 10)
    # [1, 2, 3] -> [1, 3] -> [1, 3, 2] reaches the leader as one change.
    begin_epoch(state, 4, (1, 3), (1, 3, 2))
    assert state.propose_expansion() is None
    fetch(state, 2, 0)
    assert state.propose_expansion() is None
    fetch(state, 2, 10)
    assert expansion(state).isr == (1, 2, 3)


def test_a_replica_that_left_in_a_change_of_its_own_is_forgotten() -> None:
    state = leader((1, 2, 3), (1, 3), end=10, high_watermark=10)
    fetch(state, 2, 10)
    begin_epoch(state, 4, (1, 3), (1, 3))
    state.update(
        partition_epoch=state.partition_epoch + 1,
        replicas=(1, 3, 2),
        isr=(1, 3),
        now_ms=NOW_MS,
    )
    assert state.propose_expansion() is None


def test_no_high_watermark_follows_from_fetches_of_an_earlier_leader_epoch() -> None:
    state = leader((1, 2, 3), (1, 2, 3))
    append(state, 10)
    fetch(state, 2, 10)
    fetch(state, 3, 4)
    # Another broker led in epoch 4: follower 2 may have truncated its log for it.
    assert not begin_epoch(state, 5, (1, 2), (1, 2))
    assert state.high_watermark == 4
    assert fetch(state, 2, 10)
    assert state.high_watermark == 10


def test_an_in_sync_follower_has_the_whole_lag_to_fetch_in_a_new_epoch() -> None:
    state = leader((1, 2), (1, 2))
    append(state, 10)
    fetch(state, 2, 3)
    begin_epoch(state, 4, (1, 2), (1, 2))
    assert state.propose_shrink(NOW_MS + LAG_MS) is None
    assert state.propose_shrink(NOW_MS + LAG_MS + 1) is not None


def test_a_follower_whose_disk_came_back_joins_only_after_it_has_fetched_again() -> None:
    """It may have lost records that it had fetched before."""
    state = leader((1, 2, 3), (1, 2, 3))
    append(state, 10)
    for replica in (2, 3):
        fetch(state, replica, 10)
    isr_is(state, (1, 2))
    state.require_new_fetch(3)
    assert state.propose_expansion() is None
    fetch(state, 3, 4)
    assert state.propose_expansion() is None
    fetch(state, 3, 10)
    proposal = state.propose_expansion()
    assert proposal is not None
    assert proposal.isr == (1, 2, 3)
