"""DescribeLogDirs and AlterReplicaLogDirs: replicas and their directories (KIP-113, KIP-1066)."""

from typing import Final

from spindle.common.errors import ErrorCode, LogDirectoryFailed
from spindle.common.ids import TopicPartition
from spindle.disks.log_directory import LogDirectory
from spindle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from spindle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.services import BrokerServices

_MAX_DIRECTORY_NAME_BYTES: Final = 255
_FUTURE_SUFFIX_BYTES: Final = len(".") + 32 + len("-future")

Result = DescribeLogDirsResponse.DescribeLogDirsResult


async def describe_log_dirs(
    services: BrokerServices, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe every configured directory; an offline one has KAFKA_STORAGE_ERROR."""
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
    for partition in services.replicas.in_directory(directory):
        where = partition.topic_partition
        if wanted is not None and where not in wanted:
            continue
        topic = topics.get(where.topic)
        if topic is None:
            topic = topics[where.topic] = Result.DescribeLogDirsTopic(name=where.topic)
            result.topics.append(topic)
        topic.partitions.append(
            Result.DescribeLogDirsTopic.DescribeLogDirsPartition(
                partition_index=where.partition,
                partition_size=partition.log.size_bytes,
                offset_lag=max(partition.high_watermark - partition.log.log_end_offset, 0),
            )
        )
    return result


async def alter_replica_log_dirs(
    services: BrokerServices, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Choose the directories of replicas; one that exists can only stay where it is so far."""
    response = AlterReplicaLogDirsResponse()
    answers: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            if topic.partitions and topic.name not in answers:
                answers[topic.name] = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                    topic_name=topic.name
                )
                response.results.append(answers[topic.name])
            for index in topic.partitions:
                answers[topic.name].partitions.append(
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult.AlterReplicaLogDirPartitionResult(
                        partition_index=index,
                        error_code=_alter(services, wanted.path, TopicPartition(topic.name, index)),
                    )
                )
    return response


def _alter(services: BrokerServices, path: str, where: TopicPartition) -> ErrorCode:
    """Return the code of one move, with checks in Kafka's order (the last: LIMITATIONS)."""
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
    if partition is not None and partition.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if partition is None:
        replicas.remember_directory(where, target)
        topic = services.metadata.image.topics.by_name.get(where.topic)
        is_known = topic is not None and where.partition in topic.partitions
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.directory is target:
        return ErrorCode.NONE
    return ErrorCode.UNSUPPORTED_VERSION
