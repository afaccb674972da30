"""A partition as leader: appends, acknowledgements, the high watermark and the in-sync replicas."""

import pytest
from broker_scenario import LAG_MS, BrokerScenario, topic_settings
from cluster_image import directory_of

from spindle.common.errors import ErrorCode
from spindle.common.uuids import DIRECTORY_LOST


def leading(*replicas: int, min_isr: int = 1) -> BrokerScenario:
    """Broker 1 leads partition 0 of topic "t" with these replicas, all in sync."""
    scenario = BrokerScenario()
    scenario.settings["t"] = topic_settings(min_isr=min_isr)
    scenario.create("t", replicas or (1, 2, 3))
    return scenario


# -- acknowledgements


def test_acks_1_is_answered_when_the_leader_has_appended() -> None:
    s = leading(1, 2)
    answer = s.append("a", acks=1)
    assert (answer.code, answer.offset) == (ErrorCode.NONE, 0)
    assert s.partition().high_watermark == 0


def test_acks_all_waits_for_every_in_sync_replica() -> None:
    s = leading(1, 2, 3)
    answer = s.append("a", "b")
    s.follower_fetches(2, 2)
    assert answer.is_waiting
    s.follower_fetches(3, 1)
    assert answer.is_waiting
    s.follower_fetches(3, 2)
    assert answer.code == ErrorCode.NONE


def test_a_sole_replica_acknowledges_at_once() -> None:
    s = leading(1)
    assert s.append("a").code == ErrorCode.NONE
    assert s.partition().high_watermark == 1


def test_appends_are_acknowledged_in_the_order_of_their_offsets() -> None:
    s = leading(1, 2)
    first, second, third = s.append("a"), s.append("b"), s.append("c")
    s.follower_fetches(2, 2)
    assert (first.code, second.code, third.is_waiting) == (ErrorCode.NONE, ErrorCode.NONE, True)


def test_below_min_isr_acks_all_is_refused_and_acks_1_is_taken() -> None:
    s = leading(1, 2, 3, min_isr=2)
    s.change("t", isr=[1])
    assert s.append("a").code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert s.append("a", acks=1).code == ErrorCode.NONE
    assert s.partition().high_watermark == 0


def test_records_that_are_committed_below_min_isr_are_answered_so() -> None:
    s = leading(1, 2, 3, min_isr=2)
    answer = s.append("a")
    s.change("t", isr=[1])
    assert answer.is_waiting
    s.settings["t"] = topic_settings(min_isr=1)
    s.replicas.refresh_settings(["t"])
    s.settle()
    assert answer.code == ErrorCode.NONE


def test_min_isr_that_rises_holds_what_is_not_acknowledged() -> None:
    s = leading(1, 2, 3)
    s.change("t", isr=[1, 2])
    answer = s.append("a")
    s.settings["t"] = topic_settings(min_isr=3)
    s.replicas.refresh_settings(["t"])
    s.follower_fetches(2, 1)
    assert answer.is_waiting
    assert s.append("b").code == ErrorCode.NOT_ENOUGH_REPLICAS


# -- appends that are refused


def test_an_append_for_another_leader_epoch_is_refused() -> None:
    s = leading(1, 2)
    assert s.append("a", leader_epoch=4).code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert s.append("a", leader_epoch=0, acks=1).code == ErrorCode.NONE


def test_a_follower_takes_no_appends() -> None:
    s = leading(1, 2)
    s.change("t", leader=2)
    assert s.append("a", acks=1).code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_append_that_the_disk_has_not_written_when_the_leadership_ends_is_not_promised() -> None:
    s = leading(1, 2)
    s.hold_disk()
    answer = s.append("a", acks=1)
    s.cluster.change("t", leader=2)
    s.publish()
    s.release_disk()
    assert answer.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_appends_that_wait_for_followers_fail_when_the_leadership_ends() -> None:
    s = leading(1, 2)
    answer = s.append("a")
    s.change("t", leader=2)
    assert answer.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_waiting_appends_continue_when_the_same_broker_leads_the_next_epoch() -> None:
    s = leading(1, 2)
    answer = s.append("a")
    s.change("t", leader=1)
    assert answer.is_waiting
    s.follower_fetches(2, 1)
    assert answer.code == ErrorCode.NONE


