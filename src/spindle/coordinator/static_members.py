"""The return of a static member under a new member id (KIP-345, KIP-814).

In a Stable group this starts no rebalance as long as the selected protocol stays the same: the new
member id is stored with the old assignment, and the join is answered when the record is committed.
Parked requests of the old instance are answered with FENCED_INSTANCE_ID.
"""

from typing import Final

from spindle.common.errors import ErrorCode
from spindle.coordinator.classic_group import ClassicGroup, GroupState
from spindle.coordinator.effects import Token
from spindle.coordinator.group_record import group_record
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.member import ClassicMember, protocols_of
from spindle.coordinator.outcome import Client, Outcome, StaticMemberStored, TimerKey
from spindle.coordinator.rebalance import (
    Rebalances,
    answer_join,
    fence_parked_requests,
    join_error,
    join_response,
    keep_alive,
)
from spindle.protocol.messages.join_group import JoinGroupRequest

SKIP_ASSIGNMENT_FROM_VERSION: Final = 9
"""Since this version JoinGroup can tell a returning static leader to keep the assignment."""


class StaticReturns:
    """Decides on joins without a member id whose instance id is that of a member."""

    __slots__ = ("_groups", "_rebalances")

    def __init__(self, groups: GroupTable, rebalances: Rebalances) -> None:
        self._groups = groups
        self._rebalances = rebalances

    def begin(
        self,
        token: Token,
        request: JoinGroupRequest,
        client: Client,
        group: ClassicGroup,
        member_id: str,
        now_ms: int,
        out: Outcome,
    ) -> None:
        instance_id = request.group_instance_id or ""
        old = group.members[group.static_members[instance_id]]
        old_leader_id = group.leader_id
        fence_parked_requests(group, old, out)
        out.cancel_timer(TimerKey("heartbeat", group.group_id, old.member_id))
        member = group.replace_static_member(instance_id, member_id)
        group.update_member(
            member,
            protocols_of(request),
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            token,
        )
        keep_alive(group, member, now_ms, out)
        if group.state is GroupState.STABLE:
            if group.select_protocol() != group.protocol_name:
                self._rebalances.prepare_or_complete(group, now_ms, out)
                return
            # A coordinator that loads the record computes the same.
            group.subscribed_topics = group.compute_subscribed_topics()
            assignment = {m.member_id: m.assignment for m in group.members.values()}
            out.records.append(group_record(group, assignment))
            out.completions.append(
                StaticMemberStored(
                    group.group_id,
                    instance_id,
                    old.member_id,
                    member_id,
                    old_leader_id,
                    old.protocols,
                    old.rebalance_timeout_ms,
                    old.session_timeout_ms,
                    client.api_version >= SKIP_ASSIGNMENT_FROM_VERSION,
                )
            )
        elif group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be about to send an assignment for the old member id.
            self._rebalances.prepare(group, now_ms, out)
        else:
            self._rebalances.complete_if_joined(group, now_ms, out)

    def finish(
        self, stored: StaticMemberStored, code: ErrorCode, now_ms: int, out: Outcome
    ) -> None:
        """Answer the join when the record with the new id is committed, or undo the change."""
        group = self._groups.get(stored.group_id)
        member = None if group is None else group.members.get(stored.new_member_id)
        if group is None or member is None or group.state is not GroupState.STABLE:
            # A rebalance began meanwhile. It answers the join, and the next generation's record has
            # the new member id, also if this record was not written.
            return
        if code is not ErrorCode.NONE:
            self._undo(group, member, stored, code, now_ms, out)
            return
        # A session timeout does nothing while the join is parked, so restart the session now.
        keep_alive(group, member, now_ms, out)
        if stored.can_skip_assignment:
            is_leader = group.leader_id == member.member_id
            response = join_response(
                group, member.member_id, with_members=is_leader, skip_assignment=is_leader
            )
            answer_join(group, member, response, out)
        else:
            response = join_response(group, member.member_id, with_members=False)
            # Name the old id: with its new id as leader, the member would compute an assignment.
            response.leader = stored.old_leader_id or ""
            answer_join(group, member, response, out)

    def _undo(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        stored: StaticMemberStored,
        code: ErrorCode,
        now_ms: int,
        out: Outcome,
    ) -> None:
        answer_join(group, member, join_error(code), out)
        group.update_member(
            member,
            stored.old_protocols,
            stored.old_rebalance_timeout_ms,
            stored.old_session_timeout_ms,
            None,
        )
        old = group.replace_static_member(stored.group_instance_id, stored.old_member_id)
        group.subscribed_topics = group.compute_subscribed_topics()
        out.cancel_timer(TimerKey("heartbeat", group.group_id, stored.new_member_id))
        keep_alive(group, old, now_ms, out)
