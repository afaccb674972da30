"""The course of a rebalance: which members are awaited, how long, and how their requests end.

The join phase ends when all members have joined, or when the longest rebalance timeout has passed;
dynamic members that did not join are then removed. A group that was Empty waits for the initial
delay instead, and longer while new members keep joining (KIP-134). After the join phase, members
have the same rebalance timeout to send SyncGroup.
"""

import logging
from collections.abc import Sequence
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.log_text import listed, quoted
from spindle.coordinator.classic_group import ClassicGroup, GroupState
from spindle.coordinator.config import GroupCoordinatorConfig
from spindle.coordinator.group_record import group_record
from spindle.coordinator.member import ClassicMember
from spindle.coordinator.outcome import Outcome, TimerKey
from spindle.protocol.messages.join_group import JoinGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

MIN_WAIT_FOR_STATIC_MEMBERS_MS: Final = 1_000
"""Minimum wait for static members when none of the group's members has rejoined.

Without it, members with a rebalance timeout of 0 would make the timer fire again at once.
"""


def tell_removed(group_id: str, reason: str, member_ids: Sequence[str]) -> None:
    """Log that members were removed from a group, if there are any."""
    if member_ids:
        log.info("Removed from group %s (%s): %s", quoted(group_id), reason, listed(member_ids))


def join_response(
    group: ClassicGroup, member_id: str, *, with_members: bool, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return the answer to a join in the current generation; only the leader gets the members."""
    members: list[JoinGroupResponse.JoinGroupResponseMember] = []
    if with_members:
        name = group.protocol_name or ""
        members = [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                metadata=m.metadata(name),
            )
            for m in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return the answer to a join that was refused."""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def answer_join(
    group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse, out: Outcome
) -> None:
    """Answer the member's parked join, if there is one."""
    if member.awaiting_join is not None:
        out.answer(member.awaiting_join, response)
        group.park_join(member, None)


def answer_sync(member: ClassicMember, response: SyncGroupResponse, out: Outcome) -> bool:
    """Answer the member's parked sync; return False if there is none."""
    if member.awaiting_sync is None:
        return False
    out.answer(member.awaiting_sync, response)
    member.awaiting_sync = None
    return True


def keep_alive(
    group: ClassicGroup,
    member: ClassicMember,
    now_ms: int,
    out: Outcome,
    timeout_ms: int | None = None,
) -> None:
    """Restart the member's session timeout."""
    key = TimerKey("heartbeat", group.group_id, member.member_id)
    out.set_timer(key, now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms))


