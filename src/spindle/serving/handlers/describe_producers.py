"""DescribeProducers: the active producers of the replicas here (KIP-664)."""

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed, error_code
from spindle.controller.topic_names import check_topic_name
from spindle.controller.topics import UNKNOWN_TOPIC_TEXT
from spindle.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.permissions import TOPIC_DENIED, may_use_topic
from spindle.serving.services import BrokerServices

Topic = DescribeProducersResponse.TopicResponse
Answer = Topic.PartitionResponse


def _topic_error(
    services: BrokerServices, context: RequestContext, name: str
) -> tuple[ErrorCode, str | None]:
    """Return the error of all partitions of a topic; NONE if they may be described."""
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code, error.message
    if not may_use_topic(services, context, Operation.READ, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED
    if name not in services.metadata.image.topics.by_name:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_TEXT
    return ErrorCode.NONE, None


async def describe_producers(
    services: BrokerServices, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition; refuse a partition that is named again.

    A follower answers as well, from its own log: clients may ask for one replica.
    """
    response = DescribeProducersResponse()
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        topic_response = Topic(name=topic.name)
        response.topics.append(topic_response)
        topic_code, topic_text = _topic_error(services, context, topic.name)
        for index in topic.partition_indexes:
            answer = Answer(partition_index=index)
            topic_response.partitions.append(answer)
            if (topic.name, index) in seen:
                # A partition may have many producers, so it is described only once.
                answer.error_code = ErrorCode.INVALID_REQUEST
                continue
            seen.add((topic.name, index))
            if topic_code:
                answer.error_code, answer.error_message = topic_code, topic_text
                continue
            partition = services.replicas.lookup(topic.name, index)
            if partition is None:
                answer.error_code = services.replicas.absent_error(
                    topic.name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                continue
            answer.error_code = services.replicas.local_leader_error(
                partition, -1, needs_leader=False
            )
            if answer.error_code:
                continue
            try:
                entries = await partition.directory.executor.submit(partition.log.active_producers)
            except (ApiError, LogDirectoryFailed) as error:
                answer.error_code = error_code(error)
                continue
            answer.active_producers = [
                Answer.ProducerState(
                    producer_id=entry.producer_id,
                    producer_epoch=entry.producer_epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp_ms,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=(
                        -1
                        if entry.current_transaction_first_offset is None
                        else entry.current_transaction_first_offset
                    ),
                )
                for entry in entries
            ]
    return response
