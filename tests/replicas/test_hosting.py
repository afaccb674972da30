"""The replica manager: replicas come, lead, follow, move and go as the metadata says."""

import pytest
from broker_scenario import BrokerScenario, topic_settings
from cluster_image import directory_of

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import DIRECTORY_LOST
from spindle.log.log import Log
from spindle.replicas import follower_appends
from spindle.replication.follower_log import LogPosition, begin_to_follow
from spindle.replication.throttling import ThrottledPartitions

MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_new_replica_gets_a_log_and_leads() -> None:
    s = BrokerScenario()
    topic_id = s.create("t", [1, 2])
    partition = s.partition()
    assert partition.log.topic_id == topic_id
    assert partition.leader is not None
    assert s.fetchers.leaders == {}


def test_a_new_replica_that_follows_is_fed_by_its_leader() -> None:
    s = BrokerScenario()
    s.create("t", [2, 1])
    assert s.partition().leader is None
    assert s.fetchers.leaders == {("t", 0): 2}


def test_a_follower_is_fed_by_its_new_leader() -> None:
    s = BrokerScenario()
    s.create("t", [2, 1, 3])
    s.change("t", leader=3)
    assert s.fetchers.leaders == {("t", 0): 3}


def test_a_follower_without_a_leader_is_fed_by_nobody() -> None:
    s = BrokerScenario()
    s.create("t", [2, 1])
    s.change("t", leader=-1)
    assert s.fetchers.leaders == {}


def test_a_follower_that_is_elected_is_fed_no_more() -> None:
    s = BrokerScenario()
    s.create("t", [2, 1])
    s.change("t", leader=1)
    assert s.fetchers.leaders == {}
    assert s.partition().leader is not None


def test_listeners_are_called_when_leaderships_begin_and_end() -> None:
    s = BrokerScenario()
    heard: list[bool] = []
    s.replicas.on_leadership(lambda partition, is_leader: heard.append(is_leader))
    s.create("t", [1, 2])
    s.change("t", isr=[1])
    s.change("t", leader=1)
    s.change("t", leader=2)
    s.change("t", leader=1)
    s.cluster.delete("t")
    s.publish()
    assert heard == [True, False, True, False]


def test_a_replica_that_is_moved_away_and_back_starts_empty() -> None:
    s = BrokerScenario()
    s.create("t", [1, 2])
    s.append("a", acks=1)
    s.change("t", replicas=[2], isr=[2], leader=2)
    assert s.replicas.lookup("t", 0) is None
    s.change("t", replicas=[2, 1])
    assert s.partition().log.log_end_offset == 0


def test_a_replica_that_went_and_came_in_one_delta_keeps_its_log() -> None:
    s = BrokerScenario()
    s.create("t", [1, 2])
    s.append("a", acks=1)
    s.cluster.change("t", replicas=[2], isr=[2], leader=2)
    s.cluster.change("t", replicas=[2, 1])
    s.publish()
    assert s.partition().log.log_end_offset == 1
    assert s.fetchers.leaders == {("t", 0): 2}


def test_a_topic_deleted_and_made_again_in_one_delta_starts_empty() -> None:
    s = BrokerScenario()
    s.create("t", [1])
    s.append("a")
    s.cluster.delete("t")
    topic_id = s.cluster.create("t", [1])
    s.publish()
    assert (s.partition().topic_id, s.partition().log.log_end_offset) == (topic_id, 0)


def test_new_replicas_go_to_the_directory_with_the_fewest() -> None:
    s = BrokerScenario(directories=2)
    for topic in ("a", "b", "c", "d"):
        s.create(topic, [1])
    assert [len(s.replicas.in_directory(d)) for d in s.directories] == [2, 2]


def test_a_replica_whose_directory_is_not_recorded_is_reported() -> None:
    s = BrokerScenario(directories=2)
    s.fail_disk(0)
    topic_id = s.create("t", [1])
    assert s.partition().directory is s.directories[1]
    assert s.misplaced == [(topic_id, 0, directory_of(1, 1))]


def test_a_directory_named_before_the_replica_comes_outranks_the_recorded_one_once() -> None:
    s = BrokerScenario(directories=3)
    where = TopicPartition("t", 0)
    s.replicas.remember_directory(where, s.directories[2])
    topic_id = s.create("t", [1, 2])
    assert s.partition().directory is s.directories[2]
    assert s.misplaced == [(topic_id, 0, directory_of(1, 2))]
    s.change("t", replicas=[2], isr=[2], leader=2)
    s.change("t", replicas=[2, 1], directories=[directory_of(2), directory_of(1, 1)])
    assert s.partition().directory is s.directories[1]


