"""The phases of a classic rebalance: join, sync, and the removal of members that miss a phase.

The join phase ends when all members have joined, or when the longest rebalance timeout has passed;
dynamic members that did not join are then removed. A group that was Empty waits for the initial
delay instead, and longer while new members keep joining (KIP-134). After the join phase, members
have the same rebalance timeout to send SyncGroup.
"""

import logging
from collections.abc import Sequence
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.text import listed, quoted
from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.classic.group_record import group_record
from spindle.coordinator.classic.member import ClassicMember
from spindle.coordinator.config import GroupCoordinatorConfig
from spindle.coordinator.coordinator_result import GroupResult, TimerKey
from spindle.protocol.messages.join_group import JoinGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

MIN_WAIT_FOR_STATIC_MEMBERS_MS: Final = 1_000
"""Minimum wait for static members when none of the group's members has rejoined.

Without it, members with a rebalance timeout of 0 would make the timer fire again at once.
"""


def log_removed(group_id: str, reason: str, member_ids: Sequence[str]) -> None:
    """Log that members were removed from a group, if there are any."""
    if member_ids:
        log.info("Removed from group %s (%s): %s", quoted(group_id), reason, listed(member_ids))


def join_response(
    group: ClassicGroup, member_id: str, *, with_members: bool, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return the answer to a join in this generation; only the leader's lists the members."""
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
    group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse, out: GroupResult
) -> None:
    """Answer the member's parked join, if there is one."""
    if member.awaiting_join is not None:
        out.answer(member.awaiting_join, response)
        group.park_join(member, None)


def answer_sync(member: ClassicMember, response: SyncGroupResponse, out: GroupResult) -> bool:
    """Answer the member's parked sync; return False if there is none."""
    if member.awaiting_sync is None:
        return False
    out.answer(member.awaiting_sync, response)
    member.awaiting_sync = None
    return True


def keep_alive(
    group: ClassicGroup, member: ClassicMember, out: GroupResult, timeout_ms: int | None = None
) -> None:
    """Restart the member's session timeout."""
    key = TimerKey("heartbeat", group.group_id, member.member_id)
    out.start_timer(key, member.session_timeout_ms if timeout_ms is None else timeout_ms)


def answer_parked(
    group: ClassicGroup, member: ClassicMember, code: ErrorCode, out: GroupResult
) -> None:
    """Answer the member's parked requests with an error."""
    answer_join(group, member, join_error(code, member.member_id), out)
    answer_sync(member, SyncGroupResponse(error_code=code), out)


class ClassicRebalance:
    """Starts and finishes rebalances of a group, and removes members, in one operation."""

    __slots__ = ("_config", "group", "out")

    def __init__(
        self, group: ClassicGroup, config: GroupCoordinatorConfig, out: GroupResult
    ) -> None:
        self._config = config
        self.group = group
        self.out = out

    def prepare_or_complete(self) -> None:
        """After a change of members, begin a rebalance, or end the join phase if it is complete."""
        if self.group.can_rebalance:
            self.prepare()
        else:
            self.complete_if_joined()

    def prepare(self) -> None:
        """Enter PreparingRebalance; every member has to join again."""
        group, out = self.group, self.out
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_assignment(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        out.cancel_timer(TimerKey("sync", group.group_id))
        was_empty = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, out.now_ms)
        log.info(
            "Group %s begins a rebalance after generation %d, %d members",
            quoted(group.group_id),
            group.generation_id,
            len(group.members),
        )
        if was_empty:
            delay_ms = self._config.initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_joins(delay_ms, initial=(delay_ms, left_ms))
        elif group.has_all_members_joined:
            self.complete_join()
        else:
            self._wait_for_joins(group.rebalance_timeout_ms)

    def complete_if_joined(self) -> None:
        """Finish the join phase if no member is missing and no initial delay is running."""
        group = self.group
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_members_joined
        ):
            self.complete_join()

    def on_join_timer(self) -> None:
        """End the join phase, or begin the next step of the initial delay."""
        group = self.group
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        delay_ms, left_ms = group.initial_delay or (0, 0)
        if group.new_member_added and left_ms:
            group.new_member_added = False
            next_ms = min(self._config.initial_rebalance_delay_ms, left_ms)
            self._wait_for_joins(next_ms, initial=(next_ms, max(left_ms - delay_ms, 0)))
        else:
            self.complete_join()

    def complete_join(self) -> None:
        """End the join phase with the members that have joined."""
        group, out = self.group, self.out
        group.initial_delay = None
        group.new_member_added = False
        out.cancel_timer(TimerKey("join", group.group_id))
        missing = [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]
        for member in missing:
            self.remove_member(member.member_id)
        log_removed(group.group_id, "did not rejoin in time", [m.member_id for m in missing])
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none has rejoined. Wait: their sessions may still
            # time out.
            self._wait_for_joins(max(group.rebalance_timeout_ms, MIN_WAIT_FOR_STATIC_MEMBERS_MS))
            return
        group.begin_generation(out.now_ms)
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
            keep_alive(group, member, out)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        out.start_timer(TimerKey("sync", group.group_id), group.rebalance_timeout_ms)

    def on_sync_timer(self) -> None:
        """Remove the members that joined but did not send SyncGroup."""
        group = self.group
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        silent = list(group.pending_syncs)
        if silent:
            for member_id in silent:
                self.remove_member(member_id)
            log_removed(group.group_id, "sent no SyncGroup in time", silent)
            self.prepare()

    def remove_member(self, member_id: str) -> None:
        """Remove a member or a pending member; its parked requests get UNKNOWN_MEMBER_ID."""
        group, out = self.group, self.out
        member = group.members.get(member_id)
        if member is not None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            answer_join(group, member, join_error(unknown), out)
            answer_sync(member, SyncGroupResponse(error_code=unknown), out)
        out.cancel_timer(TimerKey("heartbeat", group.group_id, member_id))
        group.remove(member_id)

    def set_assignment(self, assignment: dict[str, bytes]) -> None:
        """Answer every parked sync with its part of the stored assignment, and become Stable."""
        group = self.group
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        self._answer_syncs(ErrorCode.NONE)
        group.transition_to(GroupState.STABLE, self.out.now_ms)

    def fail_assignment(self, code: ErrorCode) -> None:
        """Answer every parked sync with an error; this generation has no assignment."""
        for member in self.group.members.values():
            member.assignment = b""
        self._answer_syncs(code)

    def _answer_syncs(self, code: ErrorCode) -> None:
        group = self.group
        is_ok = code is ErrorCode.NONE
        for member in group.members.values():
            response = SyncGroupResponse(
                error_code=code,
                protocol_type=group.protocol_type if is_ok else None,
                protocol_name=group.protocol_name if is_ok else None,
                assignment=member.assignment,
            )
            if answer_sync(member, response, self.out):
                # A session timeout does nothing while a request is parked, so restart the session
                # now.
                keep_alive(group, member, self.out)

    def _wait_for_joins(self, wait_ms: int, initial: tuple[int, int] | None = None) -> None:
        self.group.initial_delay = initial
        self.out.start_timer(TimerKey("join", self.group.group_id), wait_ms)
