"""All consumer groups of a shard: requests, timers and what a new coordinator does first."""

from collections.abc import Callable
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.classic_group import ClassicGroup, GroupState
from spindle.coordinator.config import ConsumerGroupConfig, GroupCoordinatorConfig
from spindle.coordinator.consumer import descriptions
from spindle.coordinator.consumer.classic_members import ClassicMembers
from spindle.coordinator.consumer.conversions import check_upgrade, upgrade_records
from spindle.coordinator.consumer.departures import Departures
from spindle.coordinator.consumer.descriptions import DescribedConsumerGroup
from spindle.coordinator.consumer.draft import TopicsView
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import JOINING_EPOCH, ConsumerMember, MemberState
from spindle.coordinator.consumer.memberships import ConsumerMemberships, is_own_step
from spindle.coordinator.consumer.records import ConsumerGroupRecord
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.outcome import CONSUMER_STEP_TIMERS, Client, Outcome, TimerKey
from spindle.coordinator.rebalance import Rebalances, answer_join, answer_sync, join_error
from spindle.coordinator.records import GroupRecord
from spindle.metadata.topics import EMPTY_TOPICS
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_REASONS: Final = {
    "consumer_session": "session timed out",
    "revocation": "did not give up partitions in time",
    "consumer_join": "did not rejoin in time",
    "consumer_sync": "sent no SyncGroup in time",
}
CONSUMER_TIMERS: Final = ("consumer_session", *CONSUMER_STEP_TIMERS)
"""Kinds of the timers of members of consumer groups."""


