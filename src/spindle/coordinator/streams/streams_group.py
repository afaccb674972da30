"""A streams group: members, topology, target assignment (KIP-1071)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any, Final, cast

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.streams.member import (
    LEAVING_EPOCH,
    NO_TASKS,
    StreamsMember,
    TaskId,
    TaskSet,
)
from spindle.coordinator.streams.records import (
    GroupEpoch,
    StreamsGroupRecord,
    StreamsRecordKind,
    current_fields,
    group_epoch_of,
    member_fields,
    removal_records,
    target_of,
)
from spindle.coordinator.streams.topology import input_topics
from spindle.protocol import versions
from spindle.protocol.messages.other_group_records import (
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)

FIRST_EPOCH: Final = 1
"""The epoch of members of a new group before its first assignment."""


class StreamsGroupState(Enum):
    """The states, by the names that StreamsGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"

    @property
    def filter_name(self) -> str:
        """The name in the filter of ListGroups, in lower case."""
        return "not_ready" if self is StreamsGroupState.NOT_READY else self.value.lower()


class StreamsGroup:
    """One group. Its durable state changes only by `replay`.

    Attributes:
        stored: the group's epoch, which rises with every change of members, topology or topics.
        assignment_epoch: epoch of `targets`.
        assigned_ms: time at which `targets` was computed; 0 if that is not known.
        topology: what the members run; None before the first member has sent it.
        shutdown_by: soft state: the member that has asked the whole application to end.
        endpoint_epoch: soft state: rises when a member with an endpoint gets other tasks.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.stored = GroupEpoch()
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_ms = 0
        self.members: dict[str, StreamsMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, TaskSet] = {}
        self.topology: StreamsGroupTopologyValue | None = None
        self.shutdown_by: str | None = None
        self.endpoint_epoch = 0

    @property
    def epoch(self) -> int:
        return self.stored.epoch

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        topology = self.topology
        if topology is None or topology.epoch != self.stored.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def member(self, member_id: str, instance_id: str | None = None) -> StreamsMember:
        """Return a member by its id, or by its instance id, whose member id must be this one.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance
                id.
        """
        if instance_id is not None:
            member = self.static_member(instance_id)
            if member is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
                )
            if member.member_id != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} was fenced by "
                    f"member {member.member_id}.",
                )
            return member
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def static_member(self, instance_id: str | None) -> StreamsMember | None:
        """Return the member with this instance id, also if it is away."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Return True unless the target was computed less than an interval ago."""
        return not 0 <= now_ms - self.assigned_ms < interval_ms

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if the group has members and its topology reads the topic."""
        if not self.members or self.topology is None:
            return False
        return any(topic in input_topics(s) for s in self.topology.subtopologies)

    # ------------------------------------------------------------ offsets

    def check_offset_commit(
        self,
        member_id: str,
        member_epoch: int,
        api_version: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Raise ApiError unless the caller may commit offsets of these partitions now."""
        if member_epoch < 0 and not self.members:
            return
        member = self.member(member_id)
        if api_version < versions.OFFSET_COMMIT_MEMBER_EPOCH:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {versions.OFFSET_COMMIT_MEMBER_EPOCH} or above must be used "
                "by members using the streams group protocol",
            )
        self._check_epoch(member, member_epoch, partitions)

    def check_transactional_commit(
        self,
        member_id: str,
        instance_id: str | None,
        member_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Raise ApiError unless the caller may add offsets of these partitions to a transaction.

        Producers outside of the group name no member and are always allowed to.
        """
        if member_epoch < 0 and not self.members:
            return
        if member_epoch == LEAVING_EPOCH and not member_id and instance_id is None:
            return
        self._check_epoch(self.member(member_id), member_epoch, partitions)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise ApiError unless the caller may fetch offsets; without a member id it may."""
        if member_id is None and member_epoch < 0:
            return
        self._check_epoch(self.member(member_id or ""), member_epoch, None)

    def _check_epoch(
        self,
        member: StreamsMember,
        received: int,
        partitions: Iterable[TopicPartition] | None,
    ) -> None:
        """Raise ApiError STALE_MEMBER_EPOCH unless the epoch is the member's present one.

        An older epoch is accepted for partitions of active tasks that the member has had since
        then: the response with the new epoch may be on its way.
        """
        if received == member.epoch:
            return
        if partitions is not None and 0 <= received < member.epoch:
            since = [self._active_since(member, partition) for partition in partitions]
            if all(epoch is not None and epoch <= received for epoch in since):
                return
        raise ApiError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {received} does not match the expected member epoch "
            f"{member.epoch}.",
        )

    def _active_since(self, member: StreamsMember, partition: TopicPartition) -> int | None:
        for subtopology in () if self.topology is None else self.topology.subtopologies:
            if partition.topic in input_topics(subtopology):
                task = TaskId(subtopology.subtopology_id, partition.partition)
                return member.active_since.get(task)
        return None

    # ------------------------------------------------------------ records

    def deletion_records(self) -> Iterator[StreamsGroupRecord]:
        """Yield the tombstones of the whole group: assignments before members, the group last."""
        for member_id in self.members:
            yield from removal_records(self.group_id, member_id)
        for kind in (
            StreamsRecordKind.TARGET_EPOCH,
            StreamsRecordKind.TOPOLOGY,
            StreamsRecordKind.GROUP,
        ):
            yield StreamsGroupRecord(self.group_id, kind, "", None)

    def replay(self, record: StreamsGroupRecord) -> None:
        """Apply a committed record of this group, except the tombstone of the group itself."""
        value: Any = record.value
        member_id = record.item
        if record.kind is StreamsRecordKind.GROUP:
            self.stored = group_epoch_of(value)
        elif record.kind is StreamsRecordKind.TOPOLOGY:
            self.topology = cast(StreamsGroupTopologyValue | None, value)
        elif record.kind is StreamsRecordKind.MEMBER:
            fields = None if value is None else member_fields(value)
            self._put(member_id, fields)
        elif record.kind is StreamsRecordKind.CURRENT:
            self._replay_current(member_id, value)
        elif record.kind is StreamsRecordKind.TARGET:
            if value is None:
                self.targets.pop(member_id, None)
            else:
                self.targets[member_id] = target_of(value)
        else:
            epoch = cast(StreamsGroupTargetAssignmentMetadataValue | None, value)
            self.assignment_epoch = -1 if epoch is None else epoch.assignment_epoch
            self.assigned_ms = 0 if epoch is None else epoch.assignment_timestamp

    def _replay_current(self, member_id: str, value: Any) -> None:
        if value is not None:
            # Compaction may have removed the record of the member, whose newer one comes later.
            self._put(member_id, current_fields(value))
        elif member_id in self.members:
            # The tombstone of the member follows.
            left = {"epoch": LEAVING_EPOCH, "previous_epoch": LEAVING_EPOCH}
            tasks = {"assigned": NO_TASKS, "revoking": NO_TASKS, "active_since": {}}
            self._put(member_id, {**left, **tasks})

    def _put(self, member_id: str, fields: dict[str, Any] | None) -> None:
        """Set fields of a member; None removes it."""
        old = self.members.get(member_id)
        if old is not None and self.static_members.get(old.instance_id or "") == member_id:
            del self.static_members[old.instance_id or ""]
        if fields is None:
            self.members.pop(member_id, None)
            if not self.members:
                self.shutdown_by = None
            return
        member = replace(old or StreamsMember(member_id), **fields)
        self.members[member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def check(self) -> None:
        """Assert the invariants: no task is active twice, no member is ahead of its group."""
        active = [task for member in self.members.values() for task in _held(member)]
        assert len(active) == len(set(active)), f"{self.group_id}: a task is active twice"
        assert all(member.epoch <= self.epoch for member in self.members.values()), self.members


def _held(member: StreamsMember) -> Iterator[TaskId]:
    for tasks in (member.assigned.active, member.revoking.active):
        for subtopology_id, partitions in tasks.items():
            for partition in partitions:
                yield TaskId(subtopology_id, partition)
