"""A follower is rebuilt: it leaves the ISR, its log is put aside, and a new one is copied."""

from typing import Any

import pytest
from broker_scenario import ME, topic_settings
from cluster_image import directory_of
from rebuilding_broker import HOME, LEADER, WHERE, RebuildingBroker

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import DIRECTORY_LOST
from spindle.metadata.features import METADATA_VERSION
from spindle.protocol.messages.metadata_records import FeatureLevelRecord
from spindle.replicas.rebuilds import RebuildState

LEFT = (DIRECTORY_LOST, DIRECTORY_LOST)
"""The reports of a replica that leaves the ISR: before and after its fetches have ended."""


def reported(s: RebuildingBroker) -> list[bytes]:
    return [directory_id for _, _, directory_id in s.misplaced]


def test_a_rebuilt_replica_has_left_the_isr_before_its_log_is_empty() -> None:
    s = RebuildingBroker()
    s.is_deaf = True
    s.begin()
    assert reported(s) == [DIRECTORY_LOST]
    assert (s.state, s.values) == (RebuildState.LEAVING, ["a", "b", "c"])
    s.record(DIRECTORY_LOST)
    s.settle()
    assert (s.state, s.values) == (RebuildState.COPYING, [])
    assert s.registration.isr == (LEADER, 3)
    assert s.names() == ["t-0", "t-0-delete"]
    assert s.fetchers.leaders == {WHERE: LEADER}


def test_a_rebuild_right_after_a_failed_one_waits_until_its_own_report_is_acknowledged() -> None:
    s = RebuildingBroker()
    s.is_deaf = True
    s.begin()
    s.rebuilder.cancel(WHERE)
    s.record(DIRECTORY_LOST)
    s.settle()
    assert s.state is RebuildState.FAILED
    # The report that ended the first rebuild is under way; the metadata has DIRECTORY_LOST yet.
    s.is_queued = True
    s.begin()
    s.pass_time(1_000)
    assert (s.state, s.values) == (RebuildState.LEAVING, ["a", "b", "c"])
    s.record(HOME)
    s.record(DIRECTORY_LOST)
    s.is_queued = False
    s.pass_time(1_000)
    assert (s.state, s.values) == (RebuildState.COPYING, [])
    assert reported(s) == [DIRECTORY_LOST, HOME, *LEFT]


def test_a_replica_that_came_into_the_isr_again_before_its_fetches_ended_leaves_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A late report let the leader count the fetches of the former log, unknown to this broker."""
    s = RebuildingBroker()
    record, times = s.record, iter((True, False))

    def record_and_rejoin(directory_id: bytes) -> None:
        record(directory_id)
        if next(times):
            places = [directory_of(LEADER), HOME, directory_of(3)]
            s.cluster.change("t", directories=places, isr=[LEADER, ME, 3])

    monkeypatch.setattr(s, "record", record_and_rejoin)
    s.begin()
    assert (s.state, s.values) == (RebuildState.COPYING, [])
    assert ME not in s.registration.isr
    assert s.registration.directory(ME) == DIRECTORY_LOST


def test_a_rebuild_that_is_cancelled_while_it_leaves_again_keeps_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be in the ISR, unknown to this broker: its second report is not acknowledged."""
    s = RebuildingBroker()
    monkeypatch.setattr(s.rebuilder, "_is_queued", lambda *_: reported(s) == [*LEFT])
    s.begin()
    assert (s.state, reported(s)) == (RebuildState.LEAVING, [*LEFT])
    s.rebuilder.cancel(WHERE)
    s.pass_time(1_000)
    assert (s.state, s.names(), s.values) == (RebuildState.FAILED, ["t-0"], ["a", "b", "c"])


def test_an_old_report_that_reaches_the_controller_late_is_followed_by_a_new_one() -> None:
    """The controller could elect the replica, whose new log lacks records."""
    s = RebuildingBroker()
    s.begin()
    assert (s.state, reported(s)) == (RebuildState.COPYING, [*LEFT])
    s.record(HOME)
    s.settle()
    assert reported(s) == [*LEFT, DIRECTORY_LOST]
    s.record(DIRECTORY_LOST)
    s.feed("a", "b", "c")
    s.caught_up()
    s.record(DIRECTORY_LOST)
    s.settle()
    assert reported(s)[3:] == [HOME, HOME]