def test_a_directory_named_before_the_replica_comes_is_forgotten_if_it_is_offline() -> None:
    s = BrokerScenario(directories=3)
    s.replicas.remember_directory(TopicPartition("t", 0), s.directories[2])
    s.fail_disk(2)
    s.create("t", [1])
    assert s.partition().directory is not s.directories[2]


def test_nothing_is_made_that_may_stand_in_a_dead_directory() -> None:
    s = BrokerScenario(directories=2)
    s.fail_disk(0)
    s.cluster.create("t", [1], directories=[[directory_of(1, 0)]])
    s.publish()
    assert s.replicas.lookup("t", 0) is None
    assert s.replicas.absent_error("t", 0, MISSING) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_directory_named_by_a_client_gets_no_empty_log_of_a_replica_in_a_dead_one() -> None:
    """The controller would elect it as soon as its directory is reported."""
    s = BrokerScenario(directories=2)
    s.fail_disk(0)
    s.replicas.remember_directory(TopicPartition("t", 0), s.directories[1])
    s.cluster.create("t", [1], directories=[[directory_of(1, 0)]])
    s.publish()
    assert s.replicas.lookup("t", 0) is None
    assert s.misplaced == []


def test_a_dead_directory_stops_the_followers_in_it_and_no_others() -> None:
    s = BrokerScenario(directories=2)
    s.create("a", [2, 1])
    s.create("b", [2, 1])
    dead = s.partition("a").directory
    s.fail_disk(s.directories.index(dead))
    assert s.fetchers.leaders == {("b", 0): 2}


def test_a_missing_replica_is_reported_with_its_reason() -> None:
    s = BrokerScenario()
    s.create("t", [2, 3])
    assert s.replicas.absent_error("t", 0, MISSING) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert s.replicas.absent_error("t", 9, MISSING) == MISSING
    assert s.replicas.absent_error("x", 0, MISSING) == MISSING


def test_a_replica_is_waited_for_while_its_log_is_being_made() -> None:
    s = BrokerScenario()
    s.hold_disk()
    s.cluster.create("t", [1])
    s.publish()
    called: list[str] = []
    assert s.replicas.must_wait("t", 0)
    s.replicas.when_hosted("t", 0, lambda: called.append("first"))
    s.replicas.when_hosted("t", 0, lambda: called.append("second"))
    assert called == []
    s.release_disk()
    assert called == ["first", "second"]
    assert not s.replicas.must_wait("t", 0)


def test_a_request_that_comes_while_others_wait_takes_its_turn_behind_them() -> None:
    s = BrokerScenario()
    s.hold_disk()
    s.cluster.create("t", [1])
    s.publish()
    turns: list[bool] = []
    s.replicas.when_hosted("t", 0, lambda: turns.append(s.replicas.must_wait("t", 0)))
    s.release_disk()
    assert turns == [True]


def test_a_leadership_is_waited_for_while_its_epoch_is_being_started() -> None:
    s = BrokerScenario()
    s.create("t", [2, 1])
    s.hold_disk()
    s.cluster.change("t", leader=1)
    s.publish()
    assert s.replicas.must_wait("t", 0)
    s.release_disk()
    assert not s.replicas.must_wait("t", 0)


def test_another_throttle_of_followers_is_passed_to_their_fetchers_once() -> None:
    s = BrokerScenario()
    s.create("t", [2, 1])
    s.settings["t"] = topic_settings(throttled_as_follower=ThrottledPartitions(True, frozenset()))
    s.replicas.refresh_settings(["t"])
    s.replicas.refresh_settings(None)
    assert s.fetchers.throttled == [("t", 0)]


def test_settings_of_other_topics_do_not_change() -> None:
    s = BrokerScenario()
    s.create("a", [1])
    s.create("b", [1])
    s.settings = {name: topic_settings(retention_ms=5) for name in ("a", "b")}
    s.replicas.refresh_settings(["b"])
    assert s.partition("a").log.config.retention_ms != 5
    assert s.partition("b").log.config.retention_ms == 5


def test_logs_whose_directory_dies_while_they_are_made_are_made_in_another() -> None:
    s = BrokerScenario(directories=2)
    s.hold_disk(0)
    topic_id = s.create("t", [1])
    s.directories[0].executor.fail(OSError("the disk is gone"))
    s.release_disk(0)
    assert s.partition().directory is s.directories[1]
    assert s.misplaced == [(topic_id, 0, directory_of(1, 1))]


