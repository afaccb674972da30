"""ConsumerGroupHeartbeat: joining, reconciling, leaving and being removed (KIP-848).

Every operation decides on committed state, and changes nothing itself. It is exclusive: its records
are committed before the next decision. Only heartbeats that can do nothing but move their own
member to the group's target assignment (`is_own_step`) may be decided side by side: the targets of
members do not overlap, so no such step depends on another one. At worst a step does not see that a
partition is being given up; the member then gets it with its next heartbeat.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.log_text import quoted
from spindle.common.uuids import Uuid
from spindle.coordinator.config import ConsumerGroupConfig
from spindle.coordinator.consumer.departures import Departures, stop_step_timers
from spindle.coordinator.consumer.draft import GroupDraft, TopicsView
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
    Partitions,
    partitions_of,
)
from spindle.coordinator.consumer.reconciliation import reconcile
from spindle.coordinator.consumer.records import current_record
from spindle.coordinator.consumer.requests import (
    claimed_partitions,
    is_full,
    member_after,
    member_before,
    replaced_member,
    static_member,
)
from spindle.coordinator.consumer.subscriptions import existing
from spindle.coordinator.outcome import Client, Outcome, TimerKey
from spindle.metadata.topics import TopicsImage
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

log = logging.getLogger(__name__)

_TopicPartitions = ConsumerGroupHeartbeatResponse.Assignment.TopicPartitions


class ConsumerMemberships:
    """Decides on the members of all consumer groups of a shard."""

    __slots__ = ("_departures", "_new_id")

    def __init__(self, departures: Departures, new_id: Callable[[], str]) -> None:
        self._departures = departures
        self._new_id = new_id

    def heartbeat(
        self,
        group: ConsumerGroup,
        config: ConsumerGroupConfig,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        view: TopicsView,
        now_ms: int,
        out: Outcome,
    ) -> ConsumerGroupHeartbeatResponse:
        """Let a member join or stay, and take its next step to the target assignment.

        Raises:
            ApiError: the member is not known, fenced, or its group is full.
        """
        member_id = request.member_id or self._new_id()
        check_size(group, member_id, config)
        old = member_before(group, request, member_id)
        member = member_after(old, request, client)
        replaced = replaced_member(group, request)
        if old.classic is not None:
            stop_step_timers(group, member_id, out)
        owned = claimed_partitions(request.topic_partitions)
        view = replace(view, may_describe=client.may_describe)
        moved = self.advance(group, old, member, replaced, owned, config, view, now_ms, out)
        key = TimerKey("consumer_session", group.group_id, member_id)
        out.set_timer(key, now_ms + config.session_timeout_ms)
        key = TimerKey("revocation", group.group_id, member_id)
        if moved.state is not MemberState.UNREVOKED_PARTITIONS:
            out.cancel_timer(key)
        elif moved is not member:
            # The time begins with the record that tells the member; heartbeats do not extend it.
            out.set_timer(key, now_ms + moved.rebalance_timeout_ms)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
        )
        if is_full(request) or partitions_of(moved.assigned) != partitions_of(old.assigned):
            response.assignment = _assignment(moved)
        return response

    def advance(
        self,
        group: ConsumerGroup,
        old: ConsumerMember,
        member: ConsumerMember,
        replaced: ConsumerMember | None,
        owned: Partitions | None,
        config: ConsumerGroupConfig,
        view: TopicsView,
        now_ms: int,
        out: Outcome,
    ) -> ConsumerMember:
        """Add or update a member, in place of an earlier one, and return it after its next step.

        Args:
            owned: partitions that the member says it owns; None if it did not say.
        """
        draft = GroupDraft(group, out)
        draft.put(member, replaced)
        draft.refresh(old, member, view, now_ms)
        if draft.epoch > group.epoch:
            log.info(
                "Group %s begins epoch %d with %d members",
                quoted(group.group_id),
                draft.epoch,
                len(draft.members),
            )
        draft.assign(config, view.topics, now_ms)
        moved = _next_step(draft, old, member, owned, view.topics)
        if moved != member or moved.epoch != old.epoch:
            out.records.append(current_record(group.group_id, moved))
            group.stepping[moved.member_id] = None
        return moved

    def leave(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        topics: TopicsImage,
        now_ms: int,
        out: Outcome,
    ) -> ConsumerGroupHeartbeatResponse:
        """Remove a member that leaves; a static one may leave for a while.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance
                id.
        """
        instance_id = request.instance_id
        if instance_id is None:
            member = group.member(request.member_id)
        else:
            member = static_member(group, instance_id, request.member_id)
        if instance_id is not None and request.member_epoch == STATIC_LEAVING_EPOCH:
            # Its session timer goes on: it has until then to come back. It comes back with another
            # member id, for which its partitions count as assigned in epoch 0.
            away = replace(
                member,
                epoch=STATIC_LEAVING_EPOCH,
                assigned={
                    topic: dict.fromkeys(owned, 0) for topic, owned in member.assigned.items()
                },
                revoking={},
            )
            out.records.append(current_record(group.group_id, away))
            out.cancel_timer(TimerKey("revocation", group.group_id, member.member_id))
        else:
            self._departures.remove(group, [member.member_id], topics, now_ms, out, reason="left")
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )


def is_own_step(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, client: Client, view: TopicsView
) -> bool:
    """Return True if a heartbeat can have no other record than that of its member's assignment.

    False also if such a record of the same member is still being appended.
    """
    member = group.members.get(request.member_id)
    return (
        member is not None
        and request.member_epoch > JOINING_EPOCH
        and request.member_id not in group.stepping
        and group.topics_seen is view.topics
        and group.epoch <= group.assignment_epoch
        and member_after(member, request, client) == member
    )


def check_size(group: ConsumerGroup, member_id: str, config: ConsumerGroupConfig) -> None:
    """Raise ApiError GROUP_MAX_SIZE_REACHED if the group has no room for a new member."""
    if len(group.members) >= config.max_size and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {config.max_size} members.",
        )


def epoch_with(
    group: ConsumerGroup,
    old: ConsumerMember,
    member: ConsumerMember,
    replaced: ConsumerMember,
    view: TopicsView,
    now_ms: int,
) -> int:
    """Return the group's epoch after a member with an instance id has taken another one's place."""
    draft = GroupDraft(group, Outcome())
    draft.put(member, replaced)
    draft.refresh(old, member, view, now_ms)
    return draft.epoch


def _next_step(
    draft: GroupDraft,
    old: ConsumerMember,
    member: ConsumerMember,
    owned: Partitions | None,
    topics: TopicsImage,
) -> ConsumerMember:
    """Return the member after its next step.

    The target may be older than the member's subscription, so topics that the member has left
    since are taken out of it.
    """
    group = draft.group
    topic_ids = {topic.topic_id for topic in existing(draft.topics_of(member), topics).values()}

    def is_free(topic_id: Uuid, partition: int) -> bool:
        # The member has given up what it was told to, if it takes this step.
        is_own = partition in member.revoking.get(topic_id, ())
        return is_own or group.is_free(topic_id, partition)

    whole = draft.targets.get(member.member_id, {})
    target = {topic_id: found for topic_id, found in whole.items() if topic_id in topic_ids}
    left = set() if member.subscribes_like(old) else member.assigned.keys() - topic_ids
    return reconcile(member, draft.assignment_epoch, target, owned, is_free, left)


def _assignment(member: ConsumerMember) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            _TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in member.assigned.items()
        ]
    )
