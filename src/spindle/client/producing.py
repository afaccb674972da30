"""Produce requests with complete record batches for one partition (KIP-516: topic ids)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spindle.client.errors import raise_for
from spindle.common.errors import ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.protocol import versions
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.sentinels import ACKS_ALL

_LAST_VERSION_BY_NAME: Final = versions.PRODUCE_TOPIC_IDS - 1


class Appended(NamedTuple):
    """The offsets of appended batches. `log_append_time_ms` is -1 under CreateTime."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


def produce_request(
    partition: TopicPartition,
    topic_id: Uuid,
    records: Bytes,
    *,
    acks: int = ACKS_ALL,
    timeout_ms: int,
) -> ProduceRequest:
    """Return a request that appends whole record batches to a partition."""
    data = ProduceRequest.TopicProduceData.PartitionProduceData(
        index=partition.partition, records=records
    )
    topic = ProduceRequest.TopicProduceData(
        topic_id=topic_id, name=partition.topic, partition_data=[data]
    )
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def produce_batches_request(
    batches: Mapping[TopicPartition, Bytes],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Return a request with one batch for each partition; topics are named, not by their ids."""
    topics: dict[str, ProduceRequest.TopicProduceData] = {}
    for (name, partition), data in batches.items():
        topic = topics.setdefault(name, ProduceRequest.TopicProduceData(name=name))
        topic.partition_data.append(topic.PartitionProduceData(index=partition, records=data))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def last_version(topic_id: Uuid) -> int | None:
    """Return the newest usable version of Produce; newer ones name the topic by its id only."""
    return _LAST_VERSION_BY_NAME if topic_id == ZERO_UUID else None


def appended(partition: TopicPartition, response: ProduceResponse) -> Appended:
    """Return the outcome for one partition.

    Raises:
        ApiError: the leader refused the batches.
        ProtocolViolation: the answer is not about one partition.
    """
    if len(response.responses) != 1 or len(response.responses[0].partition_responses) != 1:
        raise ProtocolViolation(f"produce to {partition}: the answer is not about one partition")
    partition_response = response.responses[0].partition_responses[0]
    raise_for(
        partition_response.error_code,
        f"produce to partition {partition}",
        partition_response.error_message,
    )
    return Appended(
        partition_response.base_offset,
        partition_response.log_append_time_ms,
        partition_response.log_start_offset,
    )
