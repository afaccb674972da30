"""From a metadata delta to the instructions for one broker.

Pure and total: a start is the delta from the empty image, and a fetched snapshot is a delta like
any other. Deletions come first, so that a topic that was deleted and created again in one delta
gets a new log.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Lead the partition, or continue to lead it with a changed ISR or directory.

    `is_elected` says that the leader epoch is new to this broker, `is_new` that it held no replica
    of the partition before.
    """

    topic_partition: TopicPartition
    topic_id: Uuid
    partition: PartitionRegistration
    is_elected: bool
    is_new: bool


@dataclass(frozen=True, slots=True)
class BecomeFollower:
    """Host a replica that is not the leader; `partition.leader` is -1 without a leader."""

    topic_partition: TopicPartition
    topic_id: Uuid
    partition: PartitionRegistration
    is_epoch_new: bool
    is_new: bool


@dataclass(frozen=True, slots=True)
class DeleteReplica:
    """The broker's replica is not needed any more: its topic is gone, or it was moved away."""

    topic_partition: TopicPartition
    topic_id: Uuid
    is_topic_deleted: bool


Instruction: TypeAlias = DeleteReplica | BecomeLeader | BecomeFollower


def local_changes(delta: MetadataDelta, broker_id: int) -> list[Instruction]:
    """Return instructions for one broker: deletions first, then in the order of the records."""
    deletions: list[Instruction] = []
    rest: list[Instruction] = []
    for topic_id, topic in delta.topics.deleted.items():
        if not topic.may_have_replica_on(broker_id):
            continue
        for partition_id, old in topic.partitions.items():
            if broker_id in old.replicas:
                where = TopicPartition(topic.name, partition_id)
                deletions.append(DeleteReplica(where, topic_id, is_topic_deleted=True))
    for topic_id, changed in delta.topics.changed.items():
        if not changed.may_concern(broker_id):
            continue
        for partition_id, before, now in changed.changed_partitions():
            where = TopicPartition(changed.name, partition_id)
            was_here = before is not None and broker_id in before.replicas
            if broker_id in now.replicas:
                rest.append(_hold(where, topic_id, broker_id, before if was_here else None, now))
            elif was_here:
                deletions.append(DeleteReplica(where, topic_id, is_topic_deleted=False))
    return deletions + rest


def hosted_replicas(
    image: MetadataImage, broker_id: int
) -> Iterator[tuple[TopicPartition, PartitionRegistration]]:
    """Yield the partitions of which the broker has a replica, in the order of the image."""
    for topic in image.topics.with_replicas_on(broker_id):
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                yield TopicPartition(topic.name, index), partition


def _hold(
    where: TopicPartition,
    topic_id: Uuid,
    broker_id: int,
    before: PartitionRegistration | None,
    now: PartitionRegistration,
) -> Instruction:
    is_new = before is None
    is_epoch_new = before is None or before.leader_epoch != now.leader_epoch
    if now.leader == broker_id:
        return BecomeLeader(where, topic_id, now, is_epoch_new, is_new)
    return BecomeFollower(where, topic_id, now, is_epoch_new, is_new)
