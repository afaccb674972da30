"""Produce: what is appended, when it is answered, and what is refused."""

from cluster_image import directory_of
from serving_scenario import ServingScenario, code_of

from spindle.common.errors import ErrorCode, ProtocolViolation
from spindle.common.ids import OFFSETS_TOPIC

NOBODY = bytes(15) + b"x"


def leading(*replicas: int) -> ServingScenario:
    """Broker 1 leads partition 0 of topic "t"."""
    scenario = ServingScenario()
    scenario.create("t", replicas or (1, 2))
    return scenario


# -- acks and timeouts


def test_acks_1_is_answered_with_the_offset_as_soon_as_the_disk_has_it() -> None:
    s = leading()
    s.hold_disk()
    token = s.ask_produce("a", "b", acks=1)
    assert s.waits(token)
    s.release_disk()
    assert (code_of(s.produced(token)), s.produced(token).base_offset) == (ErrorCode.NONE, 0)
    assert s.produce("c", acks=1).base_offset == 2


def test_acks_all_is_answered_when_the_followers_have_it() -> None:
    s = leading()
    token = s.ask_produce("a")
    assert s.waits(token)
    s.follower_fetches(2, 1)
    assert code_of(s.produced(token)) == ErrorCode.NONE


def test_acks_all_times_out_and_the_records_stay() -> None:
    s = leading()
    token = s.ask_produce("a", timeout_ms=1_000)
    s.pass_time(999)
    assert s.waits(token)
    s.pass_time(1)
    assert code_of(s.produced(token)) == ErrorCode.REQUEST_TIMED_OUT
    assert s.partition().log.log_end_offset == 1


def test_acks_0_has_no_answer() -> None:
    s = leading()
    token = s.ask_produce("a", acks=0)
    assert s.answer(token) is None
    assert s.partition().log.log_end_offset == 1


def test_acks_0_that_fails_closes_the_connection() -> None:
    s = leading()
    s.change("t", leader=2)
    assert isinstance(s.answer(s.ask_produce("a", acks=0)), ProtocolViolation)


def test_other_acks_are_refused_and_nothing_is_appended() -> None:
    s = leading()
    assert code_of(s.produce("a", acks=2)) == ErrorCode.INVALID_REQUIRED_ACKS
    assert s.partition().log.log_end_offset == 0


def test_requests_that_are_not_answered_yet_keep_their_order() -> None:
    s = leading()
    s.hold_disk()
    tokens = [s.ask_produce(value, acks=1) for value in "abc"]
    s.release_disk()
    assert [s.produced(token).base_offset for token in tokens] == [0, 1, 2]


# -- which partition


