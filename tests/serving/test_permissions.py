"""Produce and Fetch of a principal that lacks a right, also while a session is open."""

from rights import Rights
from serving_scenario import ServingScenario, code_of, values_in

from spindle.authorization.operations import CLUSTER_NAME, Operation
from spindle.common.errors import ErrorCode, ProtocolViolation
from spindle.protocol.messages.alter_disks import AlterDisksRequest
from spindle.protocol.messages.describe_disks import DescribeDisksRequest
from spindle.protocol.messages.rebuild_replicas import RebuildReplicasRequest
from spindle.serving.context import RequestContext
from spindle.serving.handlers.alter_disks import alter_disks
from spindle.serving.handlers.describe_disks import describe_disks
from spindle.serving.handlers.rebuild_replicas import rebuild_replicas

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
CONTEXT = RequestContext(0, 0, 1, "app", "127.0.0.1", "PLAINTEXT")
NOBODY = bytes(15) + b"x"


def guarded(*allowed: tuple[Operation, str]) -> tuple[ServingScenario, Rights]:
    """Broker 1 leads "t" and "u"; the test may only do what is named."""
    scenario = ServingScenario()
    scenario.create("t", (1,))
    scenario.create("u", (1,))
    scenario.append("a")
    rights = Rights(*allowed)
    scenario.services.authorizer = rights
    return scenario, rights


def test_records_are_appended_only_to_topics_that_the_producer_may_write() -> None:
    s, _ = guarded((Operation.WRITE, "t"))
    assert code_of(s.produce("b", acks=1)) == ErrorCode.NONE
    produce = s.produce("b", topic="u", acks=1)
    assert (code_of(produce), produce.base_offset) == (DENIED, -1)
    assert s.partition("u").log.log_end_offset == 0


def test_a_topic_that_does_not_exist_is_denied_by_name_and_unknown_by_id() -> None:
    s, _ = guarded()
    assert code_of(s.produce("b", topic="gone", version=12)) == DENIED
    assert code_of(s.produce("b", topic_id=NOBODY)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_denied_produce_without_answer_closes_the_connection() -> None:
    s, _ = guarded()
    assert isinstance(s.answer(s.ask_produce("b", acks=0)), ProtocolViolation)


def test_a_transactional_request_is_refused_whole_without_its_transactional_id() -> None:
    s, _ = guarded((Operation.WRITE, "t"))
    records = s.batch("b", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    produce = s.produce(records=records, transactional_id="theirs")
    assert code_of(produce) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_consumer_reads_topics_that_it_may_read_and_is_answered_at_once_for_others() -> None:
    s, _ = guarded((Operation.READ, "t"))
    assert values_in(s.fetch(0)) == ["a"]
    partition = s.fetch(("u", 0))
    assert (code_of(partition), partition.high_watermark, partition.records) == (DENIED, -1, b"")


def test_a_follower_needs_a_right_on_the_cluster_and_none_on_topics() -> None:
    s, rights = guarded((Operation.READ, "t"))
    assert code_of(s.fetch(0, replica=2)) == DENIED
    rights.allowed = {(Operation.CLUSTER_ACTION, CLUSTER_NAME)}
    assert code_of(s.fetch(0, replica=2)) != DENIED


def test_a_right_that_is_taken_away_ends_the_reading_of_an_open_session() -> None:
    s, rights = guarded((Operation.READ, "t"))
    answer = s.answer(s.ask_fetch(0, session=(0, 0)))
    rights.allowed.clear()
    s.append("b")
    later = s.answer(s.ask_fetch(session=(answer.session_id, 1)))
    (topic,) = later.responses
    (partition,) = topic.partitions
    assert (code_of(partition), partition.records) == (DENIED, b"")


def test_spindles_own_requests_about_disks_need_rights_on_the_cluster() -> None:
    s, rights = guarded()
    described = s.run(describe_disks(s.services, CONTEXT, DescribeDisksRequest()))
    assert (described.error_code, described.disks) == (CLUSTER_DENIED, [])
    rights.allowed = {(Operation.DESCRIBE, CLUSTER_NAME)}
    altered = s.run(alter_disks(s.services, CONTEXT, AlterDisksRequest(path="/disk1")))
    assert (altered.error_code, altered.path) == (CLUSTER_DENIED, "/disk1")
    wanted = RebuildReplicasRequest(topics=[RebuildReplicasRequest.Topic(name="t", partitions=[0])])
    rebuilt = s.run(rebuild_replicas(s.services, CONTEXT, wanted))
    assert (rebuilt.error_code, rebuilt.topics) == (CLUSTER_DENIED, [])
