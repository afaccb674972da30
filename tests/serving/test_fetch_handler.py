"""Fetch: what consumers and followers may read, how long they wait, and what wakes them."""

from functools import partial

from broker_scenario import topic_settings
from serving_scenario import ServingScenario, code_of, values_in

from spindle.common.errors import ErrorCode
from spindle.replication.throttling import ThrottledPartitions

NOBODY = bytes(15) + b"x"
ALL = ThrottledPartitions(True, frozenset())


def leading(*replicas: int) -> ServingScenario:
    """Broker 1 leads partition 0 of topic "t"."""
    scenario = ServingScenario()
    scenario.create("t", replicas or (1,))
    return scenario


# -- consumers: how far they read


def test_a_consumer_reads_up_to_the_high_watermark() -> None:
    s = leading(1, 2)
    s.append("a", acks=1)
    s.append("b", acks=1)
    s.follower_fetches(2, 1)
    partition = s.fetch(0)
    assert (values_in(partition), partition.high_watermark) == (["a"], 1)


def test_a_consumer_that_is_behind_the_log_start_or_beyond_the_end_is_out_of_range() -> None:
    s = leading()
    s.append("a", "b")
    s.delete_records(1)
    for offset in (0, 3):
        partition = s.fetch(offset)
        assert code_of(partition) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (partition.high_watermark, partition.log_start_offset) == (-1, -1)


def test_the_first_batch_comes_whole_however_small_the_limits_are() -> None:
    s = leading()
    s.append("a" * 500)
    s.append("b" * 500)
    partition = s.fetch(0, max_bytes=10, partition_max_bytes=10)
    assert values_in(partition) == ["a" * 500]


def test_partitions_that_did_not_fit_come_first_in_the_next_fetch_of_a_session() -> None:
    s = leading()
    s.create("u", [1])
    for topic in ("t", "u"):
        s.append("x" * 500, topic=topic)
        s.append("y" * 500, topic=topic)
    first = s.ask_fetch(("t", 0), ("u", 0), session=(0, 0), max_bytes=700)
    session = s.answer(first).session_id
    assert s.values(first) == ["x" * 500]
    second = s.ask_fetch(("t", 1), session=(session, 1), max_bytes=700)
    assert s.topics(second) == ["u"]


