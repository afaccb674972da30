"""ShareGroupHeartbeat: joining, staying and leaving, and the target assignment (KIP-932).

Every operation is exclusive: it decides on committed state, and its records are committed before
the next decision.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.subscriptions import existing, hash_of_topics
from spindle.coordinator.coordinator_result import Client, GroupRequest, GroupResult, TimerKey
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.share.assignor import assign
from spindle.coordinator.share.group_records import (
    StatePartitions,
    StateTopic,
    current_record,
    epoch_record,
    member_record,
    removal_records,
    state_partitions_record,
    target_epoch_record,
    target_record,
)
from spindle.coordinator.share.member import JOINING_EPOCH, LEAVING_EPOCH, ShareMember
from spindle.coordinator.share.share_group import ShareGroup
from spindle.metadata.topics import TopicImage
from spindle.protocol.message import Message
from spindle.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_Assignment = ShareGroupHeartbeatResponse.Assignment
_FIRST_EPOCH: Final = 1
"""The epoch of a new group, before its first member begins the next one."""
_NO_GROUP_TEXT: Final = "Group {} is not a share group."


class ShareStateChange(NamedTuple):
    """Partitions whose share state has to be created, with the epoch of the state."""

    group_id: str
    state_epoch: int
    partitions: list[TopicIdPartition]


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise ApiError INVALID_REQUEST unless the fields of a heartbeat agree with each other."""
    for name, value in (
        ("GroupId", request.group_id),
        ("MemberId", request.member_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if request.member_epoch < LEAVING_EPOCH:
        raise _invalid(f"MemberEpoch is {request.member_epoch}, but must be at least -1.")
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


class ShareGroups:
    """Decides on ShareGroupHeartbeat and on the sessions of members of share groups."""

    __slots__ = ("_groups",)

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups

    # ------------------------------------------------------------ members

    def heartbeat(
        self, request: GroupRequest[ShareGroupHeartbeatRequest]
    ) -> ShareGroupHeartbeatResponse:
        """Let a member join, stay or leave (exclusive).

        Raises:
            ApiError: the member is not known, fenced, or its group is full.
        """
        message, out = request.message, request.out
        if message.member_epoch == LEAVING_EPOCH:
            return self._leave(message, out)
        group = self._group_of(message)
        config = self._groups.share_config_of(group.group_id)
        old = self._member_before(group, message, config.max_size)
        member = _member_after(old, message, request.client)
        update = _Update(self._groups, group, out, {**group.members, member.member_id: member})
        if member != group.members.get(member.member_id):
            out.records.append(member_record(group.group_id, member))
        is_changed = old.topic_names != member.topic_names or member.member_id not in group.members
        update.refresh(is_changed=is_changed)
        moved = update.reconcile(member)
        key = TimerKey("share_session", group.group_id, member.member_id)
        out.start_timer(key, config.session_timeout_ms)
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
        )
        is_full = message.member_epoch == JOINING_EPOCH or (
            message.subscribed_topic_names is not None
        )
        if is_full or moved.assigned != old.assigned:
            response.assignment = _Assignment(
                topic_partitions=[
                    _Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                    for topic_id, indexes in moved.assigned.items()
                ]
            )
        return response

    def _group_of(self, message: ShareGroupHeartbeatRequest) -> ShareGroup:
        group_id = message.group_id
        group = self._groups.share.get(group_id)
        if group is not None:
            return group
        groups = self._groups
        if groups.get(group_id) is not None or groups.offset_owner(group_id) is not None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, _NO_GROUP_TEXT.format(group_id))
        if message.member_epoch != JOINING_EPOCH:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(group_id)

    def _member_before(
        self, group: ShareGroup, message: ShareGroupHeartbeatRequest, max_size: int
    ) -> ShareMember:
        """Return the member as it was before this heartbeat; a new one is in epoch 0."""
        received = message.member_epoch
        if received != JOINING_EPOCH:
            member = group.member(message.member_id)
            if received not in (member.epoch, member.previous_epoch):
                size = "greater" if received > member.epoch else "smaller"
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"The share group member has a {size} member epoch ({received}) than the one "
                    f"known by the group coordinator ({member.epoch}). The member must abandon all "
                    "its partitions and rejoin.",
                )
            return member
        if len(group.members) >= max_size and message.member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {max_size} members.",
            )
        return group.members.get(message.member_id) or ShareMember(message.member_id)

    def _leave(
        self, message: ShareGroupHeartbeatRequest, out: GroupResult
    ) -> ShareGroupHeartbeatResponse:
        group = self._groups.share.get(message.group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {message.group_id} not found.")
        member = group.member(message.member_id)
        self._remove(group, member.member_id, out)
        return ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVING_EPOCH)

    def _remove(self, group: ShareGroup, member_id: str, out: GroupResult) -> None:
        out.records += removal_records(group.group_id, member_id)
        left = {name: member for name, member in group.members.items() if name != member_id}
        update = _Update(self._groups, group, out, left)
        update.refresh(is_changed=True)
        out.cancel_timer(TimerKey("share_session", group.group_id, member_id))

    def on_timer(self, key: TimerKey, out: GroupResult) -> None:
        """Remove a member that was silent for too long."""
        group = self._groups.share.get(key.group_id)
        if group is None or key.member_id not in group.members:
            return
        self._remove(group, key.member_id, out)
        # If the removal is not committed, the session timer tries again.
        self._start_session(group, key.member_id, out)

    def loaded(self, out: GroupResult) -> None:
        """Begin the sessions of all members."""
        for group in self._groups.share.values():
            for member_id in group.members:
                self._start_session(group, member_id, out)

    def _start_session(self, group: ShareGroup, member_id: str, out: GroupResult) -> None:
        config = self._groups.share_config_of(group.group_id)
        key = TimerKey("share_session", group.group_id, member_id)
        out.start_timer(key, config.session_timeout_ms)

    # ------------------------------------------------------------ share state

    def due_initializations(self, group_id: str) -> ShareStateChange | None:
        """Return the committed partitions whose states have to be created; None if there are none.

        After a change of the coordinator, these are also the ones that the former coordinator had
        begun.
        """
        group = self._groups.share.get(group_id)
        if group is None or not group.state_partitions.initializing:
            return None
        partitions = [
            TopicIdPartition(topic_id, index)
            for topic_id, topic in group.state_partitions.initializing.items()
            for index in sorted(topic.partitions)
        ]
        return ShareStateChange(group_id, group.epoch, partitions)

    def initialized(
        self, group_id: str, partitions: Iterable[TopicIdPartition], out: GroupResult
    ) -> Message:
        """Record that states exist, so that the partitions can be assigned (exclusive)."""
        group = self._groups.share.get(group_id)
        if group is not None:
            stored = group.state_partitions
            initializing = {t: set(topic.partitions) for t, topic in stored.initializing.items()}
            ready: dict[Uuid, set[int]] = {}
            for topic_id, index in partitions:
                if index in initializing.get(topic_id, ()):
                    initializing[topic_id].discard(index)
                    ready.setdefault(topic_id, set()).add(index)
            if ready:
                changed = StatePartitions(
                    {
                        topic_id: StateTopic(stored.initializing[topic_id].name, frozenset(left))
                        for topic_id, left in initializing.items()
                        if left
                    },
                    _with_added(stored, ready),
                    stored.deleting,
                )
                out.records.append(state_partitions_record(group_id, changed))
        return ShareGroupHeartbeatResponse()

    # ------------------------------------------------------------ administration

    def empty_group(self, group_id: str) -> ShareGroup:
        """Return a group without members.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
        """
        group = self._groups.share.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group.members:
            raise ApiError(
                ErrorCode.NON_EMPTY_GROUP,
                f"The group is not empty. Members to end first: {len(group.members)}.",
            )
        return group

    def begin_reset(
        self, group_id: str, topics: Mapping[Uuid, StateTopic], out: GroupResult
    ) -> Message:
        """Begin a new epoch, in which the states of these partitions are reset (exclusive).

        A group that does not exist is created.

        Raises:
            ApiError: NON_EMPTY_GROUP, or GROUP_ID_NOT_FOUND for a group of another type.
        """
        is_other = self._groups.get(group_id) is not None or group_id in self._groups.consumer
        if group_id in self._groups.share or is_other:
            group = self.empty_group(group_id)
        else:
            group = ShareGroup(group_id)
        stored = group.state_partitions
        initializing = dict(stored.initializing)
        for topic_id, topic in topics.items():
            known = stored.initialized.get(topic_id)
            new = topic.partitions - (known.partitions if known else frozenset())
            before = initializing.get(topic_id) or StateTopic(topic.name, frozenset())
            if new:
                initializing[topic_id] = before._replace(partitions=before.partitions | new)
        epoch = max(group.epoch, _FIRST_EPOCH) + 1
        out.records.append(epoch_record(group_id, epoch, group.topics_hash))
        if initializing != stored.initializing:
            changed = stored._replace(initializing=initializing)
            out.records.append(state_partitions_record(group_id, changed))
        return ShareGroupHeartbeatResponse()

    def begin_deletion(
        self, group_id: str, topic_ids: Iterable[Uuid] | None, out: GroupResult
    ) -> Message:
        """Record that the states of topics, of all if None, are being deleted (exclusive).

        Raises:
            ApiError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
        """
        stored = self.empty_group(group_id).state_partitions
        gone = dict.fromkeys(
            [*stored.initializing, *stored.initialized] if topic_ids is None else topic_ids
        )
        names = {
            topic_id: topic.name
            for topics in (stored.initializing, stored.initialized)
            for topic_id, topic in topics.items()
            if topic_id in gone
        }
        if names:
            changed = StatePartitions(
                {t: topic for t, topic in stored.initializing.items() if t not in gone},
                {t: topic for t, topic in stored.initialized.items() if t not in gone},
                {**stored.deleting, **names},
            )
            out.records.append(state_partitions_record(group_id, changed))
        return ShareGroupHeartbeatResponse()

    def deleted(self, group_id: str, topic_ids: Iterable[Uuid], out: GroupResult) -> Message:
        """Record that the states of topics are deleted (exclusive)."""
        group = self._groups.share.get(group_id)
        if group is not None:
            stored = group.state_partitions
            gone = dict.fromkeys(topic_ids)
            deleting = {t: name for t, name in stored.deleting.items() if t not in gone}
            if deleting != stored.deleting:
                changed = stored._replace(deleting=deleting)
                out.records.append(state_partitions_record(group_id, changed))
        return ShareGroupHeartbeatResponse()

    def delete_group(self, group_id: str, out: GroupResult) -> Message:
        """Delete a group whose states are deleted (exclusive).

        Raises:
            ApiError: GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
        """
        out.records += self.empty_group(group_id).deletion_records()
        return ShareGroupHeartbeatResponse()

    def forget_missing_topics(self, topics: Container[Uuid], out: GroupResult) -> Message:
        """Forget the states of topics that do not exist any more (exclusive).

        They were deleted while the partition had no coordinator.
        """
        known = {
            topic_id: None
            for group in self._groups.share.values()
            for part in group.state_partitions
            for topic_id in part
        }
        return self.forget_topics([t for t in known if t not in topics], out)

    def forget_topics(self, topic_ids: Iterable[Uuid], out: GroupResult) -> Message:
        """Forget the states of topics that the cluster has deleted (exclusive)."""
        gone = dict.fromkeys(topic_ids)
        out.is_atomic = False
        for group in self._groups.share.values():
            stored = group.state_partitions
            left = StatePartitions(
                {t: topic for t, topic in stored.initializing.items() if t not in gone},
                {t: topic for t, topic in stored.initialized.items() if t not in gone},
                {t: name for t, name in stored.deleting.items() if t not in gone},
            )
            if left != stored:
                out.records.append(state_partitions_record(group.group_id, left))
        return ShareGroupHeartbeatResponse()


