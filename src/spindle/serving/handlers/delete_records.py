"""DeleteRecords: move the log start forward, on every replica that is alive (KIP-107)."""

from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed, error_code
from spindle.common.ids import INTERNAL_TOPICS
from spindle.log.log import Log
from spindle.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from spindle.protocol.sentinels import HIGH_WATERMARK, NO_OFFSET
from spindle.replicas.partition import LowWatermarkReached, Partition
from spindle.serving.context import RequestContext
from spindle.serving.permissions import may_use_topic
from spindle.serving.services import BrokerServices

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Result = Topic.DeleteRecordsPartitionResult


class _Deletion(NamedTuple):
    """A deletion that is complete on the leader but not confirmed by all followers."""

    partition: Partition
    offset: int
    result: Result


async def delete_records(
    services: BrokerServices, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete the records before each offset; -1 stands for the high watermark.

    Answer when no live replica has them, or after `timeout_ms`.
    """
    response = DeleteRecordsResponse()
    waiting: list[_Deletion] = []
    for topic in request.topics:
        answer = Topic(name=topic.name)
        response.topics.append(answer)
        is_denied = not may_use_topic(services, context, Operation.DELETE, topic.name)
        # A partition that is named twice is answered once, for the last offset.
        for asked in {p.partition_index: p for p in topic.partitions}.values():
            result = Result(partition_index=asked.partition_index, low_watermark=NO_OFFSET)
            answer.partitions.append(result)
            if is_denied:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            try:
                deletion = await _delete(services, topic.name, asked.offset, result)
            except (ApiError, LogDirectoryFailed) as error:
                result.error_code = error_code(error)
                continue
            if result.low_watermark < deletion.offset:
                waiting.append(deletion)
    if waiting:
        await _wait_for_followers(services, waiting, request.timeout_ms)
    return response


async def _delete(services: BrokerServices, name: str, offset: int, result: Result) -> _Deletion:
    index = result.partition_index
    if name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = services.replicas.lookup(name, index)
    if partition is None:
        raise ApiError(
            services.replicas.absent_error(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )
    code = services.replicas.local_leader_error(partition, -1)
    if code:
        raise ApiError(code)
    if not partition.log.config.deletes_old_segments:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= partition.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    await _move_start(services, partition, target)
    partition.log_start_moved()
    result.low_watermark = partition.low_watermark
    return _Deletion(partition, target, result)


def _move_start(services: BrokerServices, partition: Partition, offset: int) -> Awaitable[None]:
    moved = services.loop.create_future()
    promise: Awaitable[None] = moved

    def change(log: Log) -> None:
        # The high watermark that the directory's thread knows may be a moment old.
        log.update_high_watermark(max(log.high_watermark, offset))
        log.increment_log_start_offset(offset)

    def changed(_: None, error: BaseException | None) -> None:
        if moved.done():
            return
        if error is None:
            moved.set_result(None)
        else:
            moved.set_exception(error)

    partition.change_log(change, changed)
    return promise


async def _wait_for_followers(
    services: BrokerServices, waiting: Sequence[_Deletion], timeout_ms: int
) -> None:
    promise = services.loop.create_future()
    left = len(waiting)

    def waiter(result: Result) -> LowWatermarkReached:
        def reached(low_watermark: int, error: BaseException | None) -> None:
            nonlocal left
            result.error_code = ErrorCode.NONE if error is None else error_code(error)
            result.low_watermark = low_watermark
            left -= 1
            if not left and not promise.done():
                promise.set_result(None)

        return reached

    def expire() -> None:
        if not promise.done():
            promise.set_result(None)

    waiters = [(deletion.partition, waiter(deletion.result)) for deletion in waiting]
    timer = services.loop.call_later(max(timeout_ms, 0) / 1000, expire)
    for deletion, (partition, reached) in zip(waiting, waiters, strict=True):
        deletion.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        partition.when_deleted(deletion.offset, reached)
    try:
        await promise
    finally:
        timer.cancel()
        for partition, reached in waiters:
            partition.forget_deletion(reached)
