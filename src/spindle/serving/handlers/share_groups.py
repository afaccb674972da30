"""The APIs of share groups: members, descriptions and start offsets (KIP-932)."""

from collections.abc import Iterable
from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.coordinator.share.delivery import UNINITIALIZED_OFFSET
from spindle.coordinator.share.descriptions import share_description_error
from spindle.coordinator.share.state_records import Snapshot
from spindle.metadata.features import SHARE_VERSION
from spindle.metadata.topics import TopicImage
from spindle.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from spindle.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from spindle.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from spindle.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from spindle.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.cooperative import cooperatively
from spindle.serving.handlers.groups import client_of
from spindle.serving.permissions import (
    GROUP_DENIED,
    TOPIC_DENIED,
    check_group,
    group_operations,
    may_use_group,
    may_use_topic,
)
from spindle.serving.services import BrokerServices

_HIDDEN_TOPICS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)
_UNKNOWN: Final = -1

_DescribedOffsets = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_DescribedTopic = _DescribedOffsets.DescribeShareGroupOffsetsResponseTopic
_DescribedPartition = _DescribedTopic.DescribeShareGroupOffsetsResponsePartition
_AlteredTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_AlteredPartition = _AlteredTopic.AlterShareGroupOffsetsResponsePartition
_DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


def _check_feature(services: BrokerServices) -> None:
    """Raise ApiError UNSUPPORTED_VERSION unless the cluster serves share groups."""
    if services.metadata.image.features.levels.get(SHARE_VERSION, 0) < 1:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


async def share_group_heartbeat(
    services: BrokerServices, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Handle a heartbeat of a share group's member, which also joins and leaves."""
    try:
        _check_feature(services)
        check_group(services, context, Operation.READ, request.group_id)
        for name in dict.fromkeys(request.subscribed_topic_names or ()):
            if not may_use_topic(services, context, Operation.DESCRIBE, name):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED)
        return await services.share_groups.heartbeat(request, client_of(context))
    except ApiError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


