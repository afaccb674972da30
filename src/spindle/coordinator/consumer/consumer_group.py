"""The durable state of one consumer group, as its committed records describe it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import cast

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.member import ConsumerMember, Partitions
from spindle.coordinator.consumer.records import (
    ConsumerGroupRecord,
    RecordKind,
    removal_records,
    target_of,
    tombstone,
    with_assignment,
    with_subscription,
)
from spindle.protocol import versions
from spindle.protocol.messages.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

NO_EPOCH = -1
"""Epoch or generation in the requests of clients that are not members."""
LEFT_EPOCH = -1
"""Epoch of a member whose assignment was deleted; the tombstone of the member follows."""


class ConsumerGroupState(Enum):
    """The states, by the names that ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """One group. Its durable state changes only by `replay`.

    Attributes:
        epoch: rises with every change of members' subscriptions or of their topics.
        topics_hash: the topics of this epoch; it differs when one is created, deleted or grown.
        assignment_epoch: epoch of `targets`; lower than `epoch` while a target is missing.
        assigned_ms: time at which `targets` was computed; 0 if that is not known.
        regexes: topics that match each regular expression of a member.
        topics_seen, regexes_checked_ms: soft state: the metadata for which the topics were last
            compared, and the time at which the regular expressions were.
        rejoin_deadlines_ms: soft state: until when a classic member has to join again.
        stepping: soft state: members whose next step is being appended.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.topics_hash = 0
        self.assignment_epoch = 0
        self.assigned_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        self.topics_seen: object = None
        self.regexes_checked_ms: int | None = None
        self.rejoin_deadlines_ms: dict[str, int] = {}
        self.stepping: dict[str, None] = {}
        self._owners: dict[TopicIdPartition, str] = {}

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Return True if the assignment interval has passed since the target was computed.

        A time in the future does not count: another broker's clock is ahead, or this one was set
        back.
        """
        return not 0 <= now_ms - self.assigned_ms < interval_ms

    def is_assignment_due(self, interval_ms: int, now_ms: int) -> bool:
        """Return True if the group is in a newer epoch than its target, and may get one now."""
        return self.epoch > self.assignment_epoch and self.may_assign(interval_ms, now_ms)

    def is_free(self, topic_id: Uuid, partition: int) -> bool:
        """Return True if no member owns the partition; one that has to give it up still owns it."""
        return (topic_id, partition) not in self._owners

    def member(self, member_id: str, instance_id: str | None = None) -> ConsumerMember:
        """Return a member by its id, or by its instance id, whose member id must be this one.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance
                id.
        """
        if instance_id is not None:
            return self._instance(instance_id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def _instance(self, instance_id: str, member_id: str) -> ConsumerMember:
        member = self.static_member(instance_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with this instance id, also if it is away."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member subscribes to the topic by name or by regular expression."""
        return any(topic in self.topics_of(member) for member in self.members.values())

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to, existing or not."""
        if not member.topic_regex:
            return member.topic_names
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def supports_classic(self, protocols: Iterable[str]) -> bool:
        """Return True if all classic members speak one of these protocols."""
        spoken = [
            {name for name, _ in member.classic.protocols}
            for member in self.members.values()
            if member.classic is not None
        ]
        return any(all(name in names for names in spoken) for name in protocols)

    def waits_for_partitions(self, member: ConsumerMember) -> bool:
        """Return True if another member still owns a partition of the member's target."""
        return any(
            partition not in member.assigned.get(topic_id, {})
            and not self.is_free(topic_id, partition)
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def preferred_assignor(self, members: Iterable[ConsumerMember], default: str) -> str:
        """Return the assignor that most of the members ask for."""
        votes: dict[str, int] = {}
        for member in members:
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return max(votes, key=votes.__getitem__, default=default)

    # ------------------------------------------------------------ offsets

    def check_offset_commit(
        self,
        member_id: str,
        member_epoch: int,
        api_version: int,
        partitions: Iterable[TopicIdPartition],
    ) -> None:
        """Raise ApiError unless the caller may commit offsets of these partitions now.

        A commit with an older epoch is accepted if the member has owned all its partitions since
        that epoch (KIP-1251).
        """
        if member_epoch < 0 and not self.members:
            return
        member = self.member(member_id)
        if member.classic is None and api_version < versions.OFFSET_COMMIT_MEMBER_EPOCH:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {versions.OFFSET_COMMIT_MEMBER_EPOCH} or above must be used "
                "by members using the modern group protocol",
            )
        _check_epoch(member, member_epoch, partitions)

    def check_transactional_commit(
        self,
        member_id: str,
        instance_id: str | None,
        member_epoch: int,
        partitions: Iterable[TopicIdPartition],
    ) -> None:
        """Raise ApiError unless the caller may add offsets of these partitions to a transaction.

        Old clients name no member and are always allowed to (KIP-447).
        """
        if member_epoch < 0 and not self.members:
            return
        if member_epoch == NO_EPOCH and not member_id and instance_id is None:
            return
        _check_epoch(self.member(member_id), member_epoch, partitions)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise ApiError unless the caller may fetch offsets; without a member id it may."""
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(member_epoch, member)

    # ------------------------------------------------------------ records

    def deletion_records(self) -> Iterator[ConsumerGroupRecord]:
        """Yield the tombstones of the whole group: assignments before members, the group last."""
        group_id = self.group_id
        for member_id in self.members:
            yield from removal_records(group_id, member_id)
        for regex in self.regexes:
            yield tombstone(group_id, RecordKind.REGEX, regex)
        yield tombstone(group_id, RecordKind.TARGET_EPOCH)
        yield tombstone(group_id, RecordKind.TOPIC_METADATA)
        yield tombstone(group_id, RecordKind.GROUP)

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply a committed record of this group, except the tombstone of the group itself."""
        value, key = record.value, record.item
        if record.kind is RecordKind.GROUP:
            stored = cast(ConsumerGroupMetadataValue, value)
            self.epoch, self.topics_hash = stored.epoch, stored.metadata_hash
        elif record.kind is RecordKind.MEMBER:
            self._replay_member(key, cast(ConsumerGroupMemberMetadataValue | None, value))
        elif record.kind is RecordKind.CURRENT:
            self._replay_current(key, cast(ConsumerGroupCurrentMemberAssignmentValue | None, value))
        elif record.kind is RecordKind.TARGET:
            target = cast(ConsumerGroupTargetAssignmentMemberValue | None, value)
            if target is None:
                self.targets.pop(key, None)
            else:
                self.targets[key] = target_of(target)
        elif record.kind is RecordKind.TARGET_EPOCH:
            epoch = cast(ConsumerGroupTargetAssignmentMetadataValue | None, value)
            self.assignment_epoch = -1 if epoch is None else epoch.assignment_epoch
            self.assigned_ms = 0 if epoch is None else epoch.assignment_timestamp
        elif record.kind is RecordKind.REGEX:
            topics = cast(ConsumerGroupRegularExpressionValue | None, value)
            if topics is None:
                self.regexes.pop(key, None)
            else:
                self.regexes[key] = frozenset(topics.topics)

    def _replay_member(
        self, member_id: str, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            self._put(member_id, None)
        else:
            member = self.members.get(member_id, ConsumerMember(member_id))
            self._put(member_id, with_subscription(member, value))

    def _replay_current(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        self.stepping.pop(member_id, None)
        member = self.members.get(member_id)
        if value is not None:
            # Compaction may have removed the record of the member, whose newer one comes later.
            member = member or ConsumerMember(member_id)
            self._put(member_id, with_assignment(member, value))
        elif member is not None:
            self._put(
                member_id,
                replace(
                    member, epoch=LEFT_EPOCH, previous_epoch=LEFT_EPOCH, assigned={}, revoking={}
                ),
            )

    def _put(self, member_id: str, member: ConsumerMember | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            for name in _owned_by(old):
                if self._owners.get(name) == member_id:
                    del self._owners[name]
            if (
                old.instance_id is not None
                and self.static_members.get(old.instance_id) == member_id
            ):
                del self.static_members[old.instance_id]
            if member is None:
                self.rejoin_deadlines_ms.pop(member_id, None)
        if member is not None:
            self.members[member_id] = member
            for name in _owned_by(member):
                self._owners[name] = member_id
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member_id

    def check(self) -> None:
        """Assert the invariants: no partition has two owners, and no owner is missing."""
        owned = [name for member in self.members.values() for name in _owned_by(member)]
        assert len(owned) == len(set(owned)), f"{self.group_id}: a partition has two owners"
        assert set(owned) == set(self._owners)
        for instance_id, member_id in self.static_members.items():
            assert self.members[member_id].instance_id == instance_id
        targets = [
            (topic_id, partition)
            for target in self.targets.values()
            for topic_id, partitions in target.items()
            for partition in partitions
        ]
        assert len(targets) == len(set(targets)), f"{self.group_id}: two members have one target"


def _owned_by(member: ConsumerMember) -> Iterator[TopicIdPartition]:
    for owned in (member.assigned, member.revoking):
        for topic_id, epochs in owned.items():
            for partition in epochs:
                yield TopicIdPartition(topic_id, partition)


def _check_epoch(
    member: ConsumerMember, member_epoch: int, partitions: Iterable[TopicIdPartition]
) -> None:
    """Raise ApiError unless the member has owned the partitions since the epoch."""
    if member_epoch == member.epoch:
        return
    if member_epoch < member.epoch:
        since = [member.epoch_of(topic_id, index) for topic_id, index in partitions]
        if all(epoch is not None and epoch <= member_epoch for epoch in since):
            return
    raise _stale(member_epoch, member)


def _stale(received: int, member: ConsumerMember) -> ApiError:
    return ApiError(
        ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION,
        f"The received member epoch {received} does not match the expected member epoch "
        f"{member.epoch}.",
    )
