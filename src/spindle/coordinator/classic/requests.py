"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and session timeouts of classic groups.

This module decides which clients may join, under which member id, and whether a join starts a
rebalance. Requests that must wait are parked in the group; `ClassicRebalance` answers them.
"""

from collections.abc import Callable
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.classic.group_record import group_record, new_group_record
from spindle.coordinator.classic.member import ClassicMember, protocols_of
from spindle.coordinator.classic.rebalance import (
    ClassicRebalance,
    answer_join,
    answer_sync,
    join_error,
    join_response,
    keep_alive,
    log_removed,
)
from spindle.coordinator.classic.static_rejoin import rejoin_static_member
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.coordinator_result import (
    AssignmentStored,
    Client,
    GroupCreated,
    GroupRequest,
    GroupResult,
    TimerKey,
)
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.streams.streams_group import StreamsGroup
from spindle.protocol import versions
from spindle.protocol.codec import MAX_STRING_BYTES
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_SUFFIX_BYTES: Final = 37
"""Length of the end of a new member id, after its prefix: a hyphen and a UUID."""

JoinRequest = GroupRequest[JoinGroupRequest]


class ClassicGroupRequests:
    """Decides on the requests of members of classic groups.

    A method returns the response; None if the request is parked or already answered.

    Args:
        new_id: returns the random part of a member id.
    """

    __slots__ = ("_config", "_groups", "_new_id")

    def __init__(self, groups: GroupTable, new_id: Callable[[], str]) -> None:
        self._config = groups.config
        self._groups = groups
        self._new_id = new_id

    # ------------------------------------------------------------ join

    def join(self, request: JoinRequest) -> None:
        """Answer a join at once, or park it until its group's join phase ends.

        An answer does not wait for the record of a new group.

        Raises:
            ApiError: INVALID_REQUEST, the client or instance id is too long to begin a member id.
        """
        message, out = request.message, request.out
        member_id = message.member_id
        if not member_id:
            _check_member_id_prefix(message.group_instance_id, request.client)
        group = self._groups.get(message.group_id)
        is_new_group = group is None
        consumer_group = self._groups.consumer.get(message.group_id)
        streams_group = self._groups.streams.get(message.group_id)
        if message.group_id in self._groups.share or (streams_group and streams_group.members):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            out.answer(request.token, join_error(code, member_id))
            return
        if group is None:
            if member_id:
                out.answer(request.token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
                return
            group = self._groups.create(message.group_id, out.now_ms)
        response = self._join(request, ClassicRebalance(group, self._config, out))
        if response is not None:
            out.answer(request.token, response)
        if is_new_group:
            _store_new(group, consumer_group or streams_group, out)

    def _join(self, request: JoinRequest, rebalance: ClassicRebalance) -> JoinGroupResponse | None:
        message, group = request.message, rebalance.group
        member_id = message.member_id
        if not self._has_room_for(group, member_id):
            if member_id:
                rebalance.remove_member(member_id)
            return join_error(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is GroupState.DEAD:
            return join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        if not group.supports(message.protocol_type, protocols_of(message)):
            return join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if member_id:
            return self._join_known(request, rebalance)
        return self._join_unknown(request, rebalance)

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        if group.state is GroupState.PREPARING_REBALANCE:
            # Count joins, not members: if `group.max.size` was lowered below the size of the group,
            # the members that rejoin last are refused.
            member = group.members.get(member_id)
            is_parked = member is not None and member.awaiting_join is not None
            return is_parked or group.awaiting_join_count < self._config.max_size
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member_id in group.members or len(group.members) < self._config.max_size
        return True

    def _join_unknown(
        self, request: JoinRequest, rebalance: ClassicRebalance
    ) -> JoinGroupResponse | None:
        message, client, group = request.message, request.client, rebalance.group
        instance_id = message.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self._new_id()}"
            if instance_id in group.static_members:
                rejoin_static_member(request, rebalance, instance_id, member_id)
            else:
                self._add_member(request, rebalance, member_id)
            return None
        member_id = f"{client.client_id}-{self._new_id()}"
        if client.api_version < versions.JOIN_GROUP_KNOWN_MEMBER_ID:
            self._add_member(request, rebalance, member_id)
            return None
        group.pending_joins[member_id] = None
        key = TimerKey("heartbeat", group.group_id, member_id)
        request.out.start_timer(key, message.session_timeout_ms)
        return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _join_known(
        self, request: JoinRequest, rebalance: ClassicRebalance
    ) -> JoinGroupResponse | None:
        message, group = request.message, rebalance.group
        member_id = message.member_id
        if member_id in group.pending_joins and message.group_instance_id is None:
            self._add_member(request, rebalance, member_id)
            return None
        try:
            group.check_member(member_id, message.group_instance_id)
        except ApiError as error:
            return join_error(error.code, member_id)
        member = group.members[member_id]
        protocols = protocols_of(message)
        # A leader that joins again may know of a change that members cannot see, such as new
        # partitions.
        if (
            group.state is GroupState.PREPARING_REBALANCE
            or member.protocols != protocols
            or (group.state is GroupState.STABLE and group.leader_id == member_id)
        ):
            # The member no longer waits for its earlier request.
            answer_join(group, member, join_error(ErrorCode.REBALANCE_IN_PROGRESS), request.out)
            group.update_member(
                member,
                protocols,
                message.rebalance_timeout_ms,
                message.session_timeout_ms,
                request.token,
            )
            rebalance.prepare_or_complete()
            return None
        # The member did not get its answer, or it is a follower whose protocols have not changed.
        return join_response(group, member_id, with_members=group.leader_id == member_id)

    def _add_member(
        self, request: JoinRequest, rebalance: ClassicRebalance, member_id: str
    ) -> None:
        message, client, group = request.message, request.client, rebalance.group
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=message.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=message.rebalance_timeout_ms,
            session_timeout_ms=message.session_timeout_ms,
            protocol_type=message.protocol_type,
            protocols=protocols_of(message),
        )
        member.is_new = True
        state = group.state
        if state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, request.token)
        # A new member cannot send heartbeats before its join is answered, so it gets more time.
        keep_alive(group, member, request.out, self._config.new_member_join_timeout_ms)
        rebalance.prepare_or_complete()

    # ------------------------------------------------------------ sync

    def sync(self, request: GroupRequest[SyncGroupRequest]) -> SyncGroupResponse | None:
        """Answer with the assignment, or park the request until the leader's is stored."""
        message, out = request.message, request.out
        group = self._groups.get(message.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _check_sync(group, message)
        if group is None or code is not ErrorCode.NONE:
            return SyncGroupResponse(error_code=code)
        member = group.members[message.member_id]
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            out.cancel_timer(TimerKey("sync", group.group_id))
        if group.state is GroupState.STABLE:
            return SyncGroupResponse(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            )
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), out)
        member.awaiting_sync = request.token
        if group.takes_assignment_of(member.member_id):
            assigned = {a.member_id: a.assignment for a in message.assignments}
            assignment = {member_id: assigned.get(member_id, b"") for member_id in group.members}
            out.records.append(group_record(group, assignment))
            group.storing = AssignmentStored(group.group_id, assignment)
            out.completions.append(group.storing)
        return None

    def finish_assignment(
        self, stored: AssignmentStored, code: ErrorCode, out: GroupResult
    ) -> None:
        """Store the leader's assignment in the group if it was committed, else rebalance."""
        group = self._groups.get(stored.group_id)
        if group is None or group.storing is not stored:
            # A rebalance began meanwhile, or another group now has this id.
            return
        rebalance = ClassicRebalance(group, self._config, out)
        if code is ErrorCode.NONE:
            rebalance.set_assignment(stored.assignment)
        else:
            rebalance.fail_assignment(code)
            rebalance.prepare_or_complete()

    # ------------------------------------------------------------ heartbeat and leave

    def heartbeat(self, request: GroupRequest[HeartbeatRequest]) -> HeartbeatResponse:
        """Restart the member's session timeout, and answer whether the member has to join again.

        Raises:
            ApiError: the group, member or generation is not known, or the member is fenced.
        """
        message = request.message
        group = self._existing(message.group_id)
        if group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.check_member(message.member_id, message.group_instance_id)
        if message.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        keep_alive(group, group.members[message.member_id], request.out)
        if group.state is GroupState.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, request: GroupRequest[LeaveGroupRequest]) -> LeaveGroupResponse:
        """Remove members by member id, or static members by instance id alone (KIP-345).

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, the group does not exist.
        """
        group = self._existing(request.message.group_id)
        if group.state is GroupState.DEAD:
            return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        rebalance = ClassicRebalance(group, self._config, request.out)
        responses = [
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=_leave(rebalance, identity.member_id, identity.group_instance_id),
            )
            for identity in request.message.members
        ]
        left = [r.member_id or r.group_instance_id or "" for r in responses if not r.error_code]
        log_removed(group.group_id, "left", left)
        if left:
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                rebalance.prepare_or_complete()
            else:
                rebalance.complete_if_joined()
        return LeaveGroupResponse(members=responses)

    def expire_session(self, group_id: str, member_id: str, out: GroupResult) -> None:
        """Remove a member whose session timed out, unless a parked request shows it alive."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return
        member = group.members.get(member_id)
        rebalance = ClassicRebalance(group, self._config, out)
        if member is None:
            if member_id not in group.pending_joins:
                return
            rebalance.remove_member(member_id)
        elif member.has_satisfied_heartbeat:
            return
        else:
            rebalance.remove_member(member_id)
            log_removed(group_id, "session timed out", [member_id])
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                rebalance.prepare_or_complete()
                return
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            rebalance.complete_join()

    def _existing(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group_id} does not exist")
        return group


def _store_new(
    group: ClassicGroup, former: ConsumerGroup | StreamsGroup | None, out: GroupResult
) -> None:
    """Add the first record of a group, after the tombstones of an empty group of another type."""
    has_record = bool(out.records)
    if former is not None:
        out.records[:0] = former.deletion_records()
    if not has_record:
        out.records.append(new_group_record(group))
        out.completions.append(GroupCreated(group.group_id))


def _leave(rebalance: ClassicRebalance, member_id: str, instance_id: str | None) -> ErrorCode:
    group = rebalance.group
    if not member_id:
        current_id = None if instance_id is None else group.static_members.get(instance_id)
        if current_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = current_id
    elif member_id not in group.pending_joins:
        try:
            group.check_member(member_id, instance_id)
        except ApiError as error:
            return error.code
    rebalance.remove_member(member_id)
    return ErrorCode.NONE


def _check_member_id_prefix(instance_id: str | None, client: Client) -> None:
    """Raise ApiError INVALID_REQUEST if the member id would be too long for a record."""
    limit = MAX_STRING_BYTES - _SUFFIX_BYTES
    name, prefix = "client id", client.client_id
    if instance_id is not None:
        name, prefix = ("group instance id", instance_id)
    size = len(prefix.encode())
    if size > limit:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name} of {size} bytes, a member of a group may have at most {limit}",
        )


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        group.check_member(request.member_id, request.group_instance_id)
    except ApiError as error:
        return error.code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual
