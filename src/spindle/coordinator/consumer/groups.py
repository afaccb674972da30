"""All consumer groups of a shard: requests, timers and what a new coordinator does first."""

from collections.abc import Callable
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.classic_group import ClassicGroup, GroupState
from spindle.coordinator.config import ConsumerGroupConfig
from spindle.coordinator.consumer import descriptions
from spindle.coordinator.consumer.descriptions import DescribedConsumerGroup
from spindle.coordinator.consumer.draft import TopicsView
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import JOINING_EPOCH, ConsumerMember, MemberState
from spindle.coordinator.consumer.memberships import ConsumerMemberships
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.outcome import Client, Outcome, TimerKey
from spindle.coordinator.records import GroupRecord
from spindle.metadata.topics import EMPTY_TOPICS
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CONSUMER_TIMERS: Final = ("consumer_session", "revocation")
"""Kinds of the timers of members of consumer groups."""


class ConsumerGroups:
    """Decides on the requests of members of consumer groups.

    Attributes:
        view: the topics of the latest request, for the timers that fire after it.
    """

    __slots__ = ("_config", "_configs", "_groups", "_memberships", "view")

    def __init__(
        self, config: ConsumerGroupConfig, groups: GroupTable, new_id: Callable[[], str]
    ) -> None:
        self._config = config
        self._configs: dict[str, ConsumerGroupConfig] = {}
        self._groups = groups
        self._memberships = ConsumerMemberships(new_id)
        self.view = TopicsView(EMPTY_TOPICS, -1)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        config: ConsumerGroupConfig,
        view: TopicsView,
        now_ms: int,
        out: Outcome,
    ) -> ConsumerGroupHeartbeatResponse:
        """Decide on ConsumerGroupHeartbeat.

        Raises:
            ApiError: the request is refused; the message says why.
        """
        self.view = view
        group = self._group_of(request, out)
        if request.member_epoch < JOINING_EPOCH:
            return self._memberships.leave(group, request, view.topics, out)
        self._configs[group.group_id] = config
        return self._memberships.heartbeat(group, config, request, client, view, now_ms, out)

    def _group_of(self, request: ConsumerGroupHeartbeatRequest, out: Outcome) -> ConsumerGroup:
        """Return the group, a new one for a member that joins.

        An empty classic group becomes a consumer group, and keeps its offsets.
        """
        group_id = request.group_id
        classic = self._groups.get(group_id)
        group = self._groups.consumer.get(group_id)
        if classic is None and group is not None:
            return group
        if request.member_epoch != JOINING_EPOCH or (classic is not None and not _is_idle(classic)):
            kind = "Group" if request.member_epoch < JOINING_EPOCH else "Consumer group"
            reason = f"{kind} {group_id} not found."
            if classic is not None:
                reason = f"Group {group_id} is not a consumer group."
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
        if classic is not None:
            out.records.append(GroupRecord(group_id, None))
        return ConsumerGroup(group_id)

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """Answer ConsumerGroupDescribe for one group."""
        group = self._groups.consumer.get(group_id)
        if self._groups.get(group_id) is not None:
            return descriptions.missing(group_id, f"Group {group_id} is not a consumer group.")
        if group is None:
            return descriptions.missing(group_id, f"Group {group_id} not found.")
        return descriptions.described(group, self._config.assignors[0], self.view.topics)

    # ------------------------------------------------------------ time

    def on_timer(self, key: TimerKey, now_ms: int, out: Outcome) -> None:
        """Remove a member that was silent for too long, or did not give up its partitions."""
        group = self._groups.consumer.get(key.group_id)
        member = None if group is None else group.members.get(key.member_id)
        if group is None or member is None:
            return
        if key.kind == "revocation" and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return
        self._memberships.remove(group, member.member_id, self.view.topics, out)
        # If the removal is not committed, the session timer tries again.
        key = TimerKey("consumer_session", group.group_id, member.member_id)
        out.set_timer(key, now_ms + self._config_of(group).session_timeout_ms)

    def loaded(self, now_ms: int, out: Outcome) -> None:
        """Begin the sessions of all members, and the time of those that give up partitions."""
        for group in self._groups.consumer.values():
            for member in group.members.values():
                self._begin_session(group, member, now_ms, out)

    def _begin_session(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: Outcome
    ) -> None:
        session = TimerKey("consumer_session", group.group_id, member.member_id)
        out.set_timer(session, now_ms + self._config_of(group).session_timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            revocation = TimerKey("revocation", group.group_id, member.member_id)
            out.set_timer(revocation, now_ms + member.rebalance_timeout_ms)

    def _config_of(self, group: ConsumerGroup) -> ConsumerGroupConfig:
        return self._configs.get(group.group_id, self._config)


def _is_idle(group: ClassicGroup) -> bool:
    return group.state is GroupState.EMPTY and not group.pending_joins
