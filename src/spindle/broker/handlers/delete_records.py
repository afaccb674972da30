"""DeleteRecords: move the log start forward (KIP-107)."""

from typing import Final

from spindle.broker.context import RequestContext
from spindle.broker.partition import Partition, error_code
from spindle.broker.services import BrokerServices
from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed
from spindle.common.ids import INTERNAL_TOPICS
from spindle.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)

_HIGH_WATERMARK: Final = -1
_NO_LOW_WATERMARK: Final = -1

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Result = Topic.DeleteRecordsPartitionResult


async def delete_records(
    services: BrokerServices, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete what lies before each offset; -1 stands for the high watermark."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        answer = Topic(name=topic.name)
        response.topics.append(answer)
        # A partition that is named twice is answered once, for the offset that comes last.
        for asked in {p.partition_index: p for p in topic.partitions}.values():
            result = Result(partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK)
            answer.partitions.append(result)
            try:
                result.low_watermark = await _delete(
                    services, topic.name, asked.partition_index, asked.offset
                )
            except (ApiError, LogDirectoryFailed) as error:
                result.error_code = error_code(error)
    return response


async def _delete(services: BrokerServices, name: str, index: int, offset: int) -> int:
    if name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = services.replicas.lookup(name, index)
    if partition is None:
        raise ApiError(
            services.replicas.absent_error(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )
    code = services.replicas.leader_error(partition, -1)
    if code:
        raise ApiError(code)
    if not partition.log.config.deletes_old_segments:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    target = partition.high_watermark if offset == _HIGH_WATERMARK else offset
    if not 0 <= target <= partition.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return await partition.directory.executor.submit(_move_start, partition, target)


def _move_start(partition: Partition, offset: int) -> int:
    partition.log.increment_log_start_offset(offset)
    return partition.log.log_start_offset