def test_a_log_that_is_recorded_in_the_directory_that_dies_is_not_made_elsewhere() -> None:
    s = BrokerScenario(directories=2)
    s.hold_disk(0)
    s.cluster.create("t", [1], directories=[[directory_of(1, 0)]])
    s.publish()
    s.directories[0].executor.fail(OSError("the disk is gone"))
    s.release_disk(0)
    assert s.replicas.lookup("t", 0) is None


def test_a_replica_in_a_dead_directory_that_is_recorded_elsewhere_is_reported_there() -> None:
    """Otherwise the controller would count it as online."""
    s = BrokerScenario(directories=2)
    topic_id = s.create("t", [1, 2])
    s.misplaced.clear()
    s.fail_disk(0)
    s.change("t", leader=2)
    assert s.partition().directory is s.directories[0]
    assert s.misplaced == [(topic_id, 0, directory_of(1, 0))]


GONE = directory_of(9, 9)
"""A directory that broker 1 does not have any more."""


@pytest.mark.parametrize("role", ["isr", "eligible_leader_replicas", "last_known_elr"])
def test_a_lost_log_that_may_have_the_only_copy_of_records_is_not_created_empty(role: str) -> None:
    """With an empty log the replica could be elected, and the others would delete theirs."""
    s = BrokerScenario()
    s.cluster.create("t", [1, 2], directories=[[GONE, directory_of(2)]])
    replicas = {role: [1]}
    s.cluster.change(
        "t",
        leader=-1,
        isr=replicas.get("isr", []),
        eligible_leader_replicas=replicas.get("eligible_leader_replicas", []),
        last_known_elr=replicas.get("last_known_elr", []),
    )
    s.publish()
    assert s.replicas.lookup("t", 0) is None
    assert s.misplaced == []
    s.change(
        "t", isr=[2], leader=2, eligible_leader_replicas=[], last_known_elr=[]
    )  # an unclean election: the operator accepts the loss
    assert s.partition().log.log_end_offset == 0
    assert [where[2] for where in s.misplaced] == [directory_of(1)]
    assert s.fetchers.leaders == {("t", 0): 2}


def test_the_lost_log_of_an_only_replica_is_created_empty_when_the_loss_is_accepted() -> None:
    s = BrokerScenario()
    s.cluster.create("alone", [1], directories=[[GONE]])
    s.publish()
    assert s.replicas.lookup("alone", 0) is None
    assert s.misplaced == []
    s.replicas.accept_losses([TopicPartition("alone", 0)])
    s.change("alone", leader=-1)
    assert s.partition("alone").log.log_end_offset == 0


def test_a_lost_log_is_created_empty_where_no_other_replica_needs_it() -> None:
    s = BrokerScenario()
    s.cluster.create("out-of-sync", [2, 1], directories=[[directory_of(2), GONE]])
    s.cluster.change("out-of-sync", isr=[2])
    s.publish()
    assert s.partition("out-of-sync").log.log_end_offset == 0


@pytest.mark.parametrize("directories", [1, 2])
def test_a_log_with_records_that_is_missing_from_an_online_directory_is_reported_lost(
    directories: int,
) -> None:
    """Created empty it could be elected, and the others would delete their records."""
    s = BrokerScenario(directories=directories)
    if directories == 2:
        s.fail_disk(1)
    where = TopicPartition("t", 0)
    s.directories[0].store.missing_at_start.add(where)
    topic_id = s.cluster.create("t", [1, 2], directories=[[directory_of(1), directory_of(2)]])
    s.cluster.change("t", isr=[1])
    s.publish()
    assert s.replicas.lookup("t", 0) is None
    assert s.misplaced == [(topic_id, 0, DIRECTORY_LOST)]
    s.change("t", isr=[2], leader=2)
    assert s.partition().log.log_end_offset == 0
    assert s.fetchers.leaders == {("t", 0): 2}
    assert where not in s.directories[0].store.missing_at_start


def test_a_log_stays_offline_if_the_checkpoints_that_would_name_it_are_lost() -> None:
    s = BrokerScenario()
    s.directories[0].store.lacks_checkpoints = True
    topic_id = s.cluster.create("t", [1, 2], directories=[[directory_of(1), directory_of(2)]])
    s.publish()
    assert s.replicas.lookup("t", 0) is None
    assert s.misplaced == [(topic_id, 0, DIRECTORY_LOST)]
    s.create("later", [1])
    assert s.partition("later").leader is not None


def test_a_log_is_missing_from_any_directory_if_none_is_recorded() -> None:
    """Before KIP-858 the metadata records no directories."""
    s = BrokerScenario(directories=2)
    s.directories[1].store.missing_at_start.add(TopicPartition("t", 0))
    s.create("t", [1])
    assert s.replicas.lookup("t", 0) is None


