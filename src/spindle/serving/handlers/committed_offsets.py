"""OffsetCommit, OffsetFetch and OffsetDelete.

The handlers check which topics and partitions exist. Requests name topics by name up to version 9
of commit and fetch, by id since version 10 (KIP-848, KIP-516). The coordinator gets names, and for
a commit always the id too, so that an offset does not outlive its topic.
"""

from collections.abc import Iterable
from itertools import chain
from typing import TypeVar

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import ZERO_UUID
from spindle.coordinator.append_errors import coordinator_error
from spindle.coordinator.offset_requests import (
    CommittedTopic,
    CommitTopicT,
    DeletedPartition,
    DeletedTopic,
    FetchedGroup,
    FetchedPartition,
    FetchedTopic,
    commit_topic,
    refused_topics,
)
from spindle.metadata.image import MetadataImage
from spindle.protocol import versions
from spindle.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from spindle.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from spindle.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from spindle.protocol.sentinels import NO_OFFSET
from spindle.serving.context import RequestContext
from spindle.serving.cooperative import cooperatively
from spindle.serving.handlers.groups import GroupServices, client_of
from spindle.serving.permissions import check_group, may_use_topic

RequestedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
RequestedTopic = RequestedGroup.OffsetFetchRequestTopics
NamedTopic = OffsetFetchResponse.OffsetFetchResponseTopic
NamedPartition = NamedTopic.OffsetFetchResponsePartition
RequestedTopicT = TypeVar(
    "RequestedTopicT",
    OffsetCommitRequest.OffsetCommitRequestTopic,
    TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
)


# ---------------------------------------------------------------- OffsetCommit