def _with_added(stored: StatePartitions, ready: Mapping[Uuid, set[int]]) -> dict[Uuid, StateTopic]:
    """Return the initialized partitions together with new ones."""
    initialized = dict(stored.initialized)
    for topic_id, indexes in ready.items():
        topic = initialized.get(topic_id) or StateTopic(
            stored.initializing[topic_id].name, frozenset()
        )
        initialized[topic_id] = topic._replace(partitions=topic.partitions | indexes)
    return initialized


def _member_after(
    member: ShareMember, message: ShareGroupHeartbeatRequest, client: Client
) -> ShareMember:
    """Return the member with the fields that the request sets; null means that nothing changed."""
    names = message.subscribed_topic_names
    return replace(
        member,
        rack_id=message.rack_id or member.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        topic_names=member.topic_names if names is None else frozenset(names),
    )


class _Update:
    """A group with the records that this request has added so far applied to it."""

    def __init__(
        self,
        groups: GroupTable,
        group: ShareGroup,
        out: GroupResult,
        members: Mapping[str, ShareMember],
    ) -> None:
        self._group = group
        self._out = out
        self._members = members
        self._config = groups.share_config_of(group.group_id)
        names = {name for member in members.values() for name in member.topic_names}
        self._topics = existing(names, groups.view.topics)
        self._targets = {m: t for m, t in group.targets.items() if m in members}
        self._epoch = group.epoch
        self._assignment_epoch = group.assignment_epoch

    def refresh(self, *, is_changed: bool) -> None:
        """Begin the next epoch if something has changed; compute the target if it is due."""
        group, out = self._group, self._out
        topics_hash = hash_of_topics(self._topics.values())
        if (
            is_changed
            or topics_hash != group.topics_hash
            or (group.epoch == group.assignment_epoch and self._misses_partitions())
        ):
            self._epoch = max(group.epoch, _FIRST_EPOCH) + 1
            out.records.append(epoch_record(group.group_id, self._epoch, topics_hash))
        self._begin_initialization()
        if self._epoch > self._assignment_epoch and group.may_assign(
            self._config.assignment_interval_ms, out.now_ms
        ):
            self._assign()

    def _assignable(self) -> dict[Uuid, frozenset[int]]:
        """Return the subscribed partitions with share state."""
        initialized = self._group.state_partitions.initialized
        return {
            topic.topic_id: frozenset(topic.partitions) & initialized[topic.topic_id].partitions
            for topic in self._topics.values()
            if topic.topic_id in initialized
        }

    def _misses_partitions(self) -> bool:
        """Return True if the targets are not made of exactly the assignable partitions."""
        if not self._members:
            return False
        assigned: dict[Uuid, set[int]] = {}
        for target in self._targets.values():
            for topic_id, indexes in target.items():
                assigned.setdefault(topic_id, set()).update(indexes)
        assignable = {topic_id: set(ps) for topic_id, ps in self._assignable().items() if ps}
        return assigned != assignable

    def _begin_initialization(self) -> None:
        """Record which subscribed partitions get a share state."""
        stored = self._group.state_partitions
        initializing = dict(stored.initializing)
        for topic in self._topics.values():
            missing = _missing(topic, stored)
            if missing and topic.topic_id not in stored.deleting:
                before = initializing.get(topic.topic_id) or StateTopic(topic.name, frozenset())
                initializing[topic.topic_id] = before._replace(
                    partitions=before.partitions | missing
                )
        if initializing != stored.initializing:
            changed = stored._replace(initializing=initializing)
            self._out.records.append(state_partitions_record(self._group.group_id, changed))

    def _assign(self) -> None:
        group, out = self._group, self._out
        by_name = self._topics
        readers = {
            member_id: frozenset(by_name[n].topic_id for n in member.topic_names if n in by_name)
            for member_id, member in self._members.items()
        }
        targets = assign(readers, self._assignable(), self._targets)
        for member_id, target in targets.items():
            if self._targets.get(member_id) != target:
                out.records.append(target_record(group.group_id, member_id, target))
        self._targets = dict(targets)
        self._assignment_epoch = self._epoch
        out.records.append(target_epoch_record(group.group_id, self._epoch, out.now_ms))

    def reconcile(self, member: ShareMember) -> ShareMember:
        """Return the member with its target; nothing has to be given up before."""
        if member.epoch == self._assignment_epoch:
            return member
        moved = replace(
            member,
            epoch=self._assignment_epoch,
            previous_epoch=member.epoch,
            assigned=self._targets.get(member.member_id, {}),
        )
        self._out.records.append(current_record(self._group.group_id, moved))
        return moved


def _missing(topic: TopicImage, stored: StatePartitions) -> frozenset[int]:
    """Return the partitions of a topic that neither have a state nor will get one."""
    known: set[int] = set()
    for topics in (stored.initializing, stored.initialized):
        if topic.topic_id in topics:
            known |= topics[topic.topic_id].partitions
    return frozenset(topic.partitions) - known