def test_an_unknown_topic_id_is_reported_as_such() -> None:
    s = leading()
    assert code_of(s.produce("a", topic_id=NOBODY)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_unknown_name_or_partition_is_reported_as_such() -> None:
    s = leading()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(s.produce("a", topic="other", version=12)) == unknown
    assert code_of(s.produce("a", index=7)) == unknown


def test_a_partition_that_another_broker_leads_is_reported_with_its_leader() -> None:
    s = leading()
    s.change("t", leader=2)
    token = s.ask_produce("a", acks=1)
    produce = s.produced(token)
    assert code_of(produce) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (produce.current_leader.leader_id, produce.current_leader.leader_epoch) == (2, 1)
    assert [(n.node_id, n.host) for n in s.answer(token).node_endpoints] == [(2, "host2")]


def test_versions_before_10_do_not_get_the_leader() -> None:
    s = leading()
    s.change("t", leader=2)
    token = s.ask_produce("a", acks=1, version=9)
    assert s.produced(token).current_leader.leader_id == -1
    assert s.answer(token).node_endpoints == []


def test_records_for_a_topic_made_again_do_not_go_to_its_predecessor() -> None:
    s = leading(1)
    s.hold_disk()
    s.cluster.delete("t")
    s.cluster.create("t", [1])
    s.publish()
    token = s.ask_produce("new")
    assert s.waits(token)
    s.release_disk()
    assert s.produced(token).base_offset == 0
    assert s.values(s.ask_fetch(0)) == ["new"]


def test_records_with_the_id_of_a_deleted_topic_are_refused() -> None:
    s = leading(1)
    old = s.partition().topic_id
    s.cluster.delete("t")
    s.cluster.create("t", [1])
    s.publish()
    assert code_of(s.produce("a", topic_id=old)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_internal_topics_take_no_records_of_clients() -> None:
    s = leading()
    s.create(OFFSETS_TOPIC, [1])
    assert code_of(s.produce("a", topic=OFFSETS_TOPIC)) == ErrorCode.INVALID_TOPIC_EXCEPTION
    produce = s.produce("a", topic=OFFSETS_TOPIC, client_id="__admin_client")
    assert code_of(produce) == ErrorCode.NONE


# -- replicas that are on their way


def test_a_request_waits_for_a_replica_that_is_being_made() -> None:
    s = ServingScenario()
    s.hold_disk()
    s.create("t", [1])
    token = s.ask_produce("a", acks=1, timeout_ms=0)
    assert s.waits(token)
    s.release_disk()
    assert code_of(s.produced(token)) == ErrorCode.NONE


def test_a_request_waits_for_a_leadership_that_is_being_taken_over() -> None:
    s = leading(2, 1)
    s.hold_disk()
    s.change("t", leader=1)
    tokens = [s.ask_produce(value, acks=1) for value in "ab"]
    assert all(map(s.waits, tokens))
    s.release_disk()
    assert [s.produced(token).base_offset for token in tokens] == [0, 1]


def test_a_request_does_not_wait_for_a_replica_for_ever() -> None:
    s = ServingScenario()
    s.hold_disk()
    s.create("t", [1])
    token = s.ask_produce("a", acks=1, timeout_ms=0)
    s.pass_time(5_000)
    assert code_of(s.produced(token)) == ErrorCode.REQUEST_TIMED_OUT


def test_a_replica_that_cannot_be_made_is_not_waited_for() -> None:
    s = ServingScenario(directories=2)
    s.hold_disk()
    s.cluster.create("t", [1], directories=[[directory_of(1, 0)]])
    s.publish()
    token = s.ask_produce("a", acks=1)
    s.fail_disk()
    s.release_disk()
    assert code_of(s.produced(token)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_request_waits_for_a_replica_that_is_made_in_another_directory_after_a_failure() -> None:
    s = ServingScenario(directories=2)
    s.hold_disk()
    s.create("t", [1])
    token = s.ask_produce("a", acks=1)
    s.fail_disk()
    s.release_disk()
    assert s.produced(token).base_offset == 0


# -- what ends a request that waits


def test_a_leader_that_resigns_answers_what_waits() -> None:
    s = leading()
    token = s.ask_produce("a")
    s.change("t", leader=2)
    produce = s.produced(token)
    assert code_of(produce) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce.current_leader.leader_id == 2


def test_a_dead_directory_answers_what_waits() -> None:
    s = leading()
    token = s.ask_produce("a")
    s.fail_disk()
    assert code_of(s.produced(token)) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_deleted_topic_answers_what_waits() -> None:
    s = leading()
    token = s.ask_produce("a")
    s.cluster.delete("t")
    s.publish()
    assert code_of(s.produced(token)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- idempotent producers and bad batches


def test_a_batch_that_is_sent_again_is_acknowledged_where_it_stands() -> None:
    s = leading(1)
    batch = {"producer_id": 7, "producer_epoch": 0}
    s.produce("a", base_sequence=0, **batch)
    s.produce("b", base_sequence=1, **batch)
    again = s.produce("b", base_sequence=1, **batch)
    assert (code_of(again), again.base_offset) == (ErrorCode.NONE, 1)
    assert s.values(s.ask_fetch(0)) == ["a", "b"]


def test_a_gap_in_the_sequence_is_reported_with_the_log_start() -> None:
    s = leading(1)
    s.produce("a", producer_id=7, producer_epoch=0, base_sequence=0)
    produce = s.produce("b", producer_id=7, producer_epoch=0, base_sequence=3)
    assert code_of(produce) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (produce.base_offset, produce.log_start_offset) == (-1, 0)


def test_a_damaged_batch_is_refused_and_the_log_stays() -> None:
    s = leading(1)
    batch = s.batch("a")
    produce = s.produce(records=batch[:-1] + b"~")
    assert code_of(produce) == ErrorCode.CORRUPT_MESSAGE
    assert s.partition().log.log_end_offset == 0


def test_appended_records_are_counted_by_topic() -> None:
    s = leading(1)
    s.produce("a", "b", producer_id=7, producer_epoch=0, base_sequence=0)
    s.produce("c", producer_id=7, producer_epoch=0, base_sequence=9)
    counted = s.services.traffic.of("t")
    assert (counted.produces, counted.messages_in, counted.failed_produces) == (2, 2, 1)