def test_a_replica_that_lacks_records_does_not_lead_if_a_late_report_let_it_be_elected() -> None:
    s = RebuildingBroker()
    s.begin()
    s.feed("a")
    s.cluster.change("t", directories=[directory_of(LEADER), HOME, directory_of(3)])
    s.change("t", leader=ME, isr=[ME])
    assert s.partition().leader is None
    assert s.partition().log.epochs.latest == 0
    assert reported(s) == [*LEFT, DIRECTORY_LOST]
    assert ("t", 0) not in s.fetchers.leaders
    s.cluster.change("t", directories=[directory_of(LEADER), DIRECTORY_LOST, directory_of(3)])
    s.change("t", leader=LEADER, isr=[LEADER])
    assert s.fetchers.leaders["t", 0] == LEADER
    s.feed("b", "c")
    s.caught_up()
    assert (s.state, reported(s)[3:]) == (RebuildState.JOINING, [HOME])


def test_its_directory_is_reported_only_after_all_committed_records_were_copied() -> None:
    s = RebuildingBroker()
    s.begin()
    s.feed("a")
    s.fetchers.lags[s.partition()] = 2
    s.change("t", isr=[LEADER, 3])  # the replica reacts to metadata, and reports nothing
    s.pass_time(1_000)
    assert (s.state, reported(s)) == (RebuildState.COPYING, [*LEFT])
    s.feed("b", "c")
    s.caught_up()
    assert (s.state, reported(s)) == (RebuildState.JOINING, [*LEFT, HOME])


def test_a_leader_that_does_not_know_the_high_watermark_yet_does_not_end_the_copy() -> None:
    # After an election a leader may answer with an old high watermark, so that nothing is lacking.
    s = RebuildingBroker()
    s.begin()
    s.caught_up()
    s.feed("a", "b")
    s.caught_up()
    assert (s.state, reported(s)) == (RebuildState.COPYING, [*LEFT])
    s.feed("c")
    s.caught_up()
    assert (s.state, reported(s)) == (RebuildState.JOINING, [*LEFT, HOME])


def test_the_former_log_stays_if_an_unclean_election_chose_a_new_one_that_lacks_records() -> None:
    s = RebuildingBroker()
    s.partition().log.update_high_watermark(1)  # two records are not committed
    s.begin()
    s.feed("a")
    s.caught_up()
    assert s.state is RebuildState.JOINING
    s.change("t", isr=[ME], leader=ME)
    s.pass_time(200)
    s.expire()
    assert s.names() == ["t-0", "t-0-delete"]
    assert "was elected without all records of the former log" in s.rebuild.failure


def test_the_former_log_is_removed_once_the_new_one_is_in_the_isr() -> None:
    s = RebuildingBroker()
    s.begin()
    s.feed("a", "b", "c")
    s.caught_up()
    s.expire()
    assert s.names() == ["t-0", "t-0-delete"]
    s.change("t", isr=[LEADER, ME, 3])
    s.pass_time(200)
    s.expire()
    assert s.state is RebuildState.DONE
    assert (s.names(), s.values) == (["t-0"], ["a", "b", "c"])


@pytest.mark.parametrize("is_deaf", [True, False])
def test_a_controller_that_keeps_the_replica_in_the_isr_keeps_its_log(is_deaf: bool) -> None:
    s = RebuildingBroker()
    s.is_deaf = True
    s.begin()
    if is_deaf:
        s.pass_time(61_000)
        assert "has not taken broker 1 out of the ISR" in s.rebuild.failure
    else:
        # The last member stays in the ISR although its directory is lost.
        s.cluster.change("t", isr=[ME], leader=-1)
        s.record_without_shrinking(DIRECTORY_LOST)
        s.settle()
        assert "has no leader to copy from" in s.rebuild.failure
    assert (s.state, s.values) == (RebuildState.FAILED, ["a", "b", "c"])
    assert list(dict.fromkeys(reported(s))) == [DIRECTORY_LOST, HOME]


def test_a_loss_that_a_late_report_has_overtaken_is_reported_again() -> None:
    s = RebuildingBroker()
    s.is_deaf = True
    s.begin()
    assert reported(s) == [DIRECTORY_LOST]
    s.is_deaf = False
    s.pass_time(2_500)
    assert reported(s)[:2] == [DIRECTORY_LOST, DIRECTORY_LOST]
    assert s.state is RebuildState.COPYING


