"""ShareFetch and ShareAcknowledge: records for the members of share groups (KIP-932, KIP-1222)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    AcquisitionRequest,
    check_acknowledgements,
)
from spindle.coordinator.share.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    ShareSession,
)
from spindle.metadata.features import SHARE_VERSION
from spindle.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from spindle.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from spindle.serving.context import RequestContext
from spindle.serving.permissions import TOPIC_DENIED, check_group, may_use_topic
from spindle.serving.services import BrokerServices
from spindle.serving.share_ports import FetchedSharePartition, ShareFetchTerms
from spindle.serving.topology import endpoint_of

_MAX_MEMBER_ID_LENGTH: Final = 36
_RECORD_LIMIT: Final = 1
"""The acquire mode in which a fetch never gets more records than it asks for (KIP-1206)."""
_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Batches: TypeAlias = dict[TopicIdPartition, tuple[str, Sequence[AcknowledgedBatch]]]
Errors: TypeAlias = dict[TopicIdPartition, ApiError | None]
_FetchTopic = ShareFetchResponse.ShareFetchableTopicResponse
_AckTopic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse


def check_share_groups(services: BrokerServices) -> None:
    """Raise ApiError UNSUPPORTED_VERSION unless the cluster serves share groups."""
    if services.metadata.image.features.levels.get(SHARE_VERSION, 0) < 1:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


# ---------------------------------------------------------------- ShareFetch


async def share_fetch(
    services: BrokerServices, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    """Take acknowledgements, and return records that the member has acquired."""
    try:
        key = _check(services, context, request)
        _check_renewal(request)
        session = _session_of_fetch(services, context, key, request)
    except ApiError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    errors, batches = _acknowledgements(services, context, request)
    acknowledged = services.loop.create_task(_into(services, key, batches, errors))
    fetched: dict[TopicIdPartition, FetchedSharePartition] = {}
    if request.share_session_epoch == FINAL_EPOCH:
        await acknowledged
        services.share.end_session(session)
    else:
        if not request.is_renew_ack:
            fetched = await _fetch(services, context, session, request)
        await acknowledged
    response = _fetch_response(services, context, key, fetched, errors)
    if services.quotas.is_active:
        size_bytes = sum(len(part.records) for part in fetched.values())
        response.throttle_time_ms = services.quotas.charge_fetch(context, lambda: size_bytes)
    return response


def _check(
    services: BrokerServices,
    context: RequestContext,
    request: ShareFetchRequest | ShareAcknowledgeRequest,
) -> SessionKey:
    check_share_groups(services)
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    check_group(services, context, Operation.READ, request.group_id)
    member_id = request.member_id
    if not member_id or len(member_id) > _MAX_MEMBER_ID_LENGTH:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return SessionKey(request.group_id, member_id)


def _check_renewal(request: ShareFetchRequest) -> None:
    """Refuse a request that renews locks and also asks for records."""
    limits = {
        "max_bytes": request.max_bytes,
        "min_bytes": request.min_bytes,
        "max_records": request.max_records,
        "max_wait_ms": request.max_wait_ms,
    }
    wrong = [f"{name} is {value}" for name, value in limits.items() if value]
    if request.is_renew_ack and wrong:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"a request that renews locks must not fetch, but {', '.join(wrong)} instead of 0",
        )


def _session_of_fetch(
    services: BrokerServices, context: RequestContext, key: SessionKey, request: ShareFetchRequest
) -> ShareSession:
    share = services.share
    named = [
        TopicIdPartition(topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    epoch = request.share_session_epoch
    if epoch == FINAL_EPOCH:
        return _existing(services, key)
    if epoch == INITIAL_EPOCH:
        if any(p.acknowledgement_batches for topic in request.topics for p in topic.partitions):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "the request opens a session and acknowledges records"
            )
        session = share.open_session(key)
        if context.when_lost is not None:
            context.when_lost(key, lambda: share.end_session(session))
    else:
        session = share.sessions.continue_with(key, epoch)
    session.update(
        named,
        (
            TopicIdPartition(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ),
    )
    return session


def _existing(services: BrokerServices, key: SessionKey) -> ShareSession:
    session = services.share.sessions.get(key)
    if session is None:
        raise ApiError(
            ErrorCode.SHARE_SESSION_NOT_FOUND,
            f"member {key.member_id} of group {key.group_id} has no share session here",
        )
    return session


async def _fetch(
    services: BrokerServices,
    context: RequestContext,
    session: ShareSession,
    request: ShareFetchRequest,
) -> dict[TopicIdPartition, FetchedSharePartition]:
    readable: dict[TopicIdPartition, str] = {}
    results: dict[TopicIdPartition, FetchedSharePartition] = {}
    for where in session.partitions:
        topic = _name_of(services, where)
        if topic and not may_use_topic(services, context, Operation.READ, topic):
            denied = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED)
            results[where] = FetchedSharePartition(denied)
        else:
            readable[where] = topic
    max_bytes = request.max_bytes
    if services.quotas.is_active:
        max_bytes = min(max_bytes, services.quotas.max_fetch_bytes(context))
    terms = ShareFetchTerms(
        session.key.group_id,
        readable,
        0 if results else request.max_wait_ms,
        request.min_bytes,
        max_bytes,
        AcquisitionRequest(
            session.key.member_id,
            request.max_records,
            request.share_acquire_mode == _RECORD_LIMIT,
        ),
    )
    traffic = services.traffic

    def has_read(topic: str, size_bytes: int) -> None:
        counts = traffic.of(topic)
        counts.fetches += 1
        counts.bytes_out += size_bytes

    results |= await services.share.fetch(terms, services.fetch_memory, has_read)
    session.serve_later([where for where, part in results.items() if part.records])
    return results


def _fetch_response(
    services: BrokerServices,
    context: RequestContext,
    key: SessionKey,
    fetched: Mapping[TopicIdPartition, FetchedSharePartition],
    errors: Errors,
) -> ShareFetchResponse:
    settings = services.share.delivery_settings(key.group_id)
    response = ShareFetchResponse(acquisition_lock_timeout_ms=settings.lock_duration_ms)
    partitions = {
        where: _fetched(where, fetched.get(where), errors.get(where))
        for where in dict.fromkeys([*fetched, *errors])
    }
    _fill(services, context, response, _FetchTopic, partitions)
    return response


def _fetched(
    where: TopicIdPartition, part: FetchedSharePartition | None, refused: ApiError | None
) -> _FetchTopic.PartitionData:
    data = _FetchTopic.PartitionData(partition_index=where.partition)
    if part is not None and part.error is not None:
        data.error_code, data.error_message = part.error.code, part.error.message
    elif part is not None:
        data.records = part.records
        data.acquired_records = [
            _FetchTopic.PartitionData.AcquiredRecords(
                first_offset=first, last_offset=last, delivery_count=count
            )
            for first, last, count in part.acquired
        ]
    if refused is not None:
        data.acknowledge_error_code = refused.code
        data.acknowledge_error_message = refused.message
    return data


# ---------------------------------------------------------------- ShareAcknowledge


async def share_acknowledge(
    services: BrokerServices, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Take acknowledgements of a member; with the final epoch its session ends."""
    try:
        key = _check(services, context, request)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "an acknowledgement opens no session"
            )
        if request.share_session_epoch == FINAL_EPOCH:
            session = _existing(services, key)
        else:
            session = services.share.sessions.continue_with(key, request.share_session_epoch)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    errors, batches = _acknowledgements(services, context, request)
    await _into(services, key, batches, errors)
    if request.share_session_epoch == FINAL_EPOCH:
        services.share.end_session(session)
    return _acknowledge_response(services, context, key, errors)


