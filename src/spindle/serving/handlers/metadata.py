"""Metadata: brokers, topics and leaders (KIP-516 for ids, KIP-430 for operations)."""

from typing import cast

from spindle.authorization.operations import Operation
from spindle.common.errors import ErrorCode
from spindle.common.ids import INTERNAL_TOPICS, NO_LEADER
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.metadata.topics import TopicImage
from spindle.protocol import versions
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spindle.serving.context import RequestContext
from spindle.serving.cooperative import cooperatively
from spindle.serving.handlers.auto_topics import create_missing_topics
from spindle.serving.permissions import (
    NOT_ASKED,
    cluster_operations,
    may_use_topic,
    topic_operations,
)
from spindle.serving.services import BrokerServices
from spindle.serving.topology import alive_brokers, named_leader_error, offline_replicas, reachable

Topic = MetadataResponse.MetadataResponseTopic


async def metadata(
    services: BrokerServices, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    """Describe brokers and topics from the committed image.

    Missing topics that may be created automatically are created; the client gets them when it
    retries.
    """
    image = services.metadata.image
    if _asks_for_ids_too_early(context, request):
        return _refused(request)
    wants_all = request.topics is None or (context.api_version == 0 and not request.topics)
    if not wants_all:
        topics = await _asked(services, context, request)
    elif request.include_topic_authorized_operations:
        topics = [_topic(image, context, t) for t in _visible(services, context, image)]
    else:
        encoded = await services.encoded_topics.encoded(
            image,
            context.listener,
            context.api_version,
            _visible(services, context, image),
            lambda topic: _topic(image, context, topic),
        )
        topics = cast("list[Topic]", encoded)  # for the response it serves as a list
    if request.include_topic_authorized_operations:
        _tell_operations(services, context, topics)
    brokers = alive_brokers(image, context.listener)
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(services, context)
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack
            )
            for broker_id, endpoint, rack in brokers
        ],
        cluster_id=services.cluster_id,
        # Any broker will do: it forwards requests for the controller (KIP-590).
        controller_id=brokers[services.random.randrange(0, len(brokers))][0] if brokers else -1,
        topics=topics,
        cluster_authorized_operations=operations,
    )


def _visible(
    services: BrokerServices, context: RequestContext, image: MetadataImage
) -> list[TopicImage]:
    if not services.authorizer.is_active:
        return list(image.topics.by_name.values())
    return [
        topic
        for name, topic in image.topics.by_name.items()
        if may_use_topic(services, context, Operation.DESCRIBE, name, is_logged=False)
    ]


def _asks_for_ids_too_early(context: RequestContext, request: MetadataRequest) -> bool:
    """Return True for topic ids in versions 10 and 11, which Kafka never served by id."""
    return context.api_version < versions.METADATA_TOPIC_ID_REQUEST and any(
        t.name is None or t.topic_id != ZERO_UUID for t in request.topics or []
    )


def _refused(request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(
        cluster_id=None,
        controller_id=-1,
        topics=[
            Topic(error_code=ErrorCode.INVALID_REQUEST, name=t.name or "", topic_id=t.topic_id)
            for t in request.topics or []
        ],
    )


async def _asked(
    services: BrokerServices, context: RequestContext, request: MetadataRequest
) -> list[Topic]:
    image = services.metadata.image
    asked = request.topics or []
    by_id = [t.topic_id for t in asked if t.topic_id != ZERO_UUID]
    if by_id:
        return [
            _by_id(services, context, topic_id)
            async for topic_id in cooperatively(dict.fromkeys(by_id))
        ]
    answers: list[Topic] = []
    denied: list[Topic] = []
    missing: list[str] = []
    async for name in cooperatively(dict.fromkeys(t.name or "" for t in asked)):
        known = image.topics.by_name.get(name)
        if not may_use_topic(services, context, Operation.DESCRIBE, name):
            denied.append(Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
        elif known is not None:
            answers.append(_topic(image, context, known))
        else:
            missing.append(name)
    if missing:
        may_create = request.allow_auto_topic_creation or context.api_version < 4
        codes = await create_missing_topics(services, context, missing, may_create=may_create)
        async for name in cooperatively(missing):
            is_internal = name in INTERNAL_TOPICS
            answers.append(Topic(error_code=codes[name], name=name, is_internal=is_internal))
    return answers + denied


def _tell_operations(
    services: BrokerServices, context: RequestContext, topics: list[Topic]
) -> None:
    for topic in topics:
        if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            operations = topic_operations(services, context, topic.name)
            topic.topic_authorized_operations = operations


def _by_id(services: BrokerServices, context: RequestContext, topic_id: Uuid) -> Topic:
    image = services.metadata.image
    known = image.topics.by_id.get(topic_id)
    if known is None:
        return Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not may_use_topic(services, context, Operation.DESCRIBE, known.name):
        return Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
    return _topic(image, context, known)


def _topic(image: MetadataImage, context: RequestContext, topic: TopicImage) -> Topic:
    return Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(image, context, index, partition)
            for index, partition in topic.partitions.items()
        ],
    )


def _partition(
    image: MetadataImage, context: RequestContext, index: int, partition: PartitionRegistration
) -> Topic.MetadataResponsePartition:
    listener, version = context.listener, context.api_version
    error = named_leader_error(
        image, partition, listener, version >= versions.METADATA_LISTENER_NOT_FOUND
    )
    leader = partition.leader if error == ErrorCode.NONE else NO_LEADER
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version < versions.METADATA_OFFLINE_BROKER:
        replicas = reachable(image, replicas, listener)
        isr = reachable(image, isr, listener)
        is_whole = (len(replicas), len(isr)) == (len(partition.replicas), len(partition.isr))
        if error == ErrorCode.NONE and not is_whole:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return Topic.MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline_replicas(image, partition, listener),
    )
