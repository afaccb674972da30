"""Produce of ready-made record batches to one partition (KIP-516: by topic id from version 13)."""

from typing import Final, NamedTuple

from spindle.client.errors import raise_for
from spindle.common.errors import ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.protocol.api import TOPIC_IDS_FROM, ApiKey
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse

ACKS_ALL: Final = -1
_LAST_VERSION_BY_NAME: Final = TOPIC_IDS_FROM[ApiKey.PRODUCE] - 1


class Appended(NamedTuple):
    """Where the broker put the batches. `log_append_time_ms` is -1 under CreateTime."""

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
    """Send whole record batches to the leader of a partition."""
    data = ProduceRequest.TopicProduceData.PartitionProduceData(
        index=partition.partition, records=records
    )
    topic = ProduceRequest.TopicProduceData(
        topic_id=topic_id, name=partition.topic, partition_data=[data]
    )
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def last_version(topic_id: Uuid) -> int | None:
    """The version bound of a produce request: newer versions name the topic by its id only."""
    return _LAST_VERSION_BY_NAME if topic_id == ZERO_UUID else None


def appended(partition: TopicPartition, response: ProduceResponse) -> Appended:
    """The outcome for one partition.

    Raises:
        ApiError: the leader refused the batches.
        ProtocolViolation: the answer is about something else.
    """
    if len(response.responses) != 1 or len(response.responses[0].partition_responses) != 1:
        raise ProtocolViolation(f"produce to {partition}: the answer is not about one partition")
    result = response.responses[0].partition_responses[0]
    raise_for(result.error_code, f"produce to partition {partition}", result.error_message)
    return Appended(result.base_offset, result.log_append_time_ms, result.log_start_offset)
