"""All consumer groups of a shard: heartbeats, timers, and the work after loading."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.classic.rebalance import answer_parked
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.group_migration import check_upgrade, upgrade_records
from spindle.coordinator.consumer.group_update import ConsumerGroupUpdate
from spindle.coordinator.consumer.heartbeat import heartbeat, is_own_step, leave
from spindle.coordinator.consumer.member import JOINING_EPOCH, ConsumerMember, MemberState
from spindle.coordinator.consumer.member_removal import remove_members
from spindle.coordinator.consumer.records import ConsumerGroupRecord
from spindle.coordinator.coordinator_result import (
    CONSUMER_STEP_TIMERS,
    Client,
    GroupRequest,
    GroupResult,
    TimerKey,
)
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.records import GroupRecord
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_REASONS: Final = {
    "consumer_session": "session timed out",
    "revocation": "did not give up partitions in time",
    "consumer_join": "did not rejoin in time",
    "consumer_sync": "sent no SyncGroup in time",
}
CONSUMER_TIMERS: Final = ("consumer_session", *CONSUMER_STEP_TIMERS)
"""Kinds of the timers of members of consumer groups."""


class ConsumerGroups:
    """Decides on ConsumerGroupHeartbeat and on the timers of members of consumer groups."""

    __slots__ = ("_groups", "_new_id")

    def __init__(self, groups: GroupTable, new_id: Callable[[], str]) -> None:
        self._groups = groups
        self._new_id = new_id

    def heartbeat(
        self, request: GroupRequest[ConsumerGroupHeartbeatRequest]
    ) -> ConsumerGroupHeartbeatResponse:
        """Decide on ConsumerGroupHeartbeat; it is exclusive unless `is_own_step`.

        Raises:
            ApiError: the request is refused; the message says why.
        """
        group = self._group_of(request.message, request.out)
        view = self._groups.view
        if request.client.may_describe is not None:
            view = replace(view, may_describe=request.client.may_describe)
        update = ConsumerGroupUpdate(self._groups, group, request.out, view)
        if request.message.member_epoch < JOINING_EPOCH:
            return leave(update, request.message)
        return heartbeat(update, request, self._new_id)

    def is_own_step(self, message: ConsumerGroupHeartbeatRequest, client: Client) -> bool:
        """Return True if the heartbeat can change nothing but its own member's assignment."""
        group = self._groups.consumer.get(message.group_id)
        if group is None or self._groups.get(message.group_id) is not None:
            return False
        return is_own_step(group, message, client, self._groups.view)

    def not_appended(self, record: ConsumerGroupRecord) -> None:
        """Handle a record that will never be committed."""
        group = self._groups.consumer.get(record.group_id)
        if group is not None:
            group.stepping.pop(record.item, None)

    def _group_of(self, message: ConsumerGroupHeartbeatRequest, out: GroupResult) -> ConsumerGroup:
        """Return the group, a new one for a member that joins.

        A classic group becomes a consumer group with the first member that uses the consumer
        protocol, and keeps its offsets.
        """
        group_id = message.group_id
        classic = self._groups.get(group_id)
        group = self._groups.consumer.get(group_id)
        if classic is None and group is not None:
            return group
        if group_id in self._groups.share or group_id in self._groups.streams:
            reason = f"Group {group_id} is not a consumer group."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        if message.member_epoch != JOINING_EPOCH:
            kind = "Group" if message.member_epoch < JOINING_EPOCH else "Consumer group"
            reason = f"{kind} {group_id} not found."
            if classic is not None:
                reason = f"Group {group_id} is not a consumer group."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        if classic is None:
            return ConsumerGroup(group_id)
        if classic.state is GroupState.EMPTY:
            out.records.append(GroupRecord(group_id, None))
            return ConsumerGroup(group_id)
        return self._upgrade(classic, out)

    def _upgrade(self, classic: ClassicGroup, out: GroupResult) -> ConsumerGroup:
        """Return the consumer group that a classic group with members becomes."""
        check_upgrade(classic, self._groups.config)
        records = upgrade_records(classic, self._groups.view.topics)
        group = ConsumerGroup(classic.group_id)
        for record in records:
            group.replay(record)
        out.records.append(GroupRecord(classic.group_id, None))
        out.records += records
        for member in classic.members.values():
            answer_parked(classic, member, ErrorCode.REBALANCE_IN_PROGRESS, out)
        for upgraded in group.members.values():
            self._begin_session(group, upgraded, out)
        return group

    def on_timer(self, key: TimerKey, out: GroupResult) -> None:
        """Remove a member that was silent for too long, or that did not take its next step."""
        group = self._groups.consumer.get(key.group_id)
        member = None if group is None else group.members.get(key.member_id)
        if group is None or member is None or self._groups.get(key.group_id) is not None:
            return
        if key.kind == "revocation" and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return
        update = ConsumerGroupUpdate(self._groups, group, out)
        remove_members(update, [member.member_id], _REASONS[key.kind])
        # If the removal is not committed, the session timer tries again.
        self._start_session_timer(group, member, out)

    def loaded(self, out: GroupResult) -> None:
        """Start the timers of all sessions, and of members that give up partitions."""
        for group in self._groups.consumer.values():
            for member in group.members.values():
                self._begin_session(group, member, out)

    def _begin_session(
        self, group: ConsumerGroup, member: ConsumerMember, out: GroupResult
    ) -> None:
        self._start_session_timer(group, member, out)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            revocation = TimerKey("revocation", group.group_id, member.member_id)
            out.start_timer(revocation, member.rebalance_timeout_ms)

    def _start_session_timer(
        self, group: ConsumerGroup, member: ConsumerMember, out: GroupResult
    ) -> None:
        settings = member.classic or self._groups.config_of(group.group_id)
        key = TimerKey("consumer_session", group.group_id, member.member_id)
        out.start_timer(key, settings.session_timeout_ms)
