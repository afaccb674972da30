"""The meaning of answers: cluster views, offsets, batches, log directories, configurations."""

import pytest

from spindle.client import fetching, producing
from spindle.client.cluster_metadata import BrokerAddress, cluster_view, metadata_request
from spindle.client.configs import describe_configs_request, described_configs
from spindle.client.errors import (
    ConnectionLost,
    UnsupportedByPeer,
    is_worth_retrying,
    raise_for,
)
from spindle.client.log_dirs import describe_log_dirs_request, log_dir_views
from spindle.client.offsets import found_offsets, list_offsets_request
from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.config.resources import ConfigResourceType
from spindle.protocol.messages.describe_configs import DescribeConfigsResponse
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.list_offsets import ListOffsetsResponse
from spindle.protocol.messages.metadata import MetadataResponse
from spindle.protocol.messages.produce import ProduceResponse
from spindle.protocol.sentinels import EARLIEST, LATEST

ORDERS = TopicPartition("orders", 1)
TOPIC_ID = bytes(range(16))
PartitionData = FetchResponse.FetchableTopicResponse.PartitionData


def metadata() -> MetadataResponse:
    partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    topic = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=4, host="h", port=9)],
        cluster_id="c",
        topics=[
            topic(
                name="orders",
                topic_id=TOPIC_ID,
                partitions=[
                    partition(partition_index=1, leader_id=4),
                    partition(partition_index=0, leader_id=-1),
                ],
            ),
            topic(name="gone", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )


def test_a_cluster_view_names_the_leaders() -> None:
    view = cluster_view(metadata())
    assert view.leader_of(ORDERS) == BrokerAddress(4, "h", 9)
    assert view.by_leader([ORDERS]) == {BrokerAddress(4, "h", 9): [ORDERS]}
    assert list(view.topic("orders").partitions) == [0, 1]
    assert view.refused == {"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("partition", "code"),
    [
        (TopicPartition("orders", 0), ErrorCode.LEADER_NOT_AVAILABLE),
        (TopicPartition("orders", 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("gone", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("never asked", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partitions_without_a_leader(partition: TopicPartition, code: ErrorCode) -> None:
    with pytest.raises(ApiError, match=partition.topic) as raised:
        cluster_view(metadata()).leader_of(partition)
    assert raised.value.code == code


@pytest.mark.parametrize(("node_id", "name"), [("5", "5"), ("four", "'four'"), ("", "''")])
def test_brokers_by_the_name_of_a_resource(node_id: str, name: str) -> None:
    view = cluster_view(metadata())
    assert view.broker("4").port == 9
    with pytest.raises(ApiError, match=f"broker {name} is unknown or down; known brokers: 4"):
        view.broker(node_id)


def test_asking_for_metadata_never_creates_topics() -> None:
    assert metadata_request(None).topics is None
    request = metadata_request(["a"])
    assert [t.name for t in request.topics or ()] == ["a"]
    assert not request.allow_auto_topic_creation


def test_offsets_by_leader_request_and_answer() -> None:
    request = list_offsets_request(
        {ORDERS: LATEST, TopicPartition("orders", 2): EARLIEST}, isolation_level=1, timeout_ms=5
    )
    assert len(request.topics) == 1
    assert [(p.partition_index, p.timestamp) for p in request.topics[0].partitions] == [
        (1, LATEST),
        (2, EARLIEST),
    ]
    assert request.replica_id == -1
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    result = topic.ListOffsetsPartitionResponse
    response = ListOffsetsResponse(
        topics=[topic(name="orders", partitions=[result(partition_index=1, offset=17)])]
    )
    assert found_offsets(response)[ORDERS].offset == 17
    response.topics[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError, match="orders-1"):
        found_offsets(response)


def fetch_answer(*partitions: PartitionData) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(topic="orders", partitions=list(partitions))
    return FetchResponse(responses=[topic])


def test_a_fetched_partition_has_records_and_aborted_transactions() -> None:
    aborted = PartitionData.AbortedTransaction(producer_id=3, first_offset=8)
    data = PartitionData(
        partition_index=1, high_watermark=9, records=b"r", aborted_transactions=[aborted]
    )
    fetched = fetching.fetched_batches(ORDERS, fetch_answer(data))
    assert fetched.records == b"r"
    assert fetched.high_watermark == 9
    assert fetched.aborted == [fetching.AbortedProducer(3, 8)]


def test_an_empty_fetch_has_no_records_and_no_aborted_transactions() -> None:
    data = PartitionData(partition_index=1, records=None, aborted_transactions=None)
    fetched = fetching.fetched_batches(ORDERS, fetch_answer(data))
    assert (fetched.records, list(fetched.aborted)) == (b"", [])


def test_a_client_beyond_its_quota_gets_nothing_and_is_to_wait() -> None:
    fetched = fetching.fetched_batches(ORDERS, FetchResponse(throttle_time_ms=900))
    assert (fetched.records, fetched.throttle_ms) == (b"", 900)
    fetched = fetching.fetched_batches(ORDERS, FetchResponse(throttle_time_ms=2**31 - 1))
    assert fetched.throttle_ms == 30_000


@pytest.mark.parametrize(
    "response",
    [
        FetchResponse(),
        fetch_answer(),
        fetch_answer(PartitionData(partition_index=5)),
        fetch_answer(PartitionData(partition_index=1), PartitionData(partition_index=2)),
    ],
)
def test_a_fetch_answer_about_something_else(response: FetchResponse) -> None:
    with pytest.raises(ProtocolViolation, match="orders-1"):
        fetching.fetched_batches(ORDERS, response)


def test_a_refused_fetch_names_the_partition() -> None:
    data = PartitionData(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE: fetch of partition orders-1"):
        fetching.fetched_batches(ORDERS, fetch_answer(data))
    with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
        fetching.fetched_batches(ORDERS, FetchResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR))


def test_a_topic_without_id_is_fetched_and_produced_by_name() -> None:
    assert fetching.last_version(ZERO_UUID) == 12
    assert fetching.last_version(TOPIC_ID) is None
    assert producing.last_version(ZERO_UUID) == 12
    request = fetching.fetch_request(
        ORDERS, TOPIC_ID, 5, fetching.FetchLimits(100), isolation_level=1
    )
    assert (request.session_epoch, request.isolation_level) == (-1, 1)
    assert (request.topics[0].topic, request.topics[0].topic_id) == ("orders", TOPIC_ID)
    assert request.topics[0].partitions[0].fetch_offset == 5


def test_a_produce_response_has_the_offset_of_each_batch() -> None:
    topic = ProduceResponse.TopicProduceResponse
    result = topic.PartitionProduceResponse(index=1, base_offset=40, log_append_time_ms=-1)
    response = ProduceResponse(responses=[topic(name="orders", partition_responses=[result])])
    assert producing.appended(ORDERS, response).base_offset == 40
    result.error_code = ErrorCode.INVALID_RECORD
    result.error_message = "no key"
    with pytest.raises(ApiError, match="INVALID_RECORD: produce to partition orders-1: no key"):
        producing.appended(ORDERS, response)
    with pytest.raises(ProtocolViolation):
        producing.appended(ORDERS, ProduceResponse())


def test_log_directories_in_the_order_of_their_paths() -> None:
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    topic = result.DescribeLogDirsTopic
    replica = topic.DescribeLogDirsPartition(
        partition_index=1, partition_size=77, is_future_key=True
    )
    response = DescribeLogDirsResponse(
        results=[
            result(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
            result(log_dir="/a", topics=[topic(name="orders", partitions=[replica])]),
        ]
    )
    first, second = log_dir_views(response)
    assert (first.path, first.error) == ("/a", ErrorCode.NONE)
    assert first.replicas[ORDERS].size_bytes == 77
    assert first.replicas[ORDERS].is_future
    assert (second.path, second.error) == ("/b", ErrorCode.KAFKA_STORAGE_ERROR)
    assert describe_log_dirs_request(None).topics is None


def test_configurations_are_returned_by_resource() -> None:
    request = describe_configs_request(ConfigResourceType.TOPIC, ["orders"], ["retention.ms"])
    assert request.resources[0].configuration_keys == ["retention.ms"]
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult(name="retention.ms", value="1")
    response = DescribeConfigsResponse(results=[result(resource_name="orders", configs=[entry])])
    assert described_configs(response) == {"orders": {"retention.ms": "1"}}


def test_an_error_code_from_the_future_is_named_by_its_number() -> None:
    with pytest.raises(ApiError, match=r"UNKNOWN_SERVER_ERROR: thing \(error code 999\)"):
        raise_for(999, "thing")
    raise_for(0, "thing")


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), False),
        (ConnectionLost("x"), True),
        (UnsupportedByPeer("x"), False),
        (ValueError("x"), False),
    ],
)
def test_only_transient_errors_are_retried(error: Exception, retried: bool) -> None:
    assert is_worth_retrying(error) is retried