@pytest.mark.parametrize("field", ["isr", "eligible_leader_replicas", "last_known_elr"])
def test_a_replica_that_may_still_be_elected_keeps_its_log(field: str) -> None:
    s = RebuildingBroker(min_isr=1)
    s.is_deaf = True
    s.begin()
    changes: dict[str, Any] = {"isr": [LEADER, 3], field: [ME, LEADER]}
    s.cluster.change("t", **changes)
    s.record_without_shrinking(DIRECTORY_LOST)
    s.settle()
    assert "may lead" in s.rebuild.failure
    assert (s.state, s.values, s.names()) == (RebuildState.FAILED, ["a", "b", "c"], ["t-0"])


def test_an_isr_that_shrinks_below_the_minimum_meanwhile_keeps_the_log() -> None:
    s = RebuildingBroker()
    s.is_deaf = True
    s.begin()
    s.cluster.change("t", isr=[LEADER, ME])
    s.record(DIRECTORY_LOST)
    s.settle()
    assert "1 of at least 2 (min.insync.replicas)" in s.rebuild.failure
    assert (s.state, s.values) == (RebuildState.FAILED, ["a", "b", "c"])


# -- what a rebuild meets on its way


def test_a_rebuild_that_copies_nothing_for_long_goes_back_to_the_former_log() -> None:
    s = RebuildingBroker()
    s.begin()
    s.feed("a")
    s.change("t", leader=-1)
    s.pass_time(500_000)
    assert s.state is RebuildState.COPYING
    s.pass_time(110_000)
    assert "nothing was copied for 600 s; it has no leader" in s.rebuild.failure
    assert "the former log is in use again" in s.rebuild.failure
    assert (s.state, s.values) == (RebuildState.FAILED, ["a", "b", "c"])
    assert reported(s) == [*LEFT, HOME]
    s.expire()
    assert s.names() == ["t-0"]


def test_a_cancelled_rebuild_goes_back_to_the_former_log() -> None:
    s = RebuildingBroker()
    s.begin()
    s.rebuilder.cancel(WHERE)
    s.pass_time(200)
    assert (s.state, s.values) == (RebuildState.RESTORING, ["a", "b", "c"])
    assert s.fetchers.leaders == {WHERE: LEADER}
    s.caught_up()
    assert s.state is RebuildState.FAILED
    assert s.rebuild.failure == "it was cancelled; the former log is in use again"
    with pytest.raises(Exception, match="no rebuild of t-0 is running on broker 1"):
        s.rebuilder.cancel(WHERE)


def test_a_former_log_that_is_shorter_is_reported_only_after_a_fetch_for_it() -> None:
    s = RebuildingBroker()
    s.begin()
    s.feed("a", "b", "c", "d", "e")  # the leader knows that the follower has these
    s.rebuilder.cancel(WHERE)
    s.pass_time(1_000)
    assert (s.values, reported(s)) == (["a", "b", "c"], [*LEFT])
    s.change("t", isr=[LEADER, 3])
    assert reported(s) == [*LEFT]
    s.fetchers.lags[s.partition()] = 2
    s.pass_time(200)
    assert (s.state, reported(s)) == (RebuildState.FAILED, [*LEFT, HOME])


@pytest.mark.parametrize("is_caught_up", [False, True])
def test_both_logs_of_a_deleted_topic_are_deleted(is_caught_up: bool) -> None:
    s = RebuildingBroker()
    s.begin()
    if is_caught_up:
        s.caught_up()
    config = s.partition().log.config
    s.cluster.delete("t")
    s.publish()
    s.pass_time(200)
    assert s.state is RebuildState.FAILED
    assert "its topic was deleted" in s.rebuild.failure
    s.directories[0].store.delete_expired(1 << 60)
    assert s.names() == []
    assert config.file_delete_delay_ms > 0


def test_a_replica_that_is_reassigned_away_meanwhile_leaves_nothing() -> None:
    s = RebuildingBroker()
    s.begin()
    s.change("t", replicas=[LEADER, 3], isr=[LEADER, 3])
    s.pass_time(200)
    s.directories[0].store.delete_expired(1 << 60)
    assert (s.state, s.names()) == (RebuildState.FAILED, [])