def test_lost_checkpoints_show_nothing_about_a_replica_without_a_recorded_directory() -> None:
    s = BrokerScenario(directories=2)
    s.directories[1].store.lacks_checkpoints = True
    s.create("t", [1])
    assert s.partition().leader is not None


def test_a_missing_log_says_nothing_about_a_topic_created_while_the_broker_was_down() -> None:
    where = TopicPartition("t", 0)
    s = BrokerScenario(is_started=False)
    s.directories[0].store.missing_at_start.add(where)
    s.cluster.create("t", [1], directories=[[directory_of(1)]])
    s.start(s.cluster.broker_epoch(1))
    assert s.partition().leader is not None


@pytest.mark.parametrize("broker_epoch", [-1, 3])
def test_metadata_older_than_the_last_stop_does_not_show_when_a_topic_was_created(
    broker_epoch: int,
) -> None:
    s = BrokerScenario(is_started=False)
    s.directories[0].store.missing_at_start.add(TopicPartition("t", 0))
    s.cluster.create("t", [1], directories=[[directory_of(1)]])
    s.start(broker_epoch)
    assert s.replicas.lookup("t", 0) is None


def test_metadata_fetched_by_a_node_without_any_does_not_show_when_a_topic_was_created() -> None:
    """Its folder of the metadata log is gone; the first fetch ends before the stop."""
    s = BrokerScenario(is_started=False, stored_end_offset=0)
    s.directories[0].store.missing_at_start.add(TopicPartition("t", 0))
    s.cluster.create("t", [1], directories=[[directory_of(1)]])
    s.start(s.cluster.broker_epoch(1))
    assert s.replicas.lookup("t", 0) is None


def test_a_missing_log_says_nothing_about_a_later_topic_of_its_name() -> None:
    where = TopicPartition("t", 0)
    s = BrokerScenario()
    s.directories[0].store.missing_at_start.add(where)
    s.create("other", [1])
    s.cluster.create("t", [1], directories=[[directory_of(1)]])
    s.publish()
    assert s.partition().leader is not None
    s = BrokerScenario()
    s.directories[0].store.missing_at_start.add(where)
    s.cluster.create("t", [1], directories=[[directory_of(1)]])
    s.publish()
    s.cluster.delete("t")
    s.publish()
    assert s.directories[0].store.missing_at_start == set()


def test_a_missing_log_is_created_in_its_directory_where_no_other_replica_needs_it() -> None:
    s = BrokerScenario()
    s.directories[0].store.missing_at_start.add(TopicPartition("t", 0))
    s.cluster.create("t", [2, 1], directories=[[directory_of(2), directory_of(1)]])
    s.cluster.change("t", isr=[2])
    s.publish()
    assert s.partition().log.log_end_offset == 0
    assert s.misplaced == []


def test_the_missing_log_of_an_only_replica_is_created_empty_when_the_loss_is_accepted() -> None:
    s = BrokerScenario()
    where = TopicPartition("alone", 0)
    s.directories[0].store.missing_at_start.add(where)
    s.cluster.create("alone", [1], directories=[[directory_of(1)]])
    s.publish()
    assert s.replicas.lookup(*where) is None
    s.replicas.accept_losses([where])
    s.change("alone", leader=-1, directories=[DIRECTORY_LOST])
    assert s.partition("alone").log.log_end_offset == 0


def test_the_log_counts_the_replicas_of_a_failed_directory_if_there_are_any(
    caplog: pytest.LogCaptureFixture,
) -> None:
    s = BrokerScenario(directories=2)
    s.fail_disk(1)
    assert "are offline" not in caplog.text
    s = BrokerScenario(directories=2)
    s.create("t", [1])
    s.fail_disk(s.directories.index(s.partition().directory))
    assert "1 replicas in" in caplog.text


def test_a_follower_that_could_not_begin_tries_again_in_the_same_leader_epoch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [ValueError("odd"), ValueError("odd")]

    def begin(log: Log, now_ms: int) -> LogPosition:
        if failures:
            raise failures.pop()
        return begin_to_follow(log, now_ms)

    monkeypatch.setattr(follower_appends, "begin_to_follow", begin)
    s = BrokerScenario()
    s.create("t", [2, 1])
    expected: list[dict[tuple[str, int], int]] = [{}, {("t", 0): 2}]
    for leaders in expected:
        s.run(s.replicas.follow_again())
        assert s.fetchers.leaders == leaders
    assert caplog.text.count("cannot follow with t-0") == 1
    s.fetchers.leaders.clear()
    s.run(s.replicas.follow_again())
    assert s.fetchers.leaders == {}