def test_appends_that_wait_fail_when_the_topic_is_deleted() -> None:
    s = leading(1, 2)
    answer = s.append("a")
    s.cluster.delete("t")
    s.publish()
    assert answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_appends_that_wait_fail_when_the_replica_is_moved_away() -> None:
    s = leading(1, 2)
    answer = s.append("a")
    s.change("t", replicas=[2, 3], isr=[2], leader=2)
    assert answer.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_dead_directory_answers_what_waits_and_what_comes() -> None:
    s = leading(1, 2)
    waiting = s.append("a")
    s.fail_disk()
    assert waiting.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert s.append("b", acks=1).code == ErrorCode.KAFKA_STORAGE_ERROR


# -- idempotent producers


def test_a_batch_that_is_sent_again_gets_its_first_offset_and_waits_like_the_first() -> None:
    s = leading(1, 2)
    first, again = [
        s.append("a", producer_id=7, producer_epoch=0, base_sequence=0) for _ in range(2)
    ]
    assert again.is_waiting
    s.follower_fetches(2, 1)
    assert (first.code, again.code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (first.offset, again.offset) == (0, 0)
    assert s.partition().log.log_end_offset == 1


def test_a_gap_in_the_sequence_is_refused() -> None:
    s = leading(1)
    s.append("a", producer_id=7, producer_epoch=0, base_sequence=0)
    late = s.append("b", producer_id=7, producer_epoch=0, base_sequence=2)
    assert late.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# -- followers


def test_a_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    s = leading(1, 2)
    assert s.follower_fetches(3, 0) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert s.follower_fetches(3, 0, leader_epoch=-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_with_an_earlier_broker_epoch_is_refused() -> None:
    s = leading(1, 2)
    old = s.cluster.broker_epoch(2)
    s.cluster.register(2)
    s.publish()
    code = s.follower_fetches(2, 0, broker_epoch=old)
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetches_of_earlier_and_later_leader_epochs_are_refused() -> None:
    s = leading(1, 2)
    s.change("t", leader=1)
    assert s.follower_fetches(2, 0, leader_epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
    assert s.follower_fetches(2, 0, leader_epoch=2) == ErrorCode.UNKNOWN_LEADER_EPOCH


# -- the in-sync replicas


def test_a_follower_that_catches_up_is_proposed_and_holds_the_high_watermark() -> None:
    s = leading(1, 2)
    s.change("t", isr=[1])
    s.append("a", acks=1)
    s.follower_fetches(2, 1)
    assert s.proposal() == (1, 2)
    answer = s.append("b")
    assert answer.is_waiting
    s.accept()
    assert answer.is_waiting
    s.follower_fetches(2, 2)
    assert answer.code == ErrorCode.NONE


def test_a_follower_that_lags_is_proposed_to_leave_and_held_for_until_it_has() -> None:
    s = leading(1, 2)
    answer = s.append("a")
    s.pass_time(LAG_MS + 1)
    s.replicas.review_isrs()
    assert s.proposal() == (1,)
    assert answer.is_waiting
    s.accept()
    assert answer.code == ErrorCode.NONE


def test_a_proposal_that_metadata_overtook_is_made_again_without_another_fetch() -> None:
    s = leading(1, 2)
    s.change("t", isr=[1])
    s.follower_fetches(2, 0)
    s.change("t", adding_replicas=[3], replicas=[1, 2, 3])
    s.refuse(ErrorCode.INVALID_UPDATE_VERSION)
    assert s.proposal() == (1, 2)


def test_a_proposal_that_is_refused_before_the_metadata_comes_is_made_again_with_it() -> None:
    s = leading(1, 2)
    s.change("t", isr=[1])
    s.follower_fetches(2, 0)
    s.refuse(ErrorCode.INVALID_UPDATE_VERSION)
    assert s.proposals == []
    s.change("t", adding_replicas=[3], replicas=[1, 2, 3])
    assert s.proposal() == (1, 2)


def test_a_proposal_that_was_committed_is_not_made_again() -> None:
    s = leading(1, 2)
    s.change("t", isr=[1])
    s.follower_fetches(2, 0)
    s.accept()
    s.replicas.review_isrs()
    assert s.proposals == []


def test_a_fenced_broker_holds_the_high_watermark_until_its_proposal_is_refused() -> None:
    s = leading(1, 2, 3)
    s.change("t", isr=[1, 2])
    s.follower_fetches(3, 0)
    answer = s.append("a")
    s.follower_fetches(2, 1)
    s.cluster.fence(3)
    s.publish()
    assert answer.is_waiting
    s.refuse(ErrorCode.INELIGIBLE_REPLICA)
    assert answer.code == ErrorCode.NONE
    assert s.proposals == []


# -- replicas that leave and come back


def test_a_replica_removed_and_added_again_in_one_delta_does_not_join_unfetched() -> None:
    """Its broker heard of both changes one by one, and has deleted its log in between."""
    s = leading(1, 2, 3)
    s.append("a", acks=1)
    s.follower_fetches(2, 1)
    s.follower_fetches(3, 1)
    s.cluster.change("t", replicas=[1, 3], isr=[1, 3], leader=1)
    s.cluster.change("t", replicas=[1, 3, 2], adding_replicas=[2])
    s.publish()
    assert s.proposals == []
    s.follower_fetches(2, 0)
    assert s.proposals == []
    s.follower_fetches(3, 1)
    s.follower_fetches(2, 1)
    assert s.proposal() == (1, 2, 3)


def test_a_leader_that_missed_an_epoch_commits_only_what_is_fetched_in_the_new_one() -> None:
    """In the epoch between broker 2 led, and wrote a record of its own at offset 0."""
    s = leading(1, 2, 3)
    answer = s.append("a")
    s.follower_fetches(2, 1)
    s.cluster.change("t", leader=2)
    s.cluster.change("t", leader=1, isr=[1, 2])
    s.publish()
    assert s.partition().leader_epoch == 2
    assert answer.is_waiting
    s.follower_fetches(2, 0)
    assert answer.is_waiting
    s.follower_fetches(2, 1)
    assert answer.code == ErrorCode.NONE


def test_a_replica_whose_broker_registered_again_joins_only_after_a_fetch() -> None:
    s = leading(1, 2)
    s.change("t", isr=[1])
    s.follower_fetches(2, 0)
    s.refuse(ErrorCode.INELIGIBLE_REPLICA)
    s.cluster.register(2)
    s.publish()
    s.replicas.review_isrs()
    assert s.proposals == []
    s.follower_fetches(2, 0)
    assert s.proposal() == (1, 2)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_replica_that_the_controller_removed_joins_only_after_a_fetch(is_seen: bool) -> None:
    """Its log may have been put aside for a rebuild since its last fetch."""
    s = leading(1, 2)
    s.append("a")
    s.follower_fetches(2, 1)
    home, closed = [directory_of(1), directory_of(2)], list[bool]()
    s.replicas.on_new_fetches_required = lambda: closed.append(True)
    s.cluster.change("t", isr=[1], directories=[directory_of(1), DIRECTORY_LOST])
    if is_seen:
        s.publish()
    s.change("t", directories=home)
    s.replicas.review_isrs()
    assert s.proposals == []
    assert closed == [True] * (1 + is_seen)
    s.follower_fetches(2, 0)
    assert s.proposals == []
    s.follower_fetches(2, 1)
    assert s.proposal() == (1, 2)


def test_a_replica_lost_and_recorded_again_in_one_delta_does_not_join_unfetched() -> None:
    """It was outside of the ISR all the time: a proposal to add it was refused."""
    s = leading(1, 2)
    s.change("t", isr=[1])
    s.append("a")
    s.follower_fetches(2, 1)
    s.refuse(ErrorCode.INVALID_UPDATE_VERSION)
    s.cluster.change("t", directories=[directory_of(1), DIRECTORY_LOST])
    s.change("t", directories=[directory_of(1), directory_of(2)])
    s.replicas.review_isrs()
    assert s.proposals == []
    s.follower_fetches(2, 0)
    assert s.proposals == []
    s.follower_fetches(2, 1)
    assert s.proposal() == (1, 2)


def test_a_topic_made_again_begins_without_what_was_known_of_its_predecessor() -> None:
    s = leading(1, 2)
    s.append("a", acks=1)
    s.follower_fetches(2, 1)
    s.cluster.delete("t")
    s.cluster.create("t", [1, 2])
    s.cluster.change("t", isr=[1])
    s.publish()
    assert s.partition().log.log_end_offset == 0
    assert s.proposals == []
    assert s.follower_fetches(2, 0) == ErrorCode.NONE
    assert s.proposal() == (1, 2)


# -- deleted records


def test_deleting_records_waits_for_followers_that_are_alive() -> None:
    s = leading(1, 2, 3)
    reached: list[int] = []
    s.append("a", "b", acks=1)
    for replica in (2, 3):
        s.follower_fetches(replica, 2)
    partition = s.partition()
    s.delete_records(2)
    partition.when_deleted(2, lambda low, error: reached.append(low))
    s.follower_fetches(2, 2, log_start_offset=2)
    assert reached == []
    s.cluster.fence(3)
    s.publish()
    assert reached == [2]