class Rebalances:
    """Starts and finishes rebalances of any group; keeps no state of its own."""

    __slots__ = ("_config",)

    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self._config = config

    def prepare_or_complete(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """After a change of members, begin a rebalance, or end the join phase if it is complete."""
        if group.can_rebalance:
            self.prepare(group, now_ms, out)
        else:
            self.complete_if_joined(group, now_ms, out)

    def prepare(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """Enter PreparingRebalance; every member has to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, out)
        group.pending_syncs.clear()
        out.cancel_timer(TimerKey("sync", group.group_id))
        was_empty = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        log.info(
            "Group %s begins a rebalance after generation %d, %d members",
            quoted(group.group_id),
            group.generation_id,
            len(group.members),
        )
        if was_empty:
            delay_ms = self._config.initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_joins(group, now_ms, delay_ms, out, initial=(delay_ms, left_ms))
        elif group.has_all_members_joined:
            self.complete_join(group, now_ms, out)
        else:
            self._wait_for_joins(group, now_ms, group.rebalance_timeout_ms, out)

    def complete_if_joined(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """Finish the join phase if no member is missing and no initial delay is running."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_members_joined
        ):
            self.complete_join(group, now_ms, out)

    def on_join_timer(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """End the join phase, or begin the next step of the initial delay."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        delay_ms, left_ms = group.initial_delay or (0, 0)
        if group.new_member_added and left_ms:
            group.new_member_added = False
            next_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
            step = (next_ms, max(left_ms - delay_ms, 0))
            self._wait_for_joins(group, now_ms, next_ms, out, initial=step)
        else:
            self.complete_join(group, now_ms, out)

    def complete_join(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """End the join phase with the members that have joined."""
        group.initial_delay = None
        group.new_member_added = False
        out.cancel_timer(TimerKey("join", group.group_id))
        missing = [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]
        for member in missing:
            self.remove_member(group, member.member_id, out)
        tell_removed(group.group_id, "did not rejoin in time", [m.member_id for m in missing])
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none has rejoined. Wait: their sessions may still
            # time out.
            wait_ms = max(group.rebalance_timeout_ms, MIN_WAIT_FOR_STATIC_MEMBERS_MS)
            self._wait_for_joins(group, now_ms, wait_ms, out)
            return
        group.begin_generation(now_ms)
        log.info(
            "Group %s has generation %d with %d members",
            quoted(group.group_id),
            group.generation_id,
            len(group.members),
        )
        if group.state is GroupState.EMPTY:
            out.records.append(group_record(group, {}))
            return
        for member in group.members.values():
            is_leader = group.leader_id == member.member_id
            response = join_response(group, member.member_id, with_members=is_leader)
            answer_join(group, member, response, out)
            keep_alive(group, member, now_ms, out)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        out.set_timer(TimerKey("sync", group.group_id), now_ms + group.rebalance_timeout_ms)

    def on_sync_timer(self, group: ClassicGroup, now_ms: int, out: Outcome) -> None:
        """Remove the members that joined but did not send SyncGroup."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        if not group.pending_syncs:
            return
        silent = list(group.pending_syncs)
        for member_id in silent:
            self.remove_member(group, member_id, out)
        tell_removed(group.group_id, "sent no SyncGroup in time", silent)
        self.prepare(group, now_ms, out)

    def remove_member(self, group: ClassicGroup, member_id: str, out: Outcome) -> None:
        """Remove a member or a pending member; its parked requests get UNKNOWN_MEMBER_ID."""
        member = group.members.get(member_id)
        if member is not None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            answer_join(group, member, join_error(unknown), out)
            answer_sync(member, SyncGroupResponse(error_code=unknown), out)
        out.cancel_timer(TimerKey("heartbeat", group.group_id, member_id))
        group.remove(member_id)

    def set_assignment(
        self, group: ClassicGroup, assignment: dict[str, bytes], now_ms: int, out: Outcome
    ) -> None:
        """Answer every parked sync with its part of the stored assignment, and become Stable."""
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        self._answer_syncs(group, ErrorCode.NONE, now_ms, out)
        group.transition_to(GroupState.STABLE, now_ms)

    def fail_assignment(
        self, group: ClassicGroup, code: ErrorCode, now_ms: int, out: Outcome
    ) -> None:
        """Answer every parked sync with an error; this generation has no assignment."""
        for member in group.members.values():
            member.assignment = b""
        self._answer_syncs(group, code, now_ms, out)

    def _answer_syncs(
        self, group: ClassicGroup, code: ErrorCode, now_ms: int, out: Outcome
    ) -> None:
        is_ok = code is ErrorCode.NONE
        for member in group.members.values():
            response = SyncGroupResponse(
                error_code=code,
                protocol_type=group.protocol_type if is_ok else None,
                protocol_name=group.protocol_name if is_ok else None,
                assignment=member.assignment,
            )
            if answer_sync(member, response, out):
                # A session timeout does nothing while a request is parked, so restart the session
                # now.
                keep_alive(group, member, now_ms, out)

    def _wait_for_joins(
        self,
        group: ClassicGroup,
        now_ms: int,
        wait_ms: int,
        out: Outcome,
        initial: tuple[int, int] | None = None,
    ) -> None:
        group.initial_delay = initial
        out.set_timer(TimerKey("join", group.group_id), now_ms + wait_ms)


def fence_parked_requests(group: ClassicGroup, member: ClassicMember, out: Outcome) -> None:
    """Answer the parked requests of an instance with FENCED_INSTANCE_ID (KIP-345).

    A newer instance takes its instance id.
    """
    fenced = ErrorCode.FENCED_INSTANCE_ID
    answer_join(group, member, join_error(fenced, member.member_id), out)
    answer_sync(member, SyncGroupResponse(error_code=fenced), out)
