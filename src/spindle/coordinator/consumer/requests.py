"""The fields of a ConsumerGroupHeartbeat: are they allowed, and which member do they mean?"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.coordinator.consumer.group import ConsumerGroup
from spindle.coordinator.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    Owned,
    Partitions,
)
from spindle.coordinator.consumer.subscriptions import check_regex
from spindle.coordinator.outcome import Client
from spindle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CLIENT_MEMBER_ID_FROM_VERSION: Final = 1
"""Since this version the client chooses the member id (KIP-1082)."""


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
        epoch != JOINING_EPOCH or api_version >= CLIENT_MEMBER_ID_FROM_VERSION
    ):
        raise _invalid("MemberId can't be empty.")
    if epoch == JOINING_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    wished = request.server_assignor
    known = list(assignors)
    if wished is not None and wished not in known:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {wished} is not supported. Supported assignors: {', '.join(known)}.",
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


# ---------------------------------------------------------------- members


def member_before(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> ConsumerMember:
    """Return the member as it was before this heartbeat; a new one in epoch 0 if it joins."""
    is_joining = request.member_epoch == JOINING_EPOCH
    instance_id = request.instance_id
    if instance_id is None or group.static_member(instance_id) is None:
        if instance_id is not None and not is_joining:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if is_joining and member_id not in group.members:
            return ConsumerMember(member_id)
        member = group.member(member_id)
        _check_epoch(member, request)
        return member
    if is_joining:
        current = group.static_member(instance_id)
        assert current is not None
        if not current.has_left and current.classic is None:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {current.member_id} member.",
            )
        return replace(
            current, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH
        )
    member = static_member(group, instance_id, member_id)
    _check_epoch(member, request)
    return member


def replaced_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember | None:
    """Return the earlier member of this instance id, whose place a joining member takes."""
    if request.member_epoch != JOINING_EPOCH or request.instance_id is None:
        return None
    return group.static_member(request.instance_id)


def static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    """Return the member with an instance id.

    Raises:
        ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if it has another member id by now.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


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
        claimed_partitions(request.topic_partitions), member.assigned
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


def member_after(
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


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return True if the member needs its whole assignment: it joins, or it lost an answer."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def claimed_partitions(
    topics: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None,
) -> dict[Uuid, frozenset[int]] | None:
    """Return the partitions that a member says it owns; None if it did not say."""
    if topics is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}
