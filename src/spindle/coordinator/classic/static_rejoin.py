"""A static member joins again under a new member id (KIP-345, KIP-814).

In a Stable group this starts no rebalance as long as the selected protocol stays the same: the new
member id is stored with the old assignment, and the join is answered when the record is committed.
Parked requests of the old instance are answered with FENCED_INSTANCE_ID.
"""

from spindle.common.errors import ErrorCode
from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.classic.group_record import group_record
from spindle.coordinator.classic.member import ClassicMember, protocols_of
from spindle.coordinator.classic.rebalance import (
    ClassicRebalance,
    answer_join,
    answer_parked,
    join_error,
    join_response,
    keep_alive,
)
from spindle.coordinator.coordinator_result import (
    GroupRequest,
    GroupResult,
    StaticMemberStored,
    TimerKey,
)
from spindle.protocol import versions
from spindle.protocol.messages.join_group import JoinGroupRequest


def rejoin_static_member(
    request: GroupRequest[JoinGroupRequest],
    rebalance: ClassicRebalance,
    instance_id: str,
    member_id: str,
) -> None:
    """Park the join of an instance that the group knows, and give it its new member id."""
    message, group, out = request.message, rebalance.group, rebalance.out
    old = group.members[group.static_members[instance_id]]
    old_leader_id = group.leader_id
    answer_parked(group, old, ErrorCode.FENCED_INSTANCE_ID, out)
    out.cancel_timer(TimerKey("heartbeat", group.group_id, old.member_id))
    member = group.replace_static_member(instance_id, member_id)
    group.update_member(
        member,
        protocols_of(message),
        message.rebalance_timeout_ms,
        message.session_timeout_ms,
        request.token,
    )
    keep_alive(group, member, out)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be about to send an assignment for the old member id.
        rebalance.prepare()
    elif group.state is not GroupState.STABLE:
        rebalance.complete_if_joined()
    elif group.select_protocol() != group.protocol_name:
        rebalance.prepare_or_complete()
    else:
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
                request.client.api_version >= versions.JOIN_GROUP_SKIP_ASSIGNMENT,
            )
        )


def finish_static_rejoin(
    group: ClassicGroup | None, stored: StaticMemberStored, code: ErrorCode, out: GroupResult
) -> None:
    """Answer the join when the record with the new id is committed, or undo the change."""
    member = None if group is None else group.members.get(stored.new_member_id)
    if group is None or member is None or group.state is not GroupState.STABLE:
        # A rebalance began meanwhile. It answers the join, and the next generation's record has the
        # new member id, also if this record was not written.
        return
    if code is not ErrorCode.NONE:
        _undo(group, member, stored, code, out)
        return
    # A session timeout does nothing while the join is parked, so restart the session now.
    keep_alive(group, member, out)
    if stored.can_skip_assignment:
        is_leader = group.leader_id == member.member_id
        response = join_response(
            group, member.member_id, with_members=is_leader, skip_assignment=is_leader
        )
    else:
        response = join_response(group, member.member_id, with_members=False)
        # Name the old id: with its new id as leader, the member would compute an assignment.
        response.leader = stored.old_leader_id or ""
    answer_join(group, member, response, out)


def _undo(
    group: ClassicGroup,
    member: ClassicMember,
    stored: StaticMemberStored,
    code: ErrorCode,
    out: GroupResult,
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
    keep_alive(group, old, out)