class ConsumerGroups:
    """Decides on the requests of members of consumer groups.

    Args:
        config_of: returns the settings that a group has now.

    Attributes:
        view: the topics of the latest request, for the timers that fire after it.
    """

    __slots__ = (
        "_classic",
        "_config",
        "_config_of",
        "_departures",
        "_groups",
        "_memberships",
        "view",
    )

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        groups: GroupTable,
        rebalances: Rebalances,
        new_id: Callable[[], str],
        config_of: Callable[[str], ConsumerGroupConfig],
    ) -> None:
        self._config = config
        self._config_of = config_of
        self._groups = groups
        self._departures = Departures(config, groups, rebalances)
        self._memberships = ConsumerMemberships(self._departures, new_id)
        self._classic = ClassicMembers(
            config.migration, self._memberships, self._departures, new_id
        )
        self.view = TopicsView(EMPTY_TOPICS, -1)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        view: TopicsView,
        now_ms: int,
        out: Outcome,
    ) -> ConsumerGroupHeartbeatResponse:
        """Decide on ConsumerGroupHeartbeat.

        Raises:
            ApiError: the request is refused; the message says why.
        """
        self.view = view
        group = self._group_of(request, now_ms, out)
        if request.member_epoch < JOINING_EPOCH:
            return self._memberships.leave(group, request, view.topics, now_ms, out)
        config = self._config_of(group.group_id)
        return self._memberships.heartbeat(group, config, request, client, view, now_ms, out)

    def is_own_step(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, view: TopicsView
    ) -> bool:
        """Return True if the heartbeat can change nothing but its own member's assignment."""
        group = self._groups.consumer.get(request.group_id)
        if group is None or self._groups.get(request.group_id) is not None:
            return False
        return is_own_step(group, request, client, view)

    def not_appended(self, record: ConsumerGroupRecord) -> None:
        """Take note that a record will never be committed."""
        group = self._groups.consumer.get(record.group_id)
        if group is not None:
            group.stepping.pop(record.item, None)

    def _group_of(
        self, request: ConsumerGroupHeartbeatRequest, now_ms: int, out: Outcome
    ) -> ConsumerGroup:
        """Return the group, a new one for a member that joins.

        A classic group becomes a consumer group with the first member that uses the consumer
        protocol, and keeps its offsets.
        """
        group_id = request.group_id
        classic = self._groups.get(group_id)
        group = self._groups.consumer.get(group_id)
        if classic is None and group is not None:
            return group
        if request.member_epoch != JOINING_EPOCH:
            kind = "Group" if request.member_epoch < JOINING_EPOCH else "Consumer group"
            reason = f"{kind} {group_id} not found."
            if classic is not None:
                reason = f"Group {group_id} is not a consumer group."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        if classic is None:
            return ConsumerGroup(group_id)
        if classic.state is GroupState.EMPTY:
            out.records.append(GroupRecord(group_id, None))
            return ConsumerGroup(group_id)
        return self._upgrade(classic, now_ms, out)

    def _upgrade(self, classic: ClassicGroup, now_ms: int, out: Outcome) -> ConsumerGroup:
        """Return the consumer group that a classic group with members becomes."""
        check_upgrade(classic, self._config)
        records = upgrade_records(classic, self.view.topics)
        group = ConsumerGroup(classic.group_id)
        for record in records:
            group.replay(record)
        out.records.append(GroupRecord(classic.group_id, None))
        out.records += records
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member in classic.members.values():
            answer_join(classic, member, join_error(code, member.member_id), out)
            answer_sync(member, SyncGroupResponse(error_code=code), out)
        for upgraded in group.members.values():
            self._begin_session(group, upgraded, now_ms, out)
        return group

    # ------------------------------------------------------------ members of the classic protocol

    def serves(self, group_id: str) -> bool:
        """Return True if classic members of the group are members of a consumer group."""
        group = self._groups.consumer.get(group_id)
        return group is not None and bool(group.members) and self._groups.get(group_id) is None

    def join(
        self, request: JoinGroupRequest, client: Client, now_ms: int, out: Outcome
    ) -> JoinGroupResponse:
        """Decide on JoinGroup. Raises ApiError if it is refused."""
        group = self._groups.consumer[request.group_id]
        config = self._config_of(group.group_id)
        return self._classic.join(group, config, request, client, self.view, now_ms, out)

    def sync(self, request: SyncGroupRequest, now_ms: int, out: Outcome) -> SyncGroupResponse:
        """Decide on SyncGroup. Raises ApiError if it is refused."""
        group = self._groups.consumer[request.group_id]
        return self._classic.sync(group, request, self.view.topics, now_ms, out)

    def classic_heartbeat(
        self, request: HeartbeatRequest, now_ms: int, out: Outcome
    ) -> HeartbeatResponse:
        """Decide on Heartbeat. Raises ApiError if it is refused."""
        group = self._groups.consumer[request.group_id]
        config = self._config_of(group.group_id)
        return self._classic.heartbeat(group, config, request, now_ms, out)

    def leave(self, request: LeaveGroupRequest, now_ms: int, out: Outcome) -> LeaveGroupResponse:
        """Decide on LeaveGroup."""
        group = self._groups.consumer[request.group_id]
        return self._classic.leave(group, request, self.view.topics, now_ms, out)

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """Answer ConsumerGroupDescribe for one group."""
        group = self._groups.consumer.get(group_id)
        if self._groups.get(group_id) is not None:
            return descriptions.missing(group_id, f"Group {group_id} is not a consumer group.")
        if group is None:
            return descriptions.missing(group_id, f"Group {group_id} not found.")
        return descriptions.described(group, self._config.consumer.assignors[0], self.view.topics)

    # ------------------------------------------------------------ time

    def on_timer(self, key: TimerKey, now_ms: int, out: Outcome) -> None:
        """Remove a member that was silent for too long, or that did not take its next step."""
        group = self._groups.consumer.get(key.group_id)
        member = None if group is None else group.members.get(key.member_id)
        if group is None or member is None or self._groups.get(key.group_id) is not None:
            return
        if key.kind == "revocation" and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return
        reason = _REASONS[key.kind]
        self._departures.remove(
            group, [member.member_id], self.view.topics, now_ms, out, reason=reason
        )
        # If the removal is not committed, the session timer tries again.
        key = TimerKey("consumer_session", group.group_id, member.member_id)
        out.set_timer(key, now_ms + self._session_ms(group, member))

    def loaded(self, now_ms: int, out: Outcome) -> None:
        """Begin the sessions of all members, and the time of those that give up partitions."""
        for group in self._groups.consumer.values():
            for member in group.members.values():
                self._begin_session(group, member, now_ms, out)

    def _begin_session(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: Outcome
    ) -> None:
        session = TimerKey("consumer_session", group.group_id, member.member_id)
        out.set_timer(session, now_ms + self._session_ms(group, member))
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            revocation = TimerKey("revocation", group.group_id, member.member_id)
            out.set_timer(revocation, now_ms + member.rebalance_timeout_ms)

    def _session_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._config_of(group.group_id).session_timeout_ms