async def share_group_describe(
    services: BrokerServices, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe share groups with their members."""
    groups = []
    async for group_id in cooperatively(dict.fromkeys(request.group_ids)):
        try:
            _check_feature(services)
            check_group(services, context, Operation.DESCRIBE, group_id)
        except ApiError as error:
            groups.append(share_description_error(group_id, error.code, error.message))
            continue
        for group in services.share_groups.describe([group_id]):
            topics = {
                assigned.topic_name
                for member in group.members
                for assigned in member.assignment.topic_partitions
            }
            if not all(may_use_topic(services, context, Operation.DESCRIBE, t) for t in topics):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                groups.append(share_description_error(group_id, code, _HIDDEN_TOPICS))
                continue
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(services, context, group_id)
            groups.append(group)
    return ShareGroupDescribeResponse(groups=groups)


# ---------------------------------------------------------------- start offsets


async def describe_share_group_offsets(
    services: BrokerServices,
    context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse:
    """Describe where groups are in partitions: all of a group whose topics are null."""
    response = DescribeShareGroupOffsetsResponse()
    async for asked in cooperatively(request.groups):
        group = _DescribedOffsets(group_id=asked.group_id)
        response.groups.append(group)
        try:
            _check_feature(services)
            check_group(services, context, Operation.DESCRIBE, asked.group_id)
            group.topics = await _described_topics(services, context, asked)
        except ApiError as error:
            group.error_code, group.error_message = error.code, error.message
    return response


async def _described_topics(
    services: BrokerServices,
    context: RequestContext,
    asked: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
) -> list[_DescribedTopic]:
    image = services.metadata.image.topics
    known = services.share_groups.initialized_partitions(asked.group_id) or ()
    wanted: dict[str, list[int]] = {}
    if asked.topics is None:
        for where in known:
            if where.topic_id in image.by_id:
                wanted.setdefault(image.by_id[where.topic_id].name, []).append(where.partition)
    else:
        for named in asked.topics:
            wanted[named.topic_name] = list(dict.fromkeys(named.partitions))
    readable: list[TopicIdPartition] = []
    topics: dict[str, _DescribedTopic] = {}
    for name, indexes in wanted.items():
        topic = image.by_name.get(name)
        is_allowed = may_use_topic(
            services, context, Operation.DESCRIBE, name, is_logged=asked.topics is not None
        )
        if not is_allowed and asked.topics is None:
            continue
        described = topics[name] = _DescribedTopic(topic_name=name)
        if is_allowed and topic is not None:
            described.topic_id = topic.topic_id
        for index in indexes:
            error = _partition_error(topic, index, is_allowed=is_allowed)
            described.partitions.append(
                _DescribedPartition(
                    partition_index=index,
                    start_offset=UNINITIALIZED_OFFSET,
                    error_code=ErrorCode.NONE if error is None else error.code,
                    error_message=None if error is None else error.message,
                )
            )
            if error is None and topic is not None:
                readable.append(TopicIdPartition(topic.topic_id, index))
    await _fill(services, asked.group_id, readable, topics.values())
    return list(topics.values())


async def _fill(
    services: BrokerServices,
    group_id: str,
    readable: list[TopicIdPartition],
    topics: Iterable[_DescribedTopic],
) -> None:
    """Set start offsets and lags."""
    states = await services.share_groups.summaries(group_id, readable)
    started = [
        where
        for where, state in states.items()
        if isinstance(state, Snapshot) and state.start_offset != UNINITIALIZED_OFFSET
    ]
    ends = await services.latest_offsets(started)
    for topic in topics:
        for partition in topic.partitions:
            where = TopicIdPartition(topic.topic_id, partition.partition_index)
            state = states.get(where)
            if isinstance(state, ApiError):
                partition.error_code, partition.error_message = state.code, state.message
            elif isinstance(state, Snapshot):
                partition.start_offset = state.start_offset
                partition.leader_epoch = state.leader_epoch
                partition.lag = _lag(state, ends.get(where, _UNKNOWN))


def _lag(state: Snapshot, end_offset: int) -> int:
    """Return the number of records that are not done; -1 if it is not known."""
    if _UNKNOWN in (end_offset, state.start_offset, state.delivery_complete_count):
        return _UNKNOWN
    return max(end_offset - state.start_offset - state.delivery_complete_count, 0)


def _partition_error(topic: TopicImage | None, index: int, *, is_allowed: bool) -> ApiError | None:
    if not is_allowed:
        return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED)
    if topic is None or index not in topic.partitions:
        return ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    return None


async def alter_share_group_offsets(
    services: BrokerServices, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Begin partitions of a group without members at other offsets."""
    response = AlterShareGroupOffsetsResponse()
    image = services.metadata.image.topics
    offsets: dict[bytes, tuple[str, dict[int, int]]] = {}
    try:
        _check_feature(services)
        if not may_use_group(services, context, Operation.READ, request.group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, GROUP_DENIED)
        for asked in request.topics:
            name = asked.topic_name
            is_allowed = may_use_topic(services, context, Operation.READ, name)
            topic = image.by_name.get(name)
            altered = _AlteredTopic(topic_name=name)
            if is_allowed and topic is not None:
                altered.topic_id = topic.topic_id
            for partition in asked.partitions:
                index = partition.partition_index
                error = _partition_error(topic, index, is_allowed=is_allowed)
                altered.partitions.append(
                    _AlteredPartition(
                        partition_index=index,
                        error_code=ErrorCode.NONE if error is None else error.code,
                        error_message=None if error is None else error.message,
                    )
                )
                if error is None and topic is not None:
                    by_index = offsets.setdefault(topic.topic_id, (name, {}))[1]
                    by_index[index] = partition.start_offset
            response.responses.append(altered)
        done = await services.share_groups.reset(request.group_id, offsets)
    except ApiError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    for altered in response.responses:
        for result in altered.partitions:
            refused = done.get(TopicIdPartition(altered.topic_id, result.partition_index))
            if refused is not None:
                result.error_code, result.error_message = refused.code, refused.message
    return response


async def delete_share_group_offsets(
    services: BrokerServices, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Delete the states of topics of a group without members."""
    response = DeleteShareGroupOffsetsResponse()
    image = services.metadata.image.topics
    try:
        _check_feature(services)
        if not may_use_group(services, context, Operation.DELETE, request.group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, GROUP_DENIED)
        partitions = services.share_groups.initialized_partitions(request.group_id)
        if partitions is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        known = {where.topic_id for where in partitions}
        topic_ids = []
        for asked in request.topics:
            topic = image.by_name.get(asked.topic_name)
            deleted = _DeletedTopic(topic_name=asked.topic_name)
            response.responses.append(deleted)
            if not may_use_topic(services, context, Operation.READ, asked.topic_name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                deleted.error_code, deleted.error_message = code, TOPIC_DENIED
            elif topic is None:
                deleted.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                deleted.error_message = "This server does not host this topic-partition."
            elif topic.topic_id not in known:
                deleted.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                deleted.error_message = "There is no offset information to delete."
            else:
                deleted.topic_id = topic.topic_id
                topic_ids.append(topic.topic_id)
        done = await services.share_groups.delete_offsets(request.group_id, topic_ids)
    except ApiError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    for deleted in response.responses:
        refused = done.get(deleted.topic_id)
        if refused is not None:
            deleted.error_code, deleted.error_message = refused.code, refused.message
    return response