def test_a_read_committed_consumer_stops_before_an_open_transaction() -> None:
    s = leading()
    s.append("plain")
    s.append("open", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    s.append("after")
    committed = s.fetch(0, read_committed=True)
    assert (values_in(committed), committed.last_stable_offset) == (["plain"], 1)
    assert values_in(s.fetch(0)) == ["plain", "open", "after"]


def test_a_read_committed_consumer_gets_the_aborted_transactions() -> None:
    s = leading()
    s.append("gone", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    s.end_transaction(7, is_committed=False)
    s.append("after")
    partition = s.fetch(0, read_committed=True)
    aborted = partition.aborted_transactions or []
    assert [(t.producer_id, t.first_offset) for t in aborted] == [(7, 0)]
    assert s.fetch(0).aborted_transactions is None


# -- consumers: how long they wait


def test_a_fetch_waits_for_records_and_is_woken_by_them() -> None:
    s = leading()
    token = s.ask_fetch(0)
    assert s.waits(token)
    s.append("a")
    assert s.values(token) == ["a"]


def test_a_consumer_waits_until_the_followers_have_the_records() -> None:
    s = leading(1, 2)
    token = s.ask_fetch(0)
    s.append("a", acks=1)
    assert s.waits(token)
    s.follower_fetches(2, 1)
    assert s.values(token) == ["a"]


def test_a_fetch_is_answered_without_records_when_its_time_is_over() -> None:
    s = leading()
    token = s.ask_fetch(0, max_wait_ms=500)
    s.pass_time(499)
    assert s.waits(token)
    s.pass_time(1)
    assert s.values(token) == []


def test_a_fetch_waits_until_min_bytes_are_there_and_then_has_them_all() -> None:
    s = leading()
    token = s.ask_fetch(0, min_bytes=1_000)
    s.append("a" * 600)
    assert s.waits(token)
    s.append("b" * 600)
    assert s.values(token) == ["a" * 600, "b" * 600]


def test_a_partition_with_more_than_its_limit_counts_with_the_whole_limit() -> None:
    s = leading()
    for letter in "abc":
        s.append(letter * 400)
    ask = partial(s.ask_fetch, min_bytes=1_000, partition_max_bytes=1_000)
    assert s.values(ask(0)) == ["a" * 400, "b" * 400]
    assert s.waits(ask(1)), "here more may come"


def test_time_that_is_over_gives_less_than_min_bytes() -> None:
    s = leading()
    token = s.ask_fetch(0, min_bytes=1_000, max_wait_ms=500)
    s.append("a")
    s.pass_time(500)
    assert s.values(token) == ["a"]


def test_records_that_come_while_the_disk_reads_are_not_missed() -> None:
    s = leading()
    s.append("a" * 600)
    s.hold_disk()
    token = s.ask_fetch(0, min_bytes=1_000)
    s.append("b" * 600, acks=1)
    s.release_disk()
    assert s.values(token) == ["a" * 600, "b" * 600]


def test_a_consumer_at_the_end_waits_also_when_another_partition_has_an_empty_answer() -> None:
    s = leading()
    s.create("u", [1])
    token = s.ask_fetch(("t", 0), ("u", 0))
    assert s.waits(token)
    s.append("a", topic="u")
    assert s.values(token) == ["a"]


# -- what answers a parked fetch


def test_an_error_of_one_partition_answers_the_whole_fetch_at_once() -> None:
    s = leading()
    token = s.ask_fetch(("t", 0), ("nowhere", 0))
    codes = [topic.partitions[0].error_code for topic in s.answer(token).responses]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_new_leader_answers_parked_fetches_with_its_name() -> None:
    s = leading(1, 2)
    token = s.ask_fetch(0, version=12)
    newer = s.ask_fetch(0, leader_epoch=0)
    s.change("t", leader=2)
    assert s.waits(token), "a follower serves consumers"
    partition = s.fetched(newer)
    assert code_of(partition) == ErrorCode.FENCED_LEADER_EPOCH
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 1)
    assert [node.node_id for node in s.answer(newer).node_endpoints] == [2]


def test_consumers_that_know_no_followers_are_sent_to_the_new_leader() -> None:
    s = leading(1, 2)
    token = s.ask_fetch(0, version=10)
    s.change("t", leader=2)
    assert code_of(s.fetched(token)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_dead_directory_answers_parked_fetches() -> None:
    s = leading()
    token = s.ask_fetch(0)
    s.fail_disk()
    assert code_of(s.fetched(token)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_deleted_topic_answers_parked_fetches() -> None:
    s = leading()
    token = s.ask_fetch(0)
    s.cluster.delete("t")
    s.publish()
    assert code_of(s.fetched(token)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_replica_that_is_moved_away_answers_parked_fetches() -> None:
    s = leading(1, 2)
    token = s.ask_fetch(0)
    s.change("t", replicas=[2], isr=[2], leader=2)
    assert code_of(s.fetched(token)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_disk_that_dies_while_it_reads_is_reported() -> None:
    s = leading()
    s.append("a")
    s.hold_disk()
    token = s.ask_fetch(0)
    s.fail_disk()
    s.release_disk()
    assert code_of(s.fetched(token)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_transaction_that_ended_while_the_replica_moved_is_reported_at_once() -> None:
    s = ServingScenario(directories=2)
    s.create("t", [1, 2])
    s.append("x", acks=1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    s.end_transaction(7, is_committed=True)
    s.create("u", [1])
    t, u = s.partition(), s.partition("u")
    assert t.directory is not u.directory
    token = s.ask_fetch(0, read_committed=True)
    s.hold_disk()
    t.pause_changes()
    s.follower_fetches(2, 2)
    t.replace_log(t.log, u.directory)
    t.resume_changes()
    s.settle()
    assert s.values(token) == ["x"]


def test_a_replica_that_moves_during_a_fetch_takes_no_other_to_its_new_directory() -> None:
    s = ServingScenario(directories=2)
    for topic in ("t", "u", "v", "w"):
        s.create(topic, [1])
        s.append("a", topic=topic)
    t, u, v, w = (s.partition(topic) for topic in ("t", "u", "v", "w"))
    assert t.directory is v.directory is not u.directory is w.directory
    s.hold_disk()
    token = s.ask_fetch(("t", 0), ("u", 0), ("w", 0))
    u.pause_changes()
    u.replace_log(u.log, t.directory)
    u.resume_changes()
    s.fail_disk()
    s.release_disk()
    assert s.values(token) == ["a"]  # that of "w", whose directory is well


# -- epochs and ids


def test_leader_epochs_of_consumers_are_held_against_the_metadata() -> None:
    s = leading(1, 2)
    s.change("t", leader=1)
    assert code_of(s.fetch(0, leader_epoch=0)) == ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(s.fetch(0, leader_epoch=1)) == ErrorCode.NONE
    assert code_of(s.fetch(0, leader_epoch=2)) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_diverging_follower_gets_the_offset_of_the_divergence() -> None:
    s = leading(1, 2)
    s.append("a", acks=1)
    s.change("t", leader=1)
    s.append("b", acks=1)
    partition = s.fetch(5, replica=2, leader_epoch=1, last_fetched_epoch=0)
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, 1)
    assert (values_in(partition), partition.high_watermark) == ([], -1)


def test_an_unknown_topic_id_is_reported_to_a_consumer_at_once() -> None:
    s = leading()
    token = s.ask_fetch(0, topic_id=NOBODY)
    assert code_of(s.fetched(token)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_session_whose_topic_was_created_again_gets_an_error_for_its_id() -> None:
    s = leading()
    begun = s.ask_fetch(0, session=(0, 0), max_wait_ms=0)
    session = s.answer(begun).session_id
    old = s.partition().topic_id
    token = s.ask_fetch(session=(session, 1))
    s.cluster.delete("t")
    s.cluster.create("t", [1])
    s.publish()
    (topic,) = s.answer(token).responses
    assert topic.topic_id == old
    # While the replica of the new topic is being made: ask again.
    assert topic.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = s.ask_fetch(session=(session, 2))
    (topic,) = s.answer(again).responses
    assert topic.partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID


# -- followers


def test_a_follower_reads_beyond_the_high_watermark_and_is_woken_by_an_append() -> None:
    s = leading(1, 2)
    token = s.ask_fetch(0, replica=2, leader_epoch=0)
    s.append("a", acks=1)
    assert s.values(token) == ["a"]
    assert s.fetched(token).high_watermark == 0


def test_the_fetch_offset_of_a_follower_acknowledges_what_is_before_it() -> None:
    s = leading(1, 2)
    token = s.ask_produce("a")
    s.ask_fetch(1, replica=2, leader_epoch=0)
    assert code_of(s.produced(token)) == ErrorCode.NONE


def test_a_fetch_with_a_later_epoch_waits_until_the_leader_has_it() -> None:
    s = leading(1, 2)
    s.append("a", acks=1)
    s.cluster.change("t", leader=1)
    token = s.ask_fetch(0, replica=2, leader_epoch=1)
    assert s.waits(token)
    s.publish()
    assert s.values(token) == ["a"]


def test_a_fetch_of_a_new_topic_waits_until_the_leader_has_it() -> None:
    s = leading(1, 2)
    s.cluster.create("u", [1, 2])
    token = s.ask_fetch(("u", 0), replica=2, leader_epoch=0)
    assert s.waits(token)
    s.publish()
    s.append("a", topic="u", acks=1)
    assert s.values(token) == ["a"]


def test_a_fetch_with_an_epoch_that_the_leader_never_gets_is_refused() -> None:
    s = leading(1, 2)
    token = s.ask_fetch(0, replica=2, leader_epoch=1, max_wait_ms=500)
    s.pass_time(500)
    assert code_of(s.fetched(token)) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_of_an_earlier_broker_epoch_is_refused() -> None:
    s = leading(1, 2)
    old = s.cluster.broker_epoch(2)
    s.cluster.register(2)
    s.publish()
    partition = s.fetch(0, replica=2, leader_epoch=0, broker_epoch=old)
    assert code_of(partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_out_of_sync_waits_while_its_throttle_is_exceeded() -> None:
    s = leading(1, 2)
    s.settings["t"] = topic_settings(throttled_as_leader=ALL)
    s.replicas.refresh_settings(["t"])
    s.change("t", isr=[1])
    s.append("a" * 5_000, acks=1)
    s.services.leader_throttle.limit_bytes_per_s = 100
    s.services.leader_throttle.record(5_000)
    token = s.ask_fetch(0, replica=2, leader_epoch=0, max_wait_ms=500)
    assert s.waits(token)
    s.pass_time(500)
    assert s.values(token) == []


def test_a_follower_in_sync_is_not_throttled() -> None:
    s = leading(1, 2)
    s.settings["t"] = topic_settings(throttled_as_leader=ALL)
    s.replicas.refresh_settings(["t"])
    s.append("a", acks=1)
    s.services.leader_throttle.limit_bytes_per_s = 0
    s.services.leader_throttle.record(5_000)
    assert s.values(s.ask_fetch(0, replica=2, leader_epoch=0)) == ["a"]


def test_a_deletion_of_records_is_reported_to_a_follower_at_once() -> None:
    s = leading(1, 2)
    s.append("a", acks=1)
    begun = s.ask_fetch(1, replica=2, leader_epoch=0, session=(0, 0), max_wait_ms=0)
    session = s.answer(begun).session_id
    token = s.ask_fetch(replica=2, session=(session, 1))
    s.delete_records(1)
    assert s.fetched(token).log_start_offset == 1


# -- sessions


def test_a_session_sends_only_what_is_new() -> None:
    s = leading()
    s.create("u", [1])
    begun = s.ask_fetch(("t", 0), ("u", 0), session=(0, 0), max_wait_ms=0)
    assert s.topics(begun) == ["t", "u"]
    session = s.answer(begun).session_id
    token = s.ask_fetch(session=(session, 1))
    assert s.waits(token)
    s.append("a", topic="u")
    assert (s.topics(token), s.values(token)) == (["u"], ["a"])


def test_a_forgotten_partition_is_no_longer_in_responses() -> None:
    s = leading()
    s.create("u", [1])
    begun = s.ask_fetch(("t", 0), ("u", 0), session=(0, 0), max_wait_ms=0)
    session = s.answer(begun).session_id
    token = s.ask_fetch(session=(session, 1), forget=["u"])
    s.append("a", topic="u")
    assert s.waits(token)


def test_an_unknown_session_and_a_wrong_epoch_are_refused() -> None:
    s = leading()
    unknown = s.ask_fetch(session=(99, 1))
    assert s.answer(unknown).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = s.answer(s.ask_fetch(0, session=(0, 0), max_wait_ms=0)).session_id
    wrong = s.ask_fetch(session=(session, 5))
    assert s.answer(wrong).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_error_is_repeated_in_every_response_of_a_session() -> None:
    s = leading()
    begun = s.ask_fetch(9, session=(0, 0))
    session = s.answer(begun).session_id
    for epoch in (1, 2):
        token = s.ask_fetch(session=(session, epoch))
        assert code_of(s.fetched(token)) == ErrorCode.OFFSET_OUT_OF_RANGE


# -- quotas


def test_a_consumer_over_its_quota_gets_nothing_but_the_time_to_wait() -> None:
    s = leading()
    s.append("a" * 50_000)
    s.limit("consumer_byte_rate", 6_000.0)
    s.fetch(0)
    token = s.ask_fetch(0, session=(0, 0))
    answer = s.answer(token)
    assert answer.throttle_time_ms > 0
    assert (answer.responses, answer.session_id) == ([], 0)


def test_followers_have_no_quota_of_clients() -> None:
    s = leading(1, 2)
    s.append("a" * 50_000, acks=1)
    s.limit("consumer_byte_rate", 6_000.0)
    for _ in range(3):
        partition = s.fetch(0, replica=2, leader_epoch=0)
        assert len(values_in(partition)) == 1
