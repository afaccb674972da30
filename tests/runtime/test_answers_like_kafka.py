"""Answers that clients could tell from Kafka's; `make interop` compares many more with Kafka."""

from pathlib import Path
from typing import Any

import pytest
from node_harness import Client, Home, batch_of, connected, produce_request, running

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.describe_cluster import DescribeClusterRequest
from spindle.protocol.messages.describe_producers import DescribeProducersRequest
from spindle.protocol.messages.describe_quorum import DescribeQuorumRequest
from spindle.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.update_features import UpdateFeaturesRequest

ID = bytes(range(16))
UNRESOLVABLE = "a" * 64
"""A label that is too long for a resolver, which says so at once and without a network."""


async def internal_topics_take_no_records(client: Client) -> None:
    await client.ask(FindCoordinatorRequest(key="group"), version=3)
    part = await client.produce("__consumer_offsets", 0, batch_of(b"x"))
    assert (part.error_code, part.base_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


async def refused_batches_tell_the_log_start(client: Client) -> None:
    late = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=3)
    await client.produce("two", 0, late)
    part = await client.produce(
        "two", 0, batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=9)
    )
    answered = part.error_code, part.log_start_offset, part.error_message
    assert answered == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, None)
    part = await client.produce("two", 0, batch_of(b"x")[:-1] + b"~")
    answered = part.error_code, part.log_start_offset, part.error_message
    assert answered == (ErrorCode.CORRUPT_MESSAGE, -1, None)


async def transactions_need_their_coordinator(client: Client) -> None:
    batch = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    part = await client.produce("two", 1, batch)
    assert part.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await client.fetch("two", 1, 0, max_wait_ms=0)).high_watermark == 0


async def quotas_of_what_is_no_address_are_refused(client: Client) -> None:
    entry = AlterClientQuotasRequest.EntryData
    for name, code in (
        ("10.0.0.1", ErrorCode.NONE),
        ("::1", ErrorCode.NONE),
        ("localhost", ErrorCode.NONE),
        (UNRESOLVABLE, ErrorCode.INVALID_REQUEST),
        ("::::", ErrorCode.INVALID_REQUEST),
        ("nonsense...", ErrorCode.INVALID_REQUEST),
        (":" * 30_000 + "x", ErrorCode.INVALID_REQUEST),
    ):
        entity = [entry.EntityData(entity_type="ip", entity_name=name)]
        ops = [entry.OpData(key="connection_creation_rate", value=5.0)]
        request = AlterClientQuotasRequest(entries=[entry(entity=entity, ops=ops)])
        assert (await client.ask(request)).entries[0].error_code == code, name[:20]
    request.entries = [entry(entity=[entry.EntityData(entity_type="user", entity_name="u")])]
    request.entries[0].ops = [entry.OpData(key="producer_byte_rate", value=5.0)] * 2
    assert (await client.ask(request)).entries[0].error_code == ErrorCode.INVALID_REQUEST


async def rejected_records_are_named(client: Client) -> None:
    part = await client.produce("compact", 0, batch_of(b"no key"))
    assert part.error_code == ErrorCode.INVALID_RECORD
    assert part.error_message is not None
    assert "1 record errors" in part.error_message
    shown = part.record_errors[0].batch_index_error_message
    assert shown is not None
    assert shown in part.error_message


async def topics_without_partitions_are_left_out(client: Client) -> None:
    request = produce_request("two", 0, b"")
    request.topic_data[0].partition_data = []
    assert (await client.ask(request, version=12)).responses == []


async def fetches_out_of_range_tell_no_positions(client: Client) -> None:
    part = await client.fetch("two", 0, 99)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (part.high_watermark, part.log_start_offset) == (-1, -1)
    assert part.aborted_transactions is None


async def ids_in_old_metadata_requests_are_refused(client: Client) -> None:
    topic = MetadataRequest.MetadataRequestTopic(name=None, topic_id=ID)
    answer = await client.ask(MetadataRequest(topics=[topic]), version=10)
    assert answer.topics[0].error_code == ErrorCode.INVALID_REQUEST
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ([], None, -1)


async def pages_end_before_unknown_topics(client: Client) -> None:
    names = [DescribeTopicPartitionsRequest.TopicRequest(name=n) for n in ("two", "unknown")]
    request = DescribeTopicPartitionsRequest(topics=names, response_partition_limit=2)
    answer = await client.ask(request)
    assert [topic.name for topic in answer.topics] == ["two"]
    assert answer.next_cursor.topic_name == "unknown"
    request.cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="u", partition_index=0)
    answer = await client.ask(request)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST] * 2


