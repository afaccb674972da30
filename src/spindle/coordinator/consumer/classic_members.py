"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in consumer groups (KIP-848).

A member of the classic protocol takes part in the group's reconciliation: its generation is its
member epoch, JoinGroup is its step to the target assignment, SyncGroup returns the partitions that
it may read. Every operation is exclusive.
"""

from collections.abc import Callable
from dataclasses import replace

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.coordinator.classic.classic_group import CONSUMER_PROTOCOL_TYPE
from spindle.coordinator.classic.member import protocols_of
from spindle.coordinator.classic.rebalance import join_error
from spindle.coordinator.config import MigrationPolicy
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.embedded_protocol import read_subscription, write_assignment
from spindle.coordinator.consumer.group_migration import can_downgrade
from spindle.coordinator.consumer.group_update import ConsumerGroupUpdate
from spindle.coordinator.consumer.heartbeat import check_size
from spindle.coordinator.consumer.member import (
    JOINING_EPOCH,
    ClassicSettings,
    ConsumerMember,
    MemberState,
    Partitions,
    partitions_of,
)
from spindle.coordinator.consumer.member_removal import (
    downgrade_with,
    remove_members,
    stop_step_timers,
)
from spindle.coordinator.coordinator_result import GroupRequest, GroupResult, TimerKey
from spindle.coordinator.group_table import GroupTable
from spindle.metadata.topics import TopicsImage
from spindle.protocol import versions
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicMembers:
    """Decides on the requests of classic members of consumer groups."""

    __slots__ = ("_groups", "_new_id")

    def __init__(self, groups: GroupTable, new_id: Callable[[], str]) -> None:
        self._groups = groups
        self._new_id = new_id

    def join(self, request: GroupRequest[JoinGroupRequest]) -> JoinGroupResponse:
        """Let a member join or rejoin, and take its next step to the target assignment.

        Raises:
            ApiError: the group is full, or the member cannot join it.
        """
        message, out = request.message, request.out
        group = self._groups.consumer[message.group_id]
        update = ConsumerGroupUpdate(self._groups, group, out)
        member_id = message.member_id or self._new_id()
        _check_join(update, message, member_id)
        if (
            not message.member_id
            and message.group_instance_id is None
            and request.client.api_version >= versions.JOIN_GROUP_KNOWN_MEMBER_ID
        ):
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        old, replaced = _member_before(group, message, member_id)
        member, owned = _member_after(old, request, update.view.topics)
        stop_step_timers(group, member_id, out)
        last = group.static_member(message.group_instance_id)
        if (
            last is not None
            and replaced is not None
            and can_downgrade(group, [last.member_id], len(group.members), self._groups.config)
        ):
            epoch = self._epoch_with(update, old, member, replaced)
            downgrade_with(update, last, member, epoch)
            return _joined(message, member_id, epoch)
        moved = update.advance(old, member, replaced, owned)
        _keep_alive(group, moved, out)
        sync = TimerKey("consumer_sync", group.group_id, member_id)
        out.start_timer(sync, moved.rebalance_timeout_ms)
        return _joined(message, member_id, moved.epoch)

    def _epoch_with(
        self,
        update: ConsumerGroupUpdate,
        old: ConsumerMember,
        member: ConsumerMember,
        replaced: ConsumerMember,
    ) -> int:
        """Return the group's epoch after a member has taken the place of another instance."""
        trial = ConsumerGroupUpdate(self._groups, update.group, GroupResult(update.out.now_ms))
        trial.put(member, replaced)
        trial.refresh(old, member)
        return trial.epoch

    def sync(self, request: GroupRequest[SyncGroupRequest]) -> SyncGroupResponse:
        """Answer with the partitions that the member may read now.

        Raises:
            ApiError: the member is not known, in another generation, or has to rejoin.
        """
        message, out = request.message, request.out
        group = self._groups.consumer[message.group_id]
        member, settings = _classic_member(group, message)
        name, metadata = settings.protocols[0]
        if message.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if message.protocol_name not in (None, name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if (
            group.assignment_epoch > member.epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            _await_rejoin(group, member, out)
            # An error cannot carry the timer, so the answer has the code.
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        out.cancel_timer(TimerKey("consumer_sync", group.group_id, member.member_id))
        _keep_alive(group, member, out)
        return SyncGroupResponse(
            protocol_type=message.protocol_type,
            protocol_name=message.protocol_name,
            assignment=write_assignment(
                partitions_of(member.assigned), self._groups.view.topics, metadata
            ),
        )

    def heartbeat(self, request: GroupRequest[HeartbeatRequest]) -> HeartbeatResponse:
        """Restart the member's session timeout, and answer whether it has to join again.

        It also has to join again if a target assignment is due, which its JoinGroup then computes:
        the group may have no member of the consumer protocol, whose heartbeat would do that.

        Raises:
            ApiError: the member is not known, or in another generation.
        """
        message, out = request.message, request.out
        group = self._groups.consumer[message.group_id]
        member, _ = _classic_member(group, message)
        _keep_alive(group, member, out)
        interval_ms = self._groups.config_of(group.group_id).assignment_interval_ms
        if (
            member.epoch < group.assignment_epoch
            or group.is_assignment_due(interval_ms, out.now_ms)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not group.waits_for_partitions(member)
            )
        ):
            _await_rejoin(group, member, out)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, request: GroupRequest[LeaveGroupRequest]) -> LeaveGroupResponse:
        """Remove members of both protocols by member id or instance id."""
        group = self._groups.consumer[request.message.group_id]
        responses = []
        leaving: dict[str, None] = {}
        for identity in request.message.members:
            code = ErrorCode.NONE
            try:
                leaving[_leaving(group, identity).member_id] = None
            except ApiError as error:
                code = error.code
            responses.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code,
                )
            )
        if leaving:
            update = ConsumerGroupUpdate(self._groups, group, request.out)
            remove_members(update, list(leaving), "left")
        return LeaveGroupResponse(members=responses)


