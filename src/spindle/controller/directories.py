"""AssignReplicasToDirs: brokers report in which directory each of their replicas is (KIP-858)."""

from collections.abc import Iterator

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import NO_LEADER, TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.controller.broker_changes import BrokerChangeRecords
from spindle.controller.broker_heartbeat import check_broker_epoch
from spindle.controller.decision import Decision, OperationContext
from spindle.controller.partition_change_builder import PartitionChanges
from spindle.metadata.features import DIRECTORY_ASSIGNMENT_LEVEL
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.metadata.topics import TopicImage
from spindle.protocol.message import Message
from spindle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

_Directory = AssignReplicasToDirsResponse.DirectoryData
_Topic = _Directory.TopicData
_Partition = _Topic.PartitionData


def assign_replicas_to_dirs(
    given: OperationContext, request: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    """Record directories; a replica in a directory that is not online loses ISR and leadership.

    A partition without a leader may get one, because the replica can lead in its new directory.

    Raises:
        ApiError: UNSUPPORTED_VERSION, STALE_BROKER_EPOCH.
    """
    image = given.image
    if image.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    changes = BrokerChangeRecords(image, given.context.settings)
    assignments = PartitionChanges(image, given.context.settings)
    offline: list[TopicIdPartition] = []
    leaderless: list[TopicIdPartition] = []
    answers: list[_Directory] = []
    for directory in request.directories:
        is_online = broker.has_online_directory(directory.id)
        topics: list[_Topic] = []
        for asked in directory.topics:
            topic = image.topics.by_id.get(asked.topic_id)
            results: list[_Partition] = []
            for entry in asked.partitions:
                index = entry.partition_index
                error = _assign(
                    assignments, changes.records, topic, index, broker.broker_id, directory.id
                )
                if error is ErrorCode.NONE and topic is not None:
                    where = TopicIdPartition(topic.topic_id, index)
                    if not is_online:
                        offline.append(where)
                    elif topic.partitions[index].leader == NO_LEADER:
                        leaderless.append(where)
                results.append(_Partition(partition_index=index, error_code=error))
            topics.append(_Topic(topic_id=asked.topic_id, partitions=results))
        answers.append(_Directory(id=directory.id, topics=topics))
    if offline:
        changes.update(_registered(changes.settle(), offline), remove=broker.broker_id)
    if leaderless:
        changes.update(_registered(changes.settle(), leaderless))
    return Decision(AssignReplicasToDirsResponse(directories=answers), changes.records)


def _registered(
    image: MetadataImage, partitions: list[TopicIdPartition]
) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Yield the partitions with their registrations in the image."""
    for topic_id, index in partitions:
        topic = image.topics.by_id[topic_id]
        yield topic, index, topic.partitions[index]


def _assign(
    assignments: PartitionChanges,
    records: list[Message],
    topic: TopicImage | None,
    partition_id: int,
    broker_id: int,
    directory: Uuid,
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(partition_id)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    change = assignments.of(topic, partition_id, partition)
    change.new_directories = {broker_id: directory}
    record = change.build()
    if record is not None:
        records.append(record)
    return ErrorCode.NONE