async def topics_named_twice_are_not_deleted(client: Client) -> None:
    state = DeleteTopicsRequest.DeleteTopicState
    topic_id = await client.create_topic("kept")
    for topics, text in (
        ([state(name="kept"), state(name="kept")], "Duplicate topic name."),
        ([state(name=None, topic_id=topic_id)] * 2, "Duplicate topic id."),
        ([state(name="kept"), state(name=None, topic_id=topic_id)], "already supplied"),
    ):
        answer = await client.ask(DeleteTopicsRequest(topics=topics, timeout_ms=5000))
        assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST]
        assert text in answer.responses[0].error_message
    answer = await client.ask(MetadataRequest(topics=None))
    assert "kept" in [topic.name for topic in answer.topics]


async def partitions_named_twice_are_answered_once(client: Client) -> None:
    asked = ListOffsetsRequest.ListOffsetsTopic
    parts = [asked.ListOffsetsPartition(timestamp=-1), asked.ListOffsetsPartition(timestamp=-2)]
    request = ListOffsetsRequest(topics=[asked(name="two", partitions=parts)])
    codes = [p.error_code for p in (await client.ask(request, version=9)).topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST]
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    twice = [topic.DeleteRecordsPartition(offset=0), topic.DeleteRecordsPartition(offset=99)]
    answer = await client.ask(DeleteRecordsRequest(topics=[topic(name="two", partitions=twice)]))
    codes = [p.error_code for p in answer.topics[0].partitions]
    assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE]


async def elections_of_an_unknown_kind_fail_for_each_partition(client: Client) -> None:
    parts = ElectLeadersRequest.TopicPartitions(topic="two", partitions=[0, 1])
    answer = await client.ask(ElectLeadersRequest(election_type=2, topic_partitions=[parts]))
    results = answer.replica_election_results[0].partition_result
    assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST] * 2
    answer = await client.ask(ElectLeadersRequest(election_type=2, topic_partitions=[]))
    assert answer.error_code == ErrorCode.NONE


async def unknown_feature_levels_are_refused(client: Client) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey
    lower = update(feature="group.version", max_version_level=0, allow_downgrade=True)
    request = UpdateFeaturesRequest(feature_updates=[lower], timeout_ms=5000)
    assert (await client.ask(request, version=0)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    unknown = update(feature="no.such", max_version_level=0, upgrade_type=2)
    request = UpdateFeaturesRequest(feature_updates=[unknown], validate_only=True)
    assert "Feature no.such not found." in (await client.ask(request)).error_message


async def the_metadata_topic_is_not_created(client: Client) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="__cluster_metadata", num_partitions=1)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert answer.topics[0].error_code == ErrorCode.INVALID_REQUEST


async def other_texts(client: Client) -> None:
    answer = await client.ask(DescribeClusterRequest(endpoint_type=2))
    assert (answer.error_code, answer.endpoint_type) == (ErrorCode.MISMATCHED_ENDPOINT_TYPE, 1)
    topic = DescribeProducersRequest.TopicRequest(name="", partition_indexes=[0])
    answer = await client.ask(DescribeProducersRequest(topics=[topic]))
    code = answer.topics[0].partitions[0].error_code
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    quorum = DescribeQuorumRequest.TopicData
    unknown = quorum(topic_name="two", partitions=[quorum.PartitionData()])
    answer = await client.ask(DescribeQuorumRequest(topics=[unknown]))
    assert "does not host" in answer.topics[0].partitions[0].error_message


async def values_are_judged_before_existence(client: Client) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    for kind, name, key, code in (
        (2, "no-topic", "no.such", ErrorCode.INVALID_CONFIG),
        (2, "no-topic", "retention.ms", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "", "retention.ms", ErrorCode.INVALID_REQUEST),
        (32, "", "retention.ms", ErrorCode.INVALID_REQUEST),
        (77, "a", "retention.ms", ErrorCode.INVALID_REQUEST),
    ):
        configs = [resource.AlterableConfig(name=key, value="5")]
        asked = resource(resource_type=kind, resource_name=name, configs=configs)
        answer = await client.ask(IncrementalAlterConfigsRequest(resources=[asked]))
        assert answer.responses[0].error_code == code, (kind, name, key)


CHECKS = [
    internal_topics_take_no_records,
    refused_batches_tell_the_log_start,
    transactions_need_their_coordinator,
    quotas_of_what_is_no_address_are_refused,
    rejected_records_are_named,
    topics_without_partitions_are_left_out,
    fetches_out_of_range_tell_no_positions,
    ids_in_old_metadata_requests_are_refused,
    pages_end_before_unknown_topics,
    topics_named_twice_are_not_deleted,
    partitions_named_twice_are_answered_once,
    elections_of_an_unknown_kind_fail_for_each_partition,
    unknown_feature_levels_are_refused,
    the_metadata_topic_is_not_created,
    other_texts,
    values_are_judged_before_existence,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_answer(tmp_path: Path, check: Any) -> None:
    async with (
        running(Home(tmp_path, directories=1).format()) as node,
        connected(node) as client,
    ):
        await client.create_topic("two", 2)
        await client.create_topic("compact", configs={"cleanup.policy": "compact"})
        await check(client)