def _check_join(update: ConsumerGroupUpdate, message: JoinGroupRequest, member_id: str) -> None:
    group = update.group
    if update.groups.config.migration is MigrationPolicy.DISABLED:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol "
            "because the group migration is disabled.",
        )
    check_size(group, member_id, update.config)
    names = [protocol.name for protocol in message.protocols]
    if message.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.supports_classic(names):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member_id}'s protocols are not supported.",
        )


def _joined(message: JoinGroupRequest, member_id: str, generation_id: int) -> JoinGroupResponse:
    # No member is the leader: the coordinator assigns.
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=generation_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols_of(message)[0][0],
    )


def _member_before(
    group: ConsumerGroup, message: JoinGroupRequest, member_id: str
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Return the member as it was before this join, and the instance whose place it takes."""
    instance_id = message.group_instance_id
    if instance_id is None:
        return group.members.get(member_id, ConsumerMember(member_id)), None
    if message.member_id:
        return group.member(member_id, instance_id), None
    replaced = group.static_member(instance_id)
    if replaced is None:
        return ConsumerMember(member_id), None
    joining = replace(
        replaced, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH
    )
    return joining, replaced


def _member_after(
    old: ConsumerMember, request: GroupRequest[JoinGroupRequest], topics: TopicsImage
) -> tuple[ConsumerMember, Partitions]:
    """Return the member with the fields of its JoinGroup, and the partitions that it owns."""
    message, client = request.message, request.client
    protocols = protocols_of(message)
    try:
        subscription = read_subscription(protocols[0][1], topics)
    except ProtocolViolation:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the subscription cannot be read"
        ) from None
    timeout_ms = message.rebalance_timeout_ms
    member = replace(
        old,
        instance_id=message.group_instance_id or old.instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        topic_names=subscription.topic_names,
        topic_regex="",
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        classic=ClassicSettings(message.session_timeout_ms, protocols),
    )
    return member, subscription.owned


def _leaving(group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity) -> ConsumerMember:
    current = group.static_member(identity.group_instance_id)
    member_id = identity.member_id or ("" if current is None else current.member_id)
    return group.member(member_id, identity.group_instance_id)


def _classic_member(
    group: ConsumerGroup, message: SyncGroupRequest | HeartbeatRequest
) -> tuple[ConsumerMember, ClassicSettings]:
    """Return the sender and its settings.

    Raises:
        ApiError: it is not known, does not use the classic protocol, or is in another generation.
    """
    member = group.member(message.member_id, message.group_instance_id)
    if member.classic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member.member_id} does not use the classic protocol.",
        )
    if message.generation_id != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _keep_alive(group: ConsumerGroup, member: ConsumerMember, out: GroupResult) -> None:
    assert member.classic is not None
    key = TimerKey("consumer_session", group.group_id, member.member_id)
    out.start_timer(key, member.classic.session_timeout_ms)


def _await_rejoin(group: ConsumerGroup, member: ConsumerMember, out: GroupResult) -> None:
    """Give the member its rebalance timeout to rejoin; further requests do not extend it."""
    deadline_ms = group.rejoin_deadlines_ms.setdefault(
        member.member_id, out.now_ms + member.rebalance_timeout_ms
    )
    out.set_timer(TimerKey("consumer_join", group.group_id, member.member_id), deadline_ms)
