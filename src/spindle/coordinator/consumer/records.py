"""Records of consumer groups in `__consumer_offsets`: values to members and groups, and back.

Kafka's key types: 3 group epoch, 4 topic metadata (no longer written), 5 member, 6 epoch of the
target assignment, 7 target of a member, 8 present assignment of a member, 16 topics of a regular
expression. Values have version 0, as in Apache Kafka 4.4.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Final, NamedTuple

from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.member import (
    ClassicSettings,
    ConsumerMember,
    MemberState,
    Owned,
    Partitions,
)
from spindle.protocol.message import Message
from spindle.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

_ClassicValue = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata


class RecordKind(IntEnum):
    """The subject of a consumer group's record, by the type in its key."""

    GROUP = 3
    TOPIC_METADATA = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


VALUE_CLASSES: Final[Mapping[RecordKind, type[Message]]] = {
    RecordKind.GROUP: ConsumerGroupMetadataValue,
    RecordKind.MEMBER: ConsumerGroupMemberMetadataValue,
    RecordKind.TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataValue,
    RecordKind.TARGET: ConsumerGroupTargetAssignmentMemberValue,
    RecordKind.CURRENT: ConsumerGroupCurrentMemberAssignmentValue,
    RecordKind.REGEX: ConsumerGroupRegularExpressionValue,
}
"""A topic metadata record is read by its key alone: a group of an older Kafka may have one."""

KINDS_WITH_ITEM: Final = (
    RecordKind.MEMBER,
    RecordKind.TARGET,
    RecordKind.CURRENT,
    RecordKind.REGEX,
)
"""Kinds whose key names a member or a regular expression after the group."""


class ConsumerGroupRecord(NamedTuple):
    """A record of a consumer group. `item` is a member id, a regular expression or empty.

    A value of None is a tombstone; `TOPIC_METADATA` is only ever written as one.
    """

    group_id: str
    kind: RecordKind
    item: str
    value: Message | None


def epoch_record(group_id: str, epoch: int, topics_hash: int) -> ConsumerGroupRecord:
    """Return the record of the group's epoch and of the topics that it stands for."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash)
    return ConsumerGroupRecord(group_id, RecordKind.GROUP, "", value)


def member_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    """Return the record of the member's subscription and settings."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        # Kafka takes a member whose record lacks this field for one of the classic protocol.
        classic_member_metadata=None if member.classic is None else _classic_value(member.classic),
    )
    return ConsumerGroupRecord(group_id, RecordKind.MEMBER, member.member_id, value)


def current_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    """Return the record of the member's epoch, state and partitions."""
    parts = ConsumerGroupCurrentMemberAssignmentValue
    value = parts(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=[
            parts.TopicPartitions(
                topic_id=topic_id,
                partitions=list(epochs),
                assignment_epochs=list(epochs.values()),
            )
            for topic_id, epochs in member.assigned.items()
        ],
        partitions_pending_revocation=[
            parts.RevokedPartitions(
                topic_id=topic_id,
                partitions=list(epochs),
                assignment_epochs=list(epochs.values()),
            )
            for topic_id, epochs in member.revoking.items()
        ],
    )
    return ConsumerGroupRecord(group_id, RecordKind.CURRENT, member.member_id, value)


def target_record(group_id: str, member_id: str, target: Partitions) -> ConsumerGroupRecord:
    """Return the record of a member's part of the target assignment."""
    parts = ConsumerGroupTargetAssignmentMemberValue
    value = parts(
        topic_partitions=[
            parts.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    return ConsumerGroupRecord(group_id, RecordKind.TARGET, member_id, value)


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> ConsumerGroupRecord:
    """Return the record that completes a target assignment."""
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=now_ms
    )
    return ConsumerGroupRecord(group_id, RecordKind.TARGET_EPOCH, "", value)


def regex_record(
    group_id: str, regex: str, topics: frozenset[str], version: int, now_ms: int
) -> ConsumerGroupRecord:
    """Return the record of the topics that match a regular expression.

    Args:
        version: offset of the metadata that the expression was compared with.
    """
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(topics), version=version, timestamp=now_ms
    )
    return ConsumerGroupRecord(group_id, RecordKind.REGEX, regex, value)


def tombstone(group_id: str, kind: RecordKind, item: str = "") -> ConsumerGroupRecord:
    """Return the record that deletes an earlier one."""
    return ConsumerGroupRecord(group_id, kind, item, None)


def removal_records(group_id: str, member_id: str) -> list[ConsumerGroupRecord]:
    """Return the tombstones of a member; its assignment goes before the member itself."""
    return [
        tombstone(group_id, kind, member_id)
        for kind in (RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER)
    ]


def with_subscription(
    member: ConsumerMember, value: ConsumerGroupMemberMetadataValue
) -> ConsumerMember:
    """Return the member with the settings in a record."""
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if value.classic_member_metadata is None
        else _classic_settings(value.classic_member_metadata),
    )


def with_assignment(
    member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> ConsumerMember:
    """Return the member with the epoch, state and partitions in a record."""
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
    )


def _classic_value(classic: ClassicSettings) -> _ClassicValue:
    return _ClassicValue(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            _ClassicValue.ClassicProtocol(name=name, metadata=metadata)
            for name, metadata in classic.protocols
        ],
    )


def _classic_settings(value: _ClassicValue) -> ClassicSettings:
    return ClassicSettings(
        value.session_timeout_ms,
        tuple(
            [(protocol.name, bytes(protocol.metadata)) for protocol in value.supported_protocols]
        ),
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> dict[Uuid, frozenset[int]]:
    """Return a member's part of the target assignment from its record."""
    return {
        topic.topic_id: frozenset(topic.partitions)
        for topic in value.topic_partitions
        if topic.partitions
    }


def _owned(
    topics: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    | list[ConsumerGroupCurrentMemberAssignmentValue.RevokedPartitions],
    member_epoch: int,
) -> Owned:
    """Return partitions with their epochs; releases before 4.3 stored none."""
    return {
        topic.topic_id: dict(
            zip(
                topic.partitions,
                topic.assignment_epochs or [member_epoch] * len(topic.partitions),
                strict=False,
            )
        )
        for topic in topics
        if topic.partitions
    }
