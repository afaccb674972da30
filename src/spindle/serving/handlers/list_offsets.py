"""ListOffsets and OffsetForLeaderEpoch: positions in a log by time and by epoch.

KIP-79, KIP-734 (max timestamp), KIP-405 (earliest local, latest tiered), KIP-320 (epochs).
"""

from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, CorruptLog, ErrorCode, LogDirectoryFailed, error_code
from spindle.log.log import Log
from spindle.log.segments.lookup import TimestampOffset, TimestampSearch
from spindle.protocol import versions
from spindle.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from spindle.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from spindle.protocol.sentinels import EARLIEST, LATEST, NO_NODE
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.serving.context import RequestContext
from spindle.serving.cooperative import cooperatively
from spindle.serving.permissions import may_use_cluster, may_use_topic
from spindle.serving.services import BrokerServices

MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_FIRST_VERSION_OF: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_DAMAGE: Final = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
)
_DEBUGGING_CONSUMER: Final = -2

Answer = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse
Asked = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition


async def list_offsets(
    services: BrokerServices, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Find the offset for each partition and timestamp; negative timestamps are special."""
    response = ListOffsetsResponse()
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        async for asked in cooperatively(topic.partitions):
            key = (topic.name, asked.partition_index)
            (repeated if key in seen else seen).add(key)
    async for topic in cooperatively(request.topics):
        answers = []
        refused: set[int] = set()
        is_denied = not may_use_topic(services, context, Operation.DESCRIBE, topic.name)
        async for asked in cooperatively(topic.partitions):
            if is_denied:
                answers.append(_denied(asked.partition_index))
                continue
            if asked.partition_index in refused:
                continue
            if (topic.name, asked.partition_index) in repeated:
                refused.add(asked.partition_index)
                answers.append(
                    Answer(
                        partition_index=asked.partition_index,
                        error_code=ErrorCode.INVALID_REQUEST,
                    )
                )
            else:
                answers.append(await _offset(services, context, request, topic.name, asked))
        response.topics.append(
            ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers)
        )
    return response


def _denied(partition_index: int) -> Answer:
    return Answer(partition_index=partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def _offset(
    services: BrokerServices,
    context: RequestContext,
    request: ListOffsetsRequest,
    name: str,
    asked: Asked,
) -> Answer:
    answer = Answer(partition_index=asked.partition_index)
    first_version = _FIRST_VERSION_OF.get(asked.timestamp, 0)
    if asked.timestamp < EARLIEST_PENDING_UPLOAD or context.api_version < first_version:
        answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer
    partition = services.replicas.lookup(name, asked.partition_index)
    if partition is None:
        answer.error_code = services.replicas.absent_error(
            name, asked.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        return answer
    answer.error_code = services.replicas.local_leader_error(
        partition,
        asked.current_leader_epoch,
        needs_leader=request.replica_id != _DEBUGGING_CONSUMER,
    )
    if answer.error_code:
        return answer
    limit = _limit(partition, request)
    if asked.timestamp == LATEST:
        if _is_too_early(partition, request):
            answer.error_code = _not_available(context)
        else:
            answer.offset, answer.leader_epoch = limit, partition.leader_epoch
        return answer
    if asked.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return answer  # nothing is tiered: no offset
    try:
        if asked.timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = await partition.directory.executor.submit(_start_of, partition.log)
            answer.timestamp, answer.offset, answer.leader_epoch = start
            return answer
        offset = await search_timestamp(services.replicas, partition, asked.timestamp)
    except (ApiError, CorruptLog, LogDirectoryFailed) as error:
        answer.error_code = error_code(error)
        if answer.error_code in _DAMAGE:
            text = error.message if isinstance(error, ApiError) else str(error)
            damage = ApiError(ErrorCode(answer.error_code), text)
            services.refusals.report_damage(partition.topic_partition, damage)
            if isinstance(error, CorruptLog):
                services.replicas.damages.note(partition.log, error)
        return answer
    if offset is not None and offset.offset < limit:
        answer.timestamp, answer.offset, answer.leader_epoch = offset
    elif _is_too_early(partition, request):
        answer.error_code = _not_available(context)
    return answer


def _is_too_early(partition: Partition, request: ListOffsetsRequest) -> bool:
    """Return True if the previous leader may have returned a higher high watermark."""
    leader = partition.leader
    return request.replica_id == NO_NODE and leader is not None and leader.is_new


def _not_available(context: RequestContext) -> ErrorCode:
    if context.api_version >= versions.LIST_OFFSETS_OFFSET_NOT_AVAILABLE:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE


def _limit(partition: Partition, request: ListOffsetsRequest) -> int:
    """Return the end of the part of the log that the client may read (exclusive)."""
    if request.replica_id != NO_NODE:
        return partition.log.log_end_offset
    return partition.last_stable_offset if request.isolation_level else partition.high_watermark


def _start_of(log: Log) -> TimestampOffset:
    """Return the log start, which has no timestamp, on the directory's thread."""
    epoch = log.epochs.epoch_at(log.log_start_offset)
    return TimestampOffset(-1, log.log_start_offset, -1 if epoch is None else epoch)


async def search_timestamp(
    replicas: ReplicaManager, partition: Partition, timestamp: int
) -> TimestampOffset | None:
    """Find a record by its timestamp, or the one with the largest timestamp; None if there is none.

    Headers are read on the directory's thread, a limited number at a time. Larger batches are
    decoded outside that thread.

    Raises:
        ApiError: the records cannot be decoded; see `TimestampSearch`.
        CorruptLog: the bytes of a segment are not batches.
        LogDirectoryFailed: the directory is offline.
    """
    search = TimestampSearch(None if timestamp == MAX_TIMESTAMP else timestamp)
    while not search.is_over:
        if search.must_decode:
            await replicas.decoding.run(partition.topic_partition.topic, search.decode)
        else:
            await partition.directory.executor.submit(partition.log.advance_search, search)
    return search.result


async def offset_for_leader_epoch(
    services: BrokerServices, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return where leader epochs end, for clients that look for truncation (KIP-320)."""
    response = OffsetForLeaderEpochResponse()
    # Followers may ask for any topic, consumers for those that they may describe.
    is_follower = may_use_cluster(services, context, Operation.CLUSTER_ACTION, is_logged=False)
    async for topic in cooperatively(request.topics):
        topic_response = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(topic_response)
        is_denied = not is_follower and not may_use_topic(
            services, context, Operation.DESCRIBE, topic.topic
        )
        async for asked in cooperatively(topic.partitions):
            answer = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset(
                partition=asked.partition
            )
            topic_response.partitions.append(answer)
            if is_denied:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            partition = services.replicas.lookup(topic.topic, asked.partition)
            if partition is None:
                answer.error_code = services.replicas.absent_error(
                    topic.topic, asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                continue
            answer.error_code = services.replicas.local_leader_error(
                partition, asked.current_leader_epoch
            )
            if answer.error_code == ErrorCode.NONE:
                end = partition.log.end_offset_for_epoch(asked.leader_epoch)
                answer.leader_epoch, answer.end_offset = end.epoch, end.offset
    return response
