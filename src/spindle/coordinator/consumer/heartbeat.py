"""ConsumerGroupHeartbeat: checks of its fields, joining, reconciling and leaving (KIP-848).

Every operation decides on committed state, and changes nothing itself. It is exclusive: its records
are committed before the next decision. Only heartbeats that can do nothing but move their own
member to the group's target assignment (`is_own_step`) may be decided while others are being
appended: the targets of members do not overlap, so no such step depends on another one. At worst a
step does not see that a partition is being given up; the member then gets it with its next
heartbeat.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.coordinator.config import ConsumerGroupConfig
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.group_update import ConsumerGroupUpdate
from spindle.coordinator.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
    Owned,
    Partitions,
    partitions_of,
)
from spindle.coordinator.consumer.member_removal import remove_members, stop_step_timers
from spindle.coordinator.consumer.records import current_record
from spindle.coordinator.consumer.subscriptions import TopicsView, check_regex
from spindle.coordinator.coordinator_result import Client, GroupRequest, TimerKey
from spindle.protocol import versions
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_TopicPartitions = ConsumerGroupHeartbeatResponse.Assignment.TopicPartitions


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Iterable[str]
) -> None:
    """Raise ApiError unless the fields of a heartbeat agree with each other.

    INVALID_REQUEST, UNSUPPORTED_ASSIGNOR or INVALID_REGULAR_EXPRESSION.
    """
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    epoch = request.member_epoch
    if not request.member_id and (
        epoch != JOINING_EPOCH or api_version >= versions.CONSUMER_GROUP_HEARTBEAT_CLIENT_MEMBER_ID
    ):
        raise _invalid("MemberId can't be empty.")
    if epoch == JOINING_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    known = list(assignors)
    if assignor is not None and assignor not in known:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(known)}.",
        )
    if request.subscribed_topic_regex:
        check_regex(request.subscribed_topic_regex)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)


# ---------------------------------------------------------------- decisions


def heartbeat(
    update: ConsumerGroupUpdate,
    request: GroupRequest[ConsumerGroupHeartbeatRequest],
    new_id: Callable[[], str],
) -> ConsumerGroupHeartbeatResponse:
    """Let a member join or stay, and take its next step to the target assignment.

    Raises:
        ApiError: the member is not known, fenced, or its group is full.
    """
    message, group, config, out = request.message, update.group, update.config, update.out
    member_id = message.member_id or new_id()
    check_size(group, member_id, config)
    old, replaced = _member_before(group, message, member_id)
    member = _member_after(old, message, request.client)
    if old.classic is not None:
        stop_step_timers(group, member_id, out)
    moved = update.advance(old, member, replaced, _claimed(message.topic_partitions))
    key = TimerKey("consumer_session", group.group_id, member_id)
    out.start_timer(key, config.session_timeout_ms)
    key = TimerKey("revocation", group.group_id, member_id)
    if moved.state is not MemberState.UNREVOKED_PARTITIONS:
        out.cancel_timer(key)
    elif moved is not member:
        # The time begins with the record of the revocation; heartbeats do not extend it.
        out.start_timer(key, moved.rebalance_timeout_ms)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
    )
    if _is_full(message) or partitions_of(moved.assigned) != partitions_of(old.assigned):
        response.assignment = _assignment(moved)
    return response


def leave(
    update: ConsumerGroupUpdate, message: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Remove a member that leaves; a static one may leave for a while.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id.
    """
    group, out = update.group, update.out
    member = group.member(message.member_id, message.instance_id)
    if message.instance_id is not None and message.member_epoch == STATIC_LEAVING_EPOCH:
        # It may come back until its session times out. It comes back with another member id, for
        # which its partitions count as assigned in epoch 0.
        away = replace(
            member,
            epoch=STATIC_LEAVING_EPOCH,
            assigned={topic: dict.fromkeys(owned, 0) for topic, owned in member.assigned.items()},
            revoking={},
        )
        out.records.append(current_record(group.group_id, away))
        out.cancel_timer(TimerKey("revocation", group.group_id, member.member_id))
    else:
        remove_members(update, [member.member_id], "left")
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=message.member_epoch
    )


def is_own_step(
    group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest, client: Client, view: TopicsView
) -> bool:
    """Return True if the heartbeat can only write its member's current-assignment record.

    False also if such a record of the same member is still being appended.
    """
    member = group.members.get(message.member_id)
    return (
        member is not None
        and message.member_epoch > JOINING_EPOCH
        and message.member_id not in group.stepping
        and group.topics_seen is view.topics
        and group.epoch <= group.assignment_epoch
        and _member_after(member, message, client) == member
    )


def check_size(group: ConsumerGroup, member_id: str, config: ConsumerGroupConfig) -> None:
    """Raise ApiError GROUP_MAX_SIZE_REACHED if the group has no room for a new member."""
    if len(group.members) >= config.max_size and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {config.max_size} members.",
        )


# ---------------------------------------------------------------- members


def _member_before(
    group: ConsumerGroup, message: ConsumerGroupHeartbeatRequest, member_id: str
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Return the member as it was before this heartbeat, and the instance whose place it takes.

    A new member is in epoch 0.
    """
    if message.member_epoch != JOINING_EPOCH:
        member = group.member(member_id, message.instance_id)
        _check_epoch(member, message)
        return member, None
    current = group.static_member(message.instance_id)
    if current is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    if not current.has_left and current.classic is None:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {message.instance_id} cannot join the "
            f"group because the instance id is owned by {current.member_id} member.",
        )
    joining = replace(
        current, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH
    )
    return joining, current


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise ApiError FENCED_MEMBER_EPOCH unless the member is in the epoch that it sends.

    The previous epoch is accepted from a member that owns nothing new: it did not get the answer.
    Epoch 0 is accepted as well: a member that joins again owns nothing.
    """
    received = request.member_epoch
    if received in (member.epoch, JOINING_EPOCH):
        return
    if received > member.epoch:
        size = "greater"
    elif received == member.previous_epoch and _is_part(
        _claimed(request.topic_partitions), member.assigned
    ):
        return
    else:
        size = "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _is_part(claimed: Partitions | None, assigned: Owned) -> bool:
    return claimed is not None and all(
        partitions <= set(assigned.get(topic_id, ())) for topic_id, partitions in claimed.items()
    )


def _member_after(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerMember:
    """Return the member with the fields that the request sets; null means that nothing changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=client.client_id,
        client_host=client.client_host,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True if the response must have the full assignment: it joins or sends all fields."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _claimed(
    topics: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None,
) -> dict[Uuid, frozenset[int]] | None:
    """Return the partitions that a member says it owns; None if it did not say."""
    if topics is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def _assignment(member: ConsumerMember) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            _TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in member.assigned.items()
        ]
    )
