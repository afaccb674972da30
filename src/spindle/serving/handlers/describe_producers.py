"""DescribeProducers: the active producers of partitions led here (KIP-664)."""

from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed, error_code
from spindle.controller.topic_names import check_topic_name
from spindle.controller.topics import UNKNOWN_TOPIC_TEXT
from spindle.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.services import BrokerServices

Topic = DescribeProducersResponse.TopicResponse
Answer = Topic.PartitionResponse


def _no_such_topic(name: str) -> tuple[ErrorCode, str | None]:
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code, error.message
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_TEXT


async def describe_producers(
    services: BrokerServices, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition; refuse a partition that is named again."""
    response = DescribeProducersResponse()
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        result = Topic(name=topic.name)
        response.topics.append(result)
        for index in topic.partition_indexes:
            answer = Answer(partition_index=index)
            result.partitions.append(answer)
            if (topic.name, index) in seen:
                # A partition may have many producers, so it is described only once.
                answer.error_code = ErrorCode.INVALID_REQUEST
                continue
            seen.add((topic.name, index))
            partition = services.replicas.lookup(topic.name, index)
            if partition is None:
                answer.error_code = services.replicas.absent_error(
                    topic.name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                if topic.name not in services.metadata.image.topics.by_name:
                    answer.error_code, answer.error_message = _no_such_topic(topic.name)
                continue
            answer.error_code = services.replicas.leader_error(partition, -1)
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