def _acknowledge_response(
    services: BrokerServices, context: RequestContext, key: SessionKey, errors: Errors
) -> ShareAcknowledgeResponse:
    settings = services.share.delivery_settings(key.group_id)
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=settings.lock_duration_ms)
    partitions = {}
    for where, refused in errors.items():
        data = partitions[where] = _AckTopic.PartitionData(partition_index=where.partition)
        if refused is not None:
            data.error_code, data.error_message = refused.code, refused.message
    _fill(services, context, response, _AckTopic, partitions)
    return response


# ---------------------------------------------------------------- both


def _acknowledgements(
    services: BrokerServices,
    context: RequestContext,
    request: ShareFetchRequest | ShareAcknowledgeRequest,
) -> tuple[Errors, Batches]:
    """Return the errors of acknowledgements that are refused at once, and the others."""
    errors: Errors = {}
    accepted: Batches = {}
    for topic in cast(Iterable[ShareAcknowledgeRequest.AcknowledgeTopic], request.topics):
        for partition in topic.partitions:
            batches = [
                AcknowledgedBatch(b.first_offset, b.last_offset, b.acknowledge_types)
                for b in partition.acknowledgement_batches
            ]
            if not batches:
                continue
            where = TopicIdPartition(topic.topic_id, partition.partition_index)
            if where in errors:
                accepted.pop(where, None)
                errors[where] = ApiError(
                    ErrorCode.INVALID_REQUEST, "the request names the partition twice"
                )
                continue
            errors[where] = None
            name = _name_of(services, where)
            try:
                if name and not may_use_topic(services, context, Operation.READ, name):
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED)
                check_acknowledgements(batches, allows_renew=request.is_renew_ack)
            except ApiError as error:
                errors[where] = error
            else:
                accepted[where] = (name, batches)
    return errors, accepted


async def _into(
    services: BrokerServices, key: SessionKey, batches: Batches, errors: Errors
) -> None:
    """Acknowledge, and put the results into `errors`."""
    if batches:
        errors.update(await services.share.acknowledge(key, batches))


def _name_of(services: BrokerServices, where: TopicIdPartition) -> str:
    """Return the name of the topic, "" for an unknown id."""
    topic = services.metadata.image.topics.by_id.get(where.topic_id)
    return "" if topic is None else topic.name


def _fill(
    services: BrokerServices,
    context: RequestContext,
    response: ShareFetchResponse | ShareAcknowledgeResponse,
    topic_class: type[_FetchTopic] | type[_AckTopic],
    partitions: Mapping[TopicIdPartition, Any],
) -> None:
    """Put the partitions under their topics, with the leaders of those that this broker lost."""
    topics: dict[Uuid, Any] = {}
    image = services.metadata.image
    leaders: dict[int, None] = {}
    for where, data in partitions.items():
        codes = {data.error_code, getattr(data, "acknowledge_error_code", ErrorCode.NONE)}
        if not codes.isdisjoint(_LEADER_ERRORS):
            name = _name_of(services, where)
            leader, epoch = services.replicas.leader_of(name, where.partition)
            data.current_leader = topic_class.PartitionData.LeaderIdAndEpoch(
                leader_id=leader, leader_epoch=epoch
            )
            leaders[leader] = None
        topic = topics.setdefault(where.topic_id, topic_class(topic_id=where.topic_id))
        topic.partitions.append(data)
    response.responses = list(topics.values())
    node_class: Any = type(response).NodeEndpoint
    for leader in leaders:
        endpoint = endpoint_of(image, leader, context.listener)
        if endpoint is not None:
            response.node_endpoints.append(
                node_class(
                    node_id=leader,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=image.cluster.brokers[leader].rack,
                )
            )