async def handle_offset_commit(
    services: GroupServices, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Commit the offsets of partitions that exist; the others get an error."""
    try:
        check_group(services, context, Operation.READ, request.group_id)
    except ApiError as error:
        return OffsetCommitResponse(
            topics=refused_topics(CommittedTopic, request.topics, error.code)
        )
    by_id = context.api_version >= versions.OFFSET_COMMIT_TOPIC_IDS
    request.topics, refused = known_topics(
        services, context, request.topics, CommittedTopic, by_id=by_id
    )
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    try:
        response = await services.groups.commit_offsets(request, client_of(context))
    except ApiError as error:
        topics = refused_topics(CommittedTopic, request.topics, error.code)
        response = OffsetCommitResponse(topics=topics)
    if refused:
        response.topics = merged_topics(refused, response.topics)
    return response


def known_topics(
    services: GroupServices,
    context: RequestContext,
    topics: Iterable[RequestedTopicT],
    topic_type: type[CommitTopicT],
    *,
    by_id: bool,
) -> tuple[list[RequestedTopicT], list[CommitTopicT]]:
    """Return the topics of a commit with name, id and the partitions that exist, and the others as
    topics of its response.
    """
    known, refused = [], []
    image = services.metadata.image.topics
    for topic in topics:
        stored = image.by_id.get(topic.topic_id) if by_id else image.by_name.get(topic.name)
        name = topic.name if stored is None else stored.name
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if stored is None and by_id:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not may_use_topic(services, context, Operation.READ, name):
            code, stored = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        if stored is not None:
            topic.name, topic.topic_id = stored.name, stored.topic_id
        existing = {} if stored is None else stored.partitions
        unknown = [p.partition_index for p in topic.partitions if p.partition_index not in existing]
        if unknown or stored is None:
            refused.append(commit_topic(topic_type, topic, [(index, code) for index in unknown]))
        topic.partitions = [p for p in topic.partitions if p.partition_index in existing]
        if topic.partitions:
            known.append(topic)
    return known, refused


def merged_topics(
    refused: Iterable[CommitTopicT], done: Iterable[CommitTopicT]
) -> list[CommitTopicT]:
    """Merge the refused partitions and the coordinator's results, in this order."""
    topics: dict[tuple[str, bytes], CommitTopicT] = {}
    for topic in chain(refused, done):  # a request may name a topic more than once
        present = topics.setdefault((topic.name, topic.topic_id), topic)
        if present is not topic:
            present.partitions += topic.partitions
    return list(topics.values())


# ---------------------------------------------------------------- OffsetFetch


async def handle_offset_fetch(
    services: GroupServices, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Answer with the committed offsets of one group, or since version 8 of several."""
    version = context.api_version
    if version >= versions.OFFSET_FETCH_BATCHED:
        groups = []
        seen: set[str] = set()
        async for group in cooperatively(request.groups):
            if group.group_id in seen:
                # An answer may hold all offsets of a group, so each group is answered once.
                groups.append(_fetch_error(group, ErrorCode.INVALID_REQUEST, version))
                continue
            seen.add(group.group_id)
            groups.append(await _fetch_group(services, context, group, request.require_stable))
        return OffsetFetchResponse(groups=groups)
    group = RequestedGroup(
        group_id=request.group_id,
        topics=None
        if request.topics is None
        else [
            RequestedTopic(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ],
    )
    fetched = await _fetch_group(services, context, group, request.require_stable)
    return OffsetFetchResponse(
        error_code=fetched.error_code,
        topics=[
            NamedTopic(
                name=topic.name,
                partitions=[
                    NamedPartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in topic.partitions
                ],
            )
            for topic in fetched.topics
        ],
    )


async def _fetch_group(
    services: GroupServices, context: RequestContext, group: RequestedGroup, require_stable: bool
) -> FetchedGroup:
    image, version = services.metadata.image, context.api_version
    by_id = version >= versions.OFFSET_FETCH_TOPIC_IDS
    refused: list[FetchedTopic] = []
    try:
        check_group(services, context, Operation.DESCRIBE, group.group_id)
    except ApiError as error:
        return _fetch_error(group, error.code, version)
    if by_id and group.topics is not None:
        refused = _take_unknown_topics(image, group)
    if group.topics is not None:
        refused += _take_hidden_topics(services, context, group)
    for topic in () if by_id else group.topics or ():
        # Never return an offset committed for a deleted topic of the same name.
        topic_image = image.topics.by_name.get(topic.name)
        topic.topic_id = ZERO_UUID if topic_image is None else topic_image.topic_id
    try:
        fetched = await services.groups.fetch_offsets(group, require_stable=require_stable)
    except ApiError as error:
        return _fetch_error(group, _fetch_error_code(error.code), version)
    if group.topics is None:
        fetched.topics = [
            topic
            for topic in _of_present_topics(image, fetched.topics, by_id)
            if may_use_topic(services, context, Operation.DESCRIBE, topic.name)
        ]
    fetched.topics += refused
    return fetched


def _take_unknown_topics(image: MetadataImage, group: RequestedGroup) -> list[FetchedTopic]:
    """Fill in the names of the request's topics; remove and return those with an unknown id."""
    known, unknown = [], []
    for topic in group.topics or ():
        topic_image = image.topics.by_id.get(topic.topic_id)
        if topic_image is None:
            unknown.append(_failed_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = topic_image.name
            known.append(topic)
    group.topics = known
    return unknown


def _take_hidden_topics(
    services: GroupServices, context: RequestContext, group: RequestedGroup
) -> list[FetchedTopic]:
    """Remove and return the request's topics that the sender may not describe."""
    shown, hidden = [], []
    for topic in group.topics or ():
        if may_use_topic(services, context, Operation.DESCRIBE, topic.name):
            shown.append(topic)
        else:
            hidden.append(_failed_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    group.topics = shown
    return hidden


def _of_present_topics(
    image: MetadataImage, topics: list[FetchedTopic], by_id: bool
) -> list[FetchedTopic]:
    """Return all topics of a group, without the offsets of deleted topics of the same names.

    With `by_id` a deleted topic is left out, because it has no id.
    """
    present: dict[str, FetchedTopic] = {}
    for topic in topics:
        topic_image = image.topics.by_name.get(topic.name)
        if topic_image is None and by_id:
            continue
        if topic_image is not None:
            if topic.topic_id not in (ZERO_UUID, topic_image.topic_id):
                continue
            topic.topic_id = topic_image.topic_id
        # Offsets with and without a topic id (older releases) belong to the same topic.
        known = present.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions += topic.partitions
    return list(present.values())


def _fetch_error_code(code: ErrorCode) -> ErrorCode:
    # Consumers before 3.9 know NOT_COORDINATOR here and not COORDINATOR_NOT_AVAILABLE.
    told = coordinator_error(code)
    if told is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.NOT_COORDINATOR
    return told


def _fetch_error(group: RequestedGroup, code: ErrorCode, version: int) -> FetchedGroup:
    if version >= versions.OFFSET_FETCH_TOP_LEVEL_ERROR:
        return FetchedGroup(group_id=group.group_id, error_code=code)
    topics = [_failed_topic(topic, code) for topic in group.topics or ()]
    return FetchedGroup(group_id=group.group_id, topics=topics)


def _failed_topic(topic: RequestedTopic, code: ErrorCode) -> FetchedTopic:
    return FetchedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            FetchedPartition(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


# ---------------------------------------------------------------- OffsetDelete


async def handle_offset_delete(
    services: GroupServices, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Delete committed offsets of partitions that exist; the others get an error."""
    by_name = services.metadata.image.topics.by_name
    refused: list[DeletedTopic] = []
    topics = []
    for topic in request.topics:
        image = by_name.get(topic.name)
        partitions = {} if image is None else image.partitions
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not may_use_topic(services, context, Operation.READ, topic.name):
            code, partitions = ErrorCode.TOPIC_AUTHORIZATION_FAILED, {}
        unknown = [p for p in topic.partitions if p.partition_index not in partitions]
        if unknown:
            refused.append(_refused_deletions(topic.name, unknown, code))
            topic.partitions = [p for p in topic.partitions if p.partition_index in partitions]
        if topic.partitions:
            topics.append(topic)
    request.topics = topics
    try:
        check_group(services, context, Operation.DELETE, request.group_id)
        response = await services.groups.delete_offsets(request)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    if refused:
        named = {topic.name: topic for topic in refused}
        for done in response.topics:
            present = named.setdefault(done.name, done)
            if present is not done:
                present.partitions += done.partitions
        response.topics = list(named.values())
    return response


def _refused_deletions(
    name: str,
    partitions: list[OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition],
    code: ErrorCode,
) -> DeletedTopic:
    return DeletedTopic(
        name=name,
        partitions=[
            DeletedPartition(partition_index=p.partition_index, error_code=code) for p in partitions
        ],
    )
