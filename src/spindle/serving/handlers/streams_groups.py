"""The APIs of streams groups: members and descriptions (KIP-1071)."""

from collections.abc import Sequence
from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import INTERNAL_TOPICS
from spindle.controller.topic_names import is_topic_name
from spindle.coordinator.streams.descriptions import (
    DescribedStreamsGroup,
    streams_description_error,
)
from spindle.coordinator.streams.topology import InternalTopic, StreamsStatus
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from spindle.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.cooperative import cooperatively
from spindle.serving.handlers.groups import client_of
from spindle.serving.permissions import (
    TOPIC_DENIED,
    check_group,
    group_operations,
    may_use_cluster,
    may_use_topic,
)
from spindle.serving.services import BrokerServices

_HIDDEN_TOPICS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)
_TIMEOUT_MS: Final = 5000
_CREATED: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


async def streams_group_heartbeat(
    services: BrokerServices, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Handle a heartbeat of a streams group's member; create the internal topics of the group."""
    try:
        check_group(services, context, Operation.READ, request.group_id)
        if request.topology is not None:
            _check_topics(services, context, request.topology)
        response, missing = await services.groups.streams_heartbeat(request, client_of(context))
    except ApiError as error:
        return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    if missing:
        problem = await _create(services, context, missing)
        for line in response.status or () if problem else ():
            if line.status_code == StreamsStatus.MISSING_INTERNAL_TOPICS:
                line.status_detail += f"; {problem}"
    return response


def _check_topics(
    services: BrokerServices,
    context: RequestContext,
    topology: StreamsGroupHeartbeatRequest.Topology,
) -> None:
    """Raise ApiError unless the sender may describe all topics of its topology."""
    names = dict.fromkeys(
        name
        for subtopology in topology.subtopologies
        for name in (
            *subtopology.source_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    )
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            "prohibited.",
        )
    invalid = [name for name in names if not is_topic_name(name)]
    if invalid:
        raise ApiError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Topic names {','.join(invalid)} are not valid topic names.",
        )
    if not all(may_use_topic(services, context, Operation.DESCRIBE, name) for name in names):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED)


async def _create(
    services: BrokerServices, context: RequestContext, topics: Sequence[InternalTopic]
) -> str:
    """Create topics in the name of the broker, if the sender may; return what went wrong."""
    if not may_use_cluster(services, context, Operation.CREATE, is_logged=False):
        denied = [
            topic.name
            for topic in topics
            if not may_use_topic(services, context, Operation.CREATE, topic.name)
        ]
        if denied:
            return f"Unauthorized to CREATE on topics {', '.join(denied)}."
    request = CreateTopicsRequest(
        timeout_ms=_TIMEOUT_MS,
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
                    for key, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
    )
    try:
        response: CreateTopicsResponse = await services.controller.request(request, None)
    except ApiError as error:
        return f"Creation failed: {error.message}"
    failed = [t for t in response.topics if t.error_code not in _CREATED]
    return "; ".join(f"Creation of {t.name} failed: {t.error_message}" for t in failed)


async def streams_group_describe(
    services: BrokerServices, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Describe streams groups with their topologies and members."""
    groups = []
    async for group_id in cooperatively(dict.fromkeys(request.group_ids)):
        try:
            check_group(services, context, Operation.DESCRIBE, group_id)
        except ApiError as error:
            groups.append(streams_description_error(group_id, error.code, error.message))
            continue
        for group in services.groups.describe_streams_groups([group_id]):
            names = _topics_of(group)
            if not all(may_use_topic(services, context, Operation.DESCRIBE, n) for n in names):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                groups.append(streams_description_error(group_id, code, _HIDDEN_TOPICS))
                continue
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(services, context, group_id)
            groups.append(group)
    return StreamsGroupDescribeResponse(groups=groups)


def _topics_of(group: DescribedStreamsGroup) -> set[str]:
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    return {
        name
        for subtopology in subtopologies
        for name in (
            *subtopology.source_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    }
