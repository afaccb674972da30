"""A share group: members, target assignment, and the partitions with share state (KIP-932)."""

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import cast

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.coordinator.share.group_records import (
    ShareGroupRecord,
    ShareRecordKind,
    StatePartitions,
    partitions_of,
    removal_records,
    state_partitions_of,
)
from spindle.coordinator.share.member import Partitions, ShareMember
from spindle.protocol.messages.other_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)

_LEFT_EPOCH = -1
"""Epoch of a member whose assignment was deleted; the tombstone of the member follows."""


class ShareGroupState(Enum):
    """The states, by the names that ShareGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """One group. Its durable state changes only by `replay`.

    Attributes:
        epoch: rises with every change of subscriptions, topics or initialized partitions.
        topics_hash: the topics of this epoch.
        assignment_epoch: epoch of `targets`.
        assigned_ms: time at which `targets` was computed; 0 if that is not known.
        state_partitions: the partitions that can be assigned, and those that will be.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.topics_hash = 0
        self.assignment_epoch = 0
        self.assigned_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.state_partitions = StatePartitions()

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def member(self, member_id: str) -> ShareMember:
        """Return a member; raise ApiError UNKNOWN_MEMBER_ID if there is none."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Return True unless the target was computed less than an interval ago."""
        return not 0 <= now_ms - self.assigned_ms < interval_ms

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member subscribes to the topic."""
        return any(topic in member.topic_names for member in self.members.values())

    def initialized_partitions(self) -> list[TopicIdPartition]:
        """Return all partitions with share state."""
        return [
            TopicIdPartition(topic_id, index)
            for topic_id, topic in self.state_partitions.initialized.items()
            for index in sorted(topic.partitions)
        ]

    def deletion_records(self) -> Iterator[ShareGroupRecord]:
        """Yield the tombstones of the whole group: assignments before members, the group last."""
        for member_id in self.members:
            yield from removal_records(self.group_id, member_id)
        for kind in (
            ShareRecordKind.STATE_PARTITIONS,
            ShareRecordKind.TARGET_EPOCH,
            ShareRecordKind.GROUP,
        ):
            yield ShareGroupRecord(self.group_id, kind, "", None)

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply a committed record of this group, except the tombstone of the group itself."""
        value, member_id = record.value, record.item
        if record.kind is ShareRecordKind.GROUP:
            stored = cast(ShareGroupMetadataValue, value)
            self.epoch, self.topics_hash = stored.epoch, stored.metadata_hash
        elif record.kind is ShareRecordKind.MEMBER:
            self._replay_member(member_id, cast(ShareGroupMemberMetadataValue | None, value))
        elif record.kind is ShareRecordKind.CURRENT:
            self._replay_current(
                member_id, cast(ShareGroupCurrentMemberAssignmentValue | None, value)
            )
        elif record.kind is ShareRecordKind.TARGET:
            target = cast(ShareGroupTargetAssignmentMemberValue | None, value)
            if target is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = partitions_of(target.topic_partitions)
        elif record.kind is ShareRecordKind.TARGET_EPOCH:
            epoch = cast(ShareGroupTargetAssignmentMetadataValue | None, value)
            self.assignment_epoch = -1 if epoch is None else epoch.assignment_epoch
            self.assigned_ms = 0 if epoch is None else epoch.assignment_timestamp
        else:
            partitions = cast(ShareGroupStatePartitionMetadataValue | None, value)
            self.state_partitions = (
                StatePartitions() if partitions is None else state_partitions_of(partitions)
            )

    def _replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        member = self.members.get(member_id, ShareMember(member_id))
        self.members[member_id] = replace(
            member,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
        )

    def _replay_current(
        self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(member_id)
        if value is not None:
            # Compaction may have removed the record of the member, whose newer one comes later.
            self.members[member_id] = replace(
                member or ShareMember(member_id),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=partitions_of(value.assigned_partitions),
            )
        elif member is not None:
            self.members[member_id] = replace(
                member, epoch=_LEFT_EPOCH, previous_epoch=_LEFT_EPOCH, assigned={}
            )

    def check(self) -> None:
        """Assert the invariant: no member is ahead of its group."""
        assert all(member.epoch <= self.epoch for member in self.members.values()), self.members
