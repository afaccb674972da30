"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup and session timeouts, for one shard's groups.

This module decides which clients may join, under which member id, and whether a join starts a
rebalance. Requests that must wait are parked in the group; `Rebalances` answers them.
"""

from collections.abc import Callable
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.classic_group import ClassicGroup, GroupState
from spindle.coordinator.config import GroupCoordinatorConfig
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.effects import Token
from spindle.coordinator.group_record import group_record, new_group_record
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.member import ClassicMember, protocols_of
from spindle.coordinator.outcome import AssignmentStored, Client, GroupCreated, Outcome, TimerKey
from spindle.coordinator.rebalance import (
    Rebalances,
    answer_join,
    answer_sync,
    join_error,
    join_response,
    keep_alive,
    tell_removed,
)
from spindle.coordinator.static_members import StaticReturns
from spindle.protocol.codec import MAX_STRING_BYTES
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

KNOWN_MEMBER_ID_FROM_VERSION = 4
"""Since this version a new dynamic member must join with a member id given out before (KIP-394)."""

_SUFFIX_BYTES: Final = 37
"""Length of the end of a new member id, after its prefix: a hyphen and a UUID."""


class Memberships:
    """Decides on the requests of members."""

    __slots__ = ("_config", "_groups", "_new_id", "_rebalances", "static_returns")

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        groups: GroupTable,
        rebalances: Rebalances,
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._groups = groups
        self._rebalances = rebalances
        self._new_id = new_id
        self.static_returns = StaticReturns(groups, rebalances)

    # ------------------------------------------------------------ join

    def join(
        self, token: Token, request: JoinGroupRequest, client: Client, now_ms: int, out: Outcome
    ) -> None:
        """Answer a join at once, or park it until its group's join phase ends.

        Raises:
            ApiError: INVALID_REQUEST, the client or instance id is too long to begin a member id.
        """
        member_id = request.member_id
        if not member_id:
            _check_member_id_prefix(request.group_instance_id, client)
        group = self._groups.get(request.group_id)
        is_new_group = group is None
        consumer_group = self._groups.consumer.get(request.group_id)
        if group is None:
            if member_id:
                out.answer(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
                return
            group = self._groups.create(request.group_id, now_ms)
        if not self._has_room_for(group, member_id):
            if member_id:
                self._rebalances.remove_member(group, member_id, out)
            out.answer(token, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif group.state is GroupState.DEAD:
            out.answer(token, join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
        elif not group.supports(request.protocol_type, protocols_of(request)):
            out.answer(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif member_id:
            self._join_known(token, request, client, group, now_ms, out)
        else:
            self._join_unknown(token, request, client, group, now_ms, out)
        if is_new_group:
            self._store_new(group, consumer_group, out)

    def _store_new(
        self, group: ClassicGroup, consumer_group: ConsumerGroup | None, out: Outcome
    ) -> None:
        """Add the first record of a group, after the tombstones of an empty consumer group."""
        has_record = bool(out.records)
        if consumer_group is not None:
            out.records[:0] = consumer_group.deletion_records()
        if not has_record:
            out.records.append(new_group_record(group))
            out.completions.append(GroupCreated(group.group_id))

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
        self,
        token: Token,
        request: JoinGroupRequest,
        client: Client,
        group: ClassicGroup,
        now_ms: int,
        out: Outcome,
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self._new_id()}"
            if instance_id in group.static_members:
                self.static_returns.begin(token, request, client, group, member_id, now_ms, out)
            else:
                self._add_member(token, request, client, group, member_id, now_ms, out)
            return
        member_id = f"{client.client_id}-{self._new_id()}"
        if client.api_version < KNOWN_MEMBER_ID_FROM_VERSION:
            self._add_member(token, request, client, group, member_id, now_ms, out)
            return
        group.pending_joins[member_id] = None
        key = TimerKey("heartbeat", group.group_id, member_id)
        out.set_timer(key, now_ms + request.session_timeout_ms)
        out.answer(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))

    def _join_known(
        self,
        token: Token,
        request: JoinGroupRequest,
        client: Client,
        group: ClassicGroup,
        now_ms: int,
        out: Outcome,
    ) -> None:
        member_id = request.member_id
        if member_id in group.pending_joins and request.group_instance_id is None:
            self._add_member(token, request, client, group, member_id, now_ms, out)
            return
        try:
            group.check_member(member_id, request.group_instance_id)
        except ApiError as error:
            out.answer(token, join_error(error.code, member_id))
            return
        member = group.members[member_id]
        # A leader that joins again may know of a change that members cannot see, such as new
        # partitions.
        if (
            group.state is GroupState.PREPARING_REBALANCE
            or member.protocols != protocols_of(request)
            or (group.state is GroupState.STABLE and group.leader_id == member_id)
        ):
            self._rejoin(token, request, group, member, now_ms, out)
        else:
            # The member did not get its answer, or it is a follower whose protocols have not
            # changed.
            is_leader = group.leader_id == member_id
            out.answer(token, join_response(group, member_id, with_members=is_leader))

    def _rejoin(
        self,
        token: Token,
        request: JoinGroupRequest,
        group: ClassicGroup,
        member: ClassicMember,
        now_ms: int,
        out: Outcome,
    ) -> None:
        # A member that joins again no longer waits for its earlier request; answer that one.
        answer_join(group, member, join_error(ErrorCode.REBALANCE_IN_PROGRESS), out)
        group.update_member(
            member,
            protocols_of(request),
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            token,
        )
        self._rebalances.prepare_or_complete(group, now_ms, out)

    def _add_member(
        self,
        token: Token,
        request: JoinGroupRequest,
        client: Client,
        group: ClassicGroup,
        member_id: str,
        now_ms: int,
        out: Outcome,
    ) -> None:
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols_of(request),
        )
        member.is_new = True
        state = group.state
        if state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, token)
        # A new member cannot send heartbeats before its join is answered, so it gets more time.
        keep_alive(group, member, now_ms, out, self._config.new_member_join_timeout_ms)
        self._rebalances.prepare_or_complete(group, now_ms, out)

    # ------------------------------------------------------------ sync

    def sync(self, token: Token, request: SyncGroupRequest, now_ms: int, out: Outcome) -> None:
        """Answer with the assignment, or park the request until the leader's is stored."""
        group = self._groups.get(request.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _check_sync(group, request)
        if group is None or code is not ErrorCode.NONE:
            out.answer(token, SyncGroupResponse(error_code=code))
            return
        member = group.members[request.member_id]
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            out.cancel_timer(TimerKey("sync", group.group_id))
        if group.state is GroupState.STABLE:
            out.answer(
                token,
                SyncGroupResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                ),
            )
            return
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), out)
        member.awaiting_sync = token
        if group.takes_assignment_of(member.member_id):
            given = {a.member_id: a.assignment for a in request.assignments}
            assignment = {member_id: given.get(member_id, b"") for member_id in group.members}
            out.records.append(group_record(group, assignment))
            group.storing = AssignmentStored(group.group_id, assignment)
            out.completions.append(group.storing)

    def finish_assignment(
        self, stored: AssignmentStored, code: ErrorCode, now_ms: int, out: Outcome
    ) -> None:
        """Store the leader's assignment in the group if it was committed, else rebalance."""
        group = self._groups.get(stored.group_id)
        if group is None or group.storing is not stored:
            # A rebalance began meanwhile, or another group now has this id.
            return
        if code is ErrorCode.NONE:
            self._rebalances.set_assignment(group, stored.assignment, now_ms, out)
        else:
            self._rebalances.fail_assignment(group, code, now_ms, out)
            self._rebalances.prepare_or_complete(group, now_ms, out)

    # ------------------------------------------------------------ heartbeat and leave

    def heartbeat(self, request: HeartbeatRequest, now_ms: int, out: Outcome) -> HeartbeatResponse:
        """Restart the member's session timeout, and answer whether the member has to join again.

        Raises:
            ApiError: the group, member or generation is not known, or the member is fenced.
        """
        group = self._groups.get(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} does not exist")
        if group.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        keep_alive(group, group.members[request.member_id], now_ms, out)
        if group.state is GroupState.PREPARING_REBALANCE:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    def leave(self, request: LeaveGroupRequest, now_ms: int, out: Outcome) -> LeaveGroupResponse:
        """Remove members by member id, or static members by instance id alone (KIP-345).

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, the group does not exist.
        """
        group = self._groups.get(request.group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} does not exist")
        if group.state is GroupState.DEAD:
            return LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        responses = [
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=self._leave_one(
                    group, identity.member_id, identity.group_instance_id, out
                ),
            )
            for identity in request.members
        ]
        left = [r.member_id or r.group_instance_id or "" for r in responses if not r.error_code]
        tell_removed(group.group_id, "left", left)
        if left:
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalances.prepare_or_complete(group, now_ms, out)
            else:
                self._rebalances.complete_if_joined(group, now_ms, out)
        return LeaveGroupResponse(members=responses)

    def _leave_one(
        self, group: ClassicGroup, member_id: str, instance_id: str | None, out: Outcome
    ) -> ErrorCode:
        if not member_id:
            current_id = None if instance_id is None else group.static_members.get(instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._rebalances.remove_member(group, current_id, out)
        elif member_id in group.pending_joins:
            self._rebalances.remove_member(group, member_id, out)
        else:
            try:
                group.check_member(member_id, instance_id)
            except ApiError as error:
                return error.code
            self._rebalances.remove_member(group, member_id, out)
        return ErrorCode.NONE

    def expire_session(self, group_id: str, member_id: str, now_ms: int, out: Outcome) -> None:
        """Remove a member whose session timed out, unless a parked request shows it alive."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return
        member = group.members.get(member_id)
        if member is None:
            if member_id not in group.pending_joins:
                return
            self._rebalances.remove_member(group, member_id, out)
        elif member.has_satisfied_heartbeat:
            return
        else:
            self._rebalances.remove_member(group, member_id, out)
            tell_removed(group_id, "session timed out", [member_id])
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._rebalances.prepare_or_complete(group, now_ms, out)
                return
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            self._rebalances.complete_join(group, now_ms, out)


def _check_member_id_prefix(instance_id: str | None, client: Client) -> None:
    """Raise ApiError INVALID_REQUEST if the member id would be too long for a record."""
    limit = MAX_STRING_BYTES - _SUFFIX_BYTES
    name, prefix = ("client id", client.client_id)
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