def test_a_directory_that_fails_meanwhile_ends_the_rebuild() -> None:
    s = RebuildingBroker(directories=2)
    s.begin()
    s.fail_disk(0)
    s.pass_time(200)
    assert s.state is RebuildState.FAILED
    assert "/disk0" in s.rebuild.failure
    assert reported(s) == [*LEFT]  # it has no online directory indeed


def test_a_directory_that_fails_while_the_log_is_put_aside_ends_the_rebuild() -> None:
    s = RebuildingBroker(directories=2)
    s.hold_disk(0)
    s.begin()
    s.fail_disk(0)
    s.release_disk(0)
    s.pass_time(200)
    assert (s.state, reported(s)) == (RebuildState.FAILED, [*LEFT])


def test_a_replica_that_is_rebuilt_moves_to_no_other_directory() -> None:
    s = RebuildingBroker(directories=2)
    s.begin()
    code = s.run(s.mover.alter(s.partition(), s.directories[1]))
    assert code is ErrorCode.REPLICA_NOT_AVAILABLE
    assert not list(s.replicas.moves)


def test_a_new_leader_feeds_the_new_log() -> None:
    s = RebuildingBroker()
    s.begin()
    s.change("t", leader=3)
    assert s.fetchers.leaders == {WHERE: 3}
    s.feed("a", "b", "c")
    s.caught_up()
    assert s.state is RebuildState.JOINING


# -- refusals


def test_refusals_name_the_state_and_the_remedy() -> None:
    s = RebuildingBroker(directories=2)
    assert s.refusal(TopicPartition("u", 0)) == "u-0 is unknown: there is no such topic"
    assert s.refusal(TopicPartition("t", 7)) == "t-7 is unknown: t has partitions 0 to 0"
    s.settings["far"] = topic_settings()
    s.create("far", [2, 3])
    assert s.refusal(TopicPartition("far", 0)) == (
        "broker 1 has no replica of far-0; brokers 2, 3 have one"
    )
    s.change("t", isr=[LEADER, ME])
    assert "without broker 1, the ISR of t-0 is [2]: 1 of at least 2" in s.refusal()
    s.change("t", isr=[ME], leader=ME)
    assert "broker 1 is the leader of t-0, and only a follower is rebuilt" in s.refusal()
    s.change("t", isr=[ME], leader=-1)
    assert "t-0 has no leader to copy from; its ISR is [1]" in s.refusal()
    s.change("t", isr=[LEADER, ME, 3], leader=LEADER, removing_replicas=[ME])
    assert "t-0 is being reassigned away from broker 1" in s.refusal()
    assert s.misplaced == []


def test_a_rebuild_is_refused_while_one_or_a_move_is_under_way() -> None:
    s = RebuildingBroker(directories=2)
    s.is_deaf = True
    s.begin()
    assert "a rebuild of t-0 is already running on broker 1" in s.refusal()
    s = RebuildingBroker(directories=2)
    s.run(s.mover.alter(s.partition(), s.directories[1]))
    assert "t-0 is moving from /disk0 to /disk1" in s.refusal()


def test_a_rebuild_is_refused_in_a_directory_that_is_offline_or_has_no_space() -> None:
    s = RebuildingBroker(directories=2)
    s.usable_bytes = 10
    assert "/disk0 has 10 B left, and a rebuild of t-0 needs" in s.refusal()
    s.fail_disk(0)
    assert "t-0 is in /disk0, which is offline" in s.refusal()


def test_a_rebuild_is_refused_where_the_metadata_knows_no_directories() -> None:
    s = RebuildingBroker()
    s.cluster.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=14))
    s.publish()
    assert "metadata.version is 14, and replicas can be rebuilt from 17 on" in s.refusal()


def test_a_broker_that_stops_begins_no_rebuild() -> None:
    s = RebuildingBroker()
    s.stop()
    assert s.refusal() == "broker 1 is stopping"


def test_the_only_in_sync_replica_is_not_rebuilt() -> None:
    s = RebuildingBroker(min_isr=1)
    s.change("t", isr=[ME], leader=LEADER)  # between two records of one election
    assert "broker 1 is the only member of the ISR of t-0" in s.refusal()
    assert directory_of(ME) == HOME
