"""Records of share groups in `__consumer_offsets` (KIP-932).

Kafka's key types: 10 member, 11 group epoch, 12 epoch of the target assignment, 13 target of a
member, 14 present assignment of a member, 15 partitions whose share state is initialized. Values
have version 0.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from spindle.common.uuids import Uuid
from spindle.coordinator.share.member import Partitions, ShareMember
from spindle.protocol.message import Message
from spindle.protocol.messages.other_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)

_StateTopic = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo
_STABLE: Final = 0
"""The state of a member in its record; share groups have no other."""


class ShareRecordKind(IntEnum):
    """The subject of a share group's record, by the type in its key."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATE_PARTITIONS = 15


SHARE_VALUE_CLASSES: Final[Mapping[ShareRecordKind, type[Message]]] = {
    ShareRecordKind.MEMBER: ShareGroupMemberMetadataValue,
    ShareRecordKind.GROUP: ShareGroupMetadataValue,
    ShareRecordKind.TARGET_EPOCH: ShareGroupTargetAssignmentMetadataValue,
    ShareRecordKind.TARGET: ShareGroupTargetAssignmentMemberValue,
    ShareRecordKind.CURRENT: ShareGroupCurrentMemberAssignmentValue,
    ShareRecordKind.STATE_PARTITIONS: ShareGroupStatePartitionMetadataValue,
}

SHARE_KINDS_WITH_ITEM: Final = (
    ShareRecordKind.MEMBER,
    ShareRecordKind.TARGET,
    ShareRecordKind.CURRENT,
)
"""Kinds whose key names a member after the group."""


class ShareGroupRecord(NamedTuple):
    """A record of a share group; `item` is a member id or empty. None is a tombstone."""

    group_id: str
    kind: ShareRecordKind
    item: str
    value: Message | None


class StateTopic(NamedTuple):
    """A topic with partitions whose share state exists or is being created."""

    name: str
    partitions: frozenset[int]


class StatePartitions(NamedTuple):
    """The partitions with share state of a group, by topic id.

    Attributes:
        initializing: their states are being created.
        initialized: they can be assigned.
        deleting: their states are being deleted; the value is the topic's name.
    """

    initializing: Mapping[Uuid, StateTopic] = {}
    initialized: Mapping[Uuid, StateTopic] = {}
    deleting: Mapping[Uuid, str] = {}


def epoch_record(group_id: str, epoch: int, topics_hash: int) -> ShareGroupRecord:
    """Return the record of the group's epoch and of the topics that it stands for."""
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash)
    return ShareGroupRecord(group_id, ShareRecordKind.GROUP, "", value)


def member_record(group_id: str, member: ShareMember) -> ShareGroupRecord:
    """Return the record of the member's subscription."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return ShareGroupRecord(group_id, ShareRecordKind.MEMBER, member.member_id, value)


def current_record(group_id: str, member: ShareMember) -> ShareGroupRecord:
    """Return the record of the member's epoch and partitions."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=[
            ShareGroupCurrentMemberAssignmentValue.TopicPartitions(
                topic_id=topic_id, partitions=sorted(partitions)
            )
            for topic_id, partitions in member.assigned.items()
        ],
    )
    return ShareGroupRecord(group_id, ShareRecordKind.CURRENT, member.member_id, value)


def target_record(group_id: str, member_id: str, target: Partitions) -> ShareGroupRecord:
    """Return the record of a member's part of the target assignment."""
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ShareGroupTargetAssignmentMemberValue.TopicPartition(
                topic_id=topic_id, partitions=sorted(partitions)
            )
            for topic_id, partitions in target.items()
        ]
    )
    return ShareGroupRecord(group_id, ShareRecordKind.TARGET, member_id, value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> ShareGroupRecord:
    """Return the record that completes a target assignment."""
    value = ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return ShareGroupRecord(group_id, ShareRecordKind.TARGET_EPOCH, "", value)


def state_partitions_record(group_id: str, partitions: StatePartitions) -> ShareGroupRecord:
    """Return the record of the partitions with share state."""
    value = ShareGroupStatePartitionMetadataValue(
        initializing_topics=_state_topics(partitions.initializing),
        initialized_topics=_state_topics(partitions.initialized),
        deleting_topics=[
            ShareGroupStatePartitionMetadataValue.TopicInfo(topic_id=topic_id, topic_name=name)
            for topic_id, name in partitions.deleting.items()
        ],
    )
    return ShareGroupRecord(group_id, ShareRecordKind.STATE_PARTITIONS, "", value)


def removal_records(group_id: str, member_id: str) -> list[ShareGroupRecord]:
    """Return the tombstones of a member; its assignment goes before the member itself."""
    return [
        ShareGroupRecord(group_id, kind, member_id, None)
        for kind in (ShareRecordKind.CURRENT, ShareRecordKind.TARGET, ShareRecordKind.MEMBER)
    ]


def state_partitions_of(value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    """Return the partitions with share state from their record."""
    return StatePartitions(
        _topics_of(value.initializing_topics),
        _topics_of(value.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )


def partitions_of(
    topics: list[ShareGroupTargetAssignmentMemberValue.TopicPartition]
    | list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions],
) -> dict[Uuid, frozenset[int]]:
    """Return the partitions of an assignment from its record."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def _state_topics(topics: Mapping[Uuid, StateTopic]) -> list[_StateTopic]:
    return [
        _StateTopic(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
        for topic_id, (name, partitions) in topics.items()
    ]


def _topics_of(topics: Iterable[_StateTopic]) -> dict[Uuid, StateTopic]:
    return {
        topic.topic_id: StateTopic(topic.topic_name, frozenset(topic.partitions))
        for topic in topics
    }
