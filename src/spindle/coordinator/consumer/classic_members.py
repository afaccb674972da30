"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in consumer groups (KIP-848).

A member of the classic protocol takes part in the group's reconciliation: its generation is its
member epoch, JoinGroup is its step to the target assignment, SyncGroup tells what it may read.
Every operation is exclusive.
"""

from collections.abc import Callable
from dataclasses import replace

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.coordinator.classic_group import CONSUMER_PROTOCOL_TYPE
from spindle.coordinator.config import ConsumerGroupConfig, MigrationPolicy
from spindle.coordinator.consumer.departures import Departures, stop_step_timers
from spindle.coordinator.consumer.draft import TopicsView
from spindle.coordinator.consumer.embedded_protocol import read_subscription, write_assignment
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import (
    JOINING_EPOCH,
    ClassicSettings,
    ConsumerMember,
    MemberState,
    Partitions,
    partitions_of,
)
from spindle.coordinator.consumer.memberships import (
    ConsumerMemberships,
    check_size,
    epoch_with,
)
from spindle.coordinator.consumer.requests import static_member
from spindle.coordinator.member import protocols_of
from spindle.coordinator.outcome import Client, Outcome, TimerKey
from spindle.coordinator.rebalance import join_error
from spindle.metadata.topics import TopicsImage
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

KNOWN_MEMBER_ID_FROM_VERSION = 4
"""Since this version a new dynamic member must join with a member id given out before (KIP-394)."""


class ClassicMembers:
    """Decides on the requests of classic members of consumer groups."""

    __slots__ = ("_departures", "_memberships", "_new_id", "_policy")

    def __init__(
        self,
        policy: MigrationPolicy,
        memberships: ConsumerMemberships,
        departures: Departures,
        new_id: Callable[[], str],
    ) -> None:
        self._policy = policy
        self._memberships = memberships
        self._departures = departures
        self._new_id = new_id

    # ------------------------------------------------------------ join

    def join(
        self,
        group: ConsumerGroup,
        config: ConsumerGroupConfig,
        request: JoinGroupRequest,
        client: Client,
        view: TopicsView,
        now_ms: int,
        out: Outcome,
    ) -> JoinGroupResponse:
        """Let a member join or rejoin, and take its next step to the target assignment.

        Raises:
            ApiError: the group is full, or the member cannot join it.
        """
        is_unknown = not request.member_id
        member_id = request.member_id or self._new_id()
        protocols = protocols_of(request)
        self._check_join(group, config, request, member_id)
        if (
            is_unknown
            and request.group_instance_id is None
            and client.api_version >= KNOWN_MEMBER_ID_FROM_VERSION
        ):
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        old, replaced = _member_before(group, request, member_id)
        member, owned = _member_after(old, request, client, view.topics)
        stop_step_timers(group, member_id, out)
        last = self._departures.replaces_last(group, request.group_instance_id)
        if last is not None and replaced is not None:
            epoch = epoch_with(group, old, member, replaced, view, now_ms)
            self._departures.downgrade_with(group, last, member, epoch, view.topics, now_ms, out)
            return _joined(member_id, epoch, protocols[0][0])
        moved = self._memberships.advance(
            group, old, member, replaced, owned, config, view, now_ms, out
        )
        _keep_alive(group, moved, now_ms, out)
        out.set_timer(
            TimerKey("consumer_sync", group.group_id, member_id),
            now_ms + moved.rebalance_timeout_ms,
        )
        return _joined(member_id, moved.epoch, protocols[0][0])

    def _check_join(
        self,
        group: ConsumerGroup,
        config: ConsumerGroupConfig,
        request: JoinGroupRequest,
        member_id: str,
    ) -> None:
        if self._policy is MigrationPolicy.DISABLED:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Cannot join the consumer group {group.group_id} with the classic protocol "
                "because the group migration is disabled.",
            )
        check_size(group, member_id, config)
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.supports_classic(
            [protocol.name for protocol in request.protocols]
        ):
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Member {member_id}'s protocols are not supported.",
            )

    # ------------------------------------------------------------ sync and heartbeat

    def sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        topics: TopicsImage,
        now_ms: int,
        out: Outcome,
    ) -> SyncGroupResponse:
        """Answer with the partitions that the member may read now.

        Raises:
            ApiError: the member is not known, in another generation, or has to rejoin.
        """
        member = _member_of(group, request.member_id, request.group_instance_id)
        settings = _check_classic(member, request.generation_id)
        name, metadata = settings.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, name):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if (
            group.assignment_epoch > member.epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            _await_rejoin(group, member, now_ms, out)
            # An error cannot carry the timer, so the answer has the code.
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        out.cancel_timer(TimerKey("consumer_sync", group.group_id, member.member_id))
        _keep_alive(group, member, now_ms, out)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(partitions_of(member.assigned), topics, metadata),
        )

    def heartbeat(
        self,
        group: ConsumerGroup,
        config: ConsumerGroupConfig,
        request: HeartbeatRequest,
        now_ms: int,
        out: Outcome,
    ) -> HeartbeatResponse:
        """Restart the member's session timeout, and answer whether it has to join again.

        It also has to join again if a target assignment is due, which its JoinGroup then computes:
        the group may have no member of the consumer protocol, whose heartbeat would do that.

        Raises:
            ApiError: the member is not known, or in another generation.
        """
        member = _member_of(group, request.member_id, request.group_instance_id)
        _check_classic(member, request.generation_id)
        _keep_alive(group, member, now_ms, out)
        if (
            member.epoch < group.assignment_epoch
            or group.is_assignment_due(config.assignment_interval_ms, now_ms)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not group.waits_for_partitions(member)
            )
        ):
            _await_rejoin(group, member, now_ms, out)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    # ------------------------------------------------------------ leave

    def leave(
        self,
        group: ConsumerGroup,
        request: LeaveGroupRequest,
        topics: TopicsImage,
        now_ms: int,
        out: Outcome,
    ) -> LeaveGroupResponse:
        """Remove members of both protocols by member id or instance id."""
        responses = []
        leaving: dict[str, None] = {}
        for identity in request.members:
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
            self._departures.remove(group, list(leaving), topics, now_ms, out, reason="left")
        return LeaveGroupResponse(members=responses)


def _joined(member_id: str, generation_id: int, protocol_name: str) -> JoinGroupResponse:
    # No member is the leader: the coordinator assigns.
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=generation_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol_name,
    )


def _member_before(
    group: ConsumerGroup, request: JoinGroupRequest, member_id: str
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Return the member as it was before this join, and the instance whose place it takes."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id, ConsumerMember(member_id)), None
    if request.member_id:
        return static_member(group, instance_id, member_id), None
    replaced = group.static_member(instance_id)
    if replaced is None:
        return ConsumerMember(member_id), None
    joining = replace(
        replaced, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH
    )
    return joining, replaced


def _member_after(
    old: ConsumerMember, request: JoinGroupRequest, client: Client, topics: TopicsImage
) -> tuple[ConsumerMember, Partitions]:
    """Return the member with the fields of its JoinGroup, and the partitions that it owns."""
    protocols = protocols_of(request)
    try:
        subscription = read_subscription(protocols[0][1], topics)
    except ProtocolViolation:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the subscription cannot be read"
        ) from None
    timeout_ms = request.rebalance_timeout_ms
    member = replace(
        old,
        instance_id=request.group_instance_id or old.instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        topic_names=subscription.topic_names,
        topic_regex="",
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        classic=ClassicSettings(request.session_timeout_ms, protocols),
    )
    return member, subscription.owned


def _member_of(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        return group.member(member_id)
    return static_member(group, instance_id, member_id)


def _leaving(group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity) -> ConsumerMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    current = group.static_member(instance_id)
    member_id = identity.member_id or ("" if current is None else current.member_id)
    return static_member(group, instance_id, member_id)


def _check_classic(member: ConsumerMember, generation_id: int) -> ClassicSettings:
    if member.classic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member.member_id} does not use the classic protocol.",
        )
    if generation_id != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)
    return member.classic


def _keep_alive(group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: Outcome) -> None:
    assert member.classic is not None
    key = TimerKey("consumer_session", group.group_id, member.member_id)
    out.set_timer(key, now_ms + member.classic.session_timeout_ms)


def _await_rejoin(group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: Outcome) -> None:
    """Give the member its rebalance timeout to rejoin; further requests do not extend it."""
    deadline_ms = group.rejoin_deadlines_ms.setdefault(
        member.member_id, now_ms + member.rebalance_timeout_ms
    )
    out.set_timer(TimerKey("consumer_join", group.group_id, member.member_id), deadline_ms)
