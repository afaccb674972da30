"""DescribeLogDirs and AlterReplicaLogDirs: replicas and their directories (KIP-113, KIP-1066)."""

from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ErrorCode, LogDirectoryFailed
from spindle.common.ids import TopicPartition
from spindle.disks.log_directory import LogDirectory
from spindle.log.log import Log
from spindle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from spindle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from spindle.protocol.sentinels import NO_LAG
from spindle.serving.context import RequestContext
from spindle.serving.permissions import may_use_cluster
from spindle.serving.services import BrokerServices

_MAX_DIRECTORY_NAME_BYTES: Final = 255
_FUTURE_SUFFIX_BYTES: Final = len(".") + 32 + len("-future")

Result = DescribeLogDirsResponse.DescribeLogDirsResult
TopicAnswer = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


async def describe_log_dirs(
    services: BrokerServices, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe every configured directory; an offline one has KAFKA_STORAGE_ERROR."""
    if not may_use_cluster(services, context, Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(t.topic, p) for t in request.topics for p in t.partitions}
    results = [
        await _describe(services, directory, wanted) for directory in services.replicas.directories
    ]
    return DescribeLogDirsResponse(results=results)


async def _describe(
    services: BrokerServices, directory: LogDirectory, wanted: set[TopicPartition] | None
) -> Result:
    offline = Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path)
    if directory.is_offline:
        return offline
    try:
        total_bytes, usable_bytes = await directory.executor.submit(directory.store.capacity)
    except LogDirectoryFailed:
        return offline
    result = Result(
        log_dir=directory.path,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=services.replicas.is_cordoned(directory),
    )
    topics: dict[str, Result.DescribeLogDirsTopic] = {}

    def add(where: TopicPartition, log: Log, offset_lag: int, *, is_future: bool) -> None:
        if wanted is not None and where not in wanted:
            return
        topic = topics.get(where.topic)
        if topic is None:
            topic = topics[where.topic] = Result.DescribeLogDirsTopic(name=where.topic)
            result.topics.append(topic)
        topic.partitions.append(
            Result.DescribeLogDirsTopic.DescribeLogDirsPartition(
                partition_index=where.partition,
                partition_size=log.size_bytes,
                offset_lag=offset_lag,
                is_future_key=is_future,
            )
        )

    for partition in services.replicas.in_directory(directory):
        log = partition.log
        lag = max(partition.high_watermark - log.log_end_offset, 0)
        add(partition.topic_partition, log, lag, is_future=False)
    for move in services.replicas.moves:
        if move.target is directory:
            add(move.partition.topic_partition, move.future, move.lag, is_future=True)
    for future in services.replicas.futures.in_directory(directory):
        add(future.topic_partition, future, NO_LAG, is_future=True)
    return result


async def alter_replica_log_dirs(
    services: BrokerServices, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Start moves of replicas to other directories; a replica not yet created is created there.

    The response does not wait for the moves: DescribeLogDirs shows their progress.
    """
    response = AlterReplicaLogDirsResponse()
    answers: dict[str, TopicAnswer] = {}
    is_denied = not may_use_cluster(services, context, Operation.ALTER)
    for wanted in request.dirs:
        for topic in wanted.topics:
            if topic.partitions and topic.name not in answers:
                answers[topic.name] = TopicAnswer(topic_name=topic.name)
                response.results.append(answers[topic.name])
            for index in topic.partitions:
                where = TopicPartition(topic.name, index)
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if not is_denied:
                    code = await _alter(services, wanted.path, where)
                answer = TopicAnswer.AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=code
                )
                answers[topic.name].partitions.append(answer)
    return response


async def _alter(services: BrokerServices, path: str, where: TopicPartition) -> ErrorCode:
    """Check in Kafka's order, then begin the move."""
    name_bytes = len(str(where).encode()) + _FUTURE_SUFFIX_BYTES
    if name_bytes > _MAX_DIRECTORY_NAME_BYTES:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    replicas = services.replicas
    target = replicas.directory_at(path)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if target.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if replicas.is_cordoned(target):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    partition = replicas.lookup(where.topic, where.partition)
    if partition is not None:
        return await services.move_replica(partition, target)
    replicas.remember_directory(where, target)
    topic = services.metadata.image.topics.by_name.get(where.topic)
    is_known = topic is not None and where.partition in topic.partitions
    return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
