"""Creates topics that clients ask for by name, where `auto.create.topics.enable` allows it."""

from collections.abc import Mapping
from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from spindle.controller.create_topics import MAX_PARTITIONS_PER_REQUEST
from spindle.controller.topic_names import is_topic_name
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.serving.context import RequestContext
from spindle.serving.cooperative import cooperatively
from spindle.serving.permissions import may_use_cluster, may_use_topic
from spindle.serving.services import BrokerServices

_TIMEOUT_MS: Final = 5000


async def create_missing_topics(
    services: BrokerServices, context: RequestContext, names: list[str], *, may_create: bool
) -> dict[str, ErrorCode]:
    """Request the creation of missing topics if that is allowed; return an error code for each.

    A requested topic gets UNKNOWN_TOPIC_OR_PARTITION, and the client retries. So do names beyond
    the controller's limit, which are not requested.
    """
    codes: dict[str, ErrorCode] = {}
    wanted: list[str] = []
    enabled = may_create and services.config.flag("auto.create.topics.enable")
    may_create_all = may_use_cluster(services, context, Operation.CREATE, is_logged=False)
    async for name in cooperatively(names):
        if enabled and not (
            may_create_all or may_use_topic(services, context, Operation.CREATE, name)
        ):
            codes[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not is_topic_name(name):
            codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if enabled:
                wanted.append(name)
    if wanted and len(wanted) <= MAX_PARTITIONS_PER_REQUEST:
        codes.update(await request_topics(services, context, wanted))
    return codes


async def request_topics(
    services: BrokerServices, context: RequestContext | None, names: list[str]
) -> dict[str, ErrorCode]:
    """Ask the controller to create topics with the settings of this broker's property file.

    Internal topics have their own keys in that file.
    """
    request = CreateTopicsRequest(
        timeout_ms=_TIMEOUT_MS, topics=[_shape(services, name) for name in names]
    )
    codes = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        response: CreateTopicsResponse = await services.controller.request(request, context)
    except ApiError:
        return codes
    for topic in response.topics:
        if topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            codes[topic.name] = ErrorCode.LEADER_NOT_AVAILABLE
        elif topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR:
            codes[topic.name] = ErrorCode.INVALID_REPLICATION_FACTOR
    return codes


async def request_dead_letter_topic(services: BrokerServices, name: str) -> None:
    """Ask the controller for a topic that gets dead letters of share groups (KIP-1191).

    Partitions and replicas are the controller's defaults. The type of timestamps is fixed, because
    a dead letter has the time at which it is written.

    Raises:
        ApiError: the topic cannot be created; one that exists by now is no error.
    """
    configs = {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }
    request = CreateTopicsRequest(
        timeout_ms=_TIMEOUT_MS, topics=[_creatable(name, -1, -1, configs)]
    )
    response: CreateTopicsResponse = await services.controller.request(request)
    for topic in response.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(
                ErrorCode(topic.error_code), f"{name} cannot be created: {topic.error_message}"
            )


def _shape(services: BrokerServices, name: str) -> CreateTopicsRequest.CreatableTopic:
    integer = services.config.integer
    partitions, replication_factor, configs = -1, -1, {}
    if name == OFFSETS_TOPIC:
        partitions = integer("offsets.topic.num.partitions")
        replication_factor = integer("offsets.topic.replication.factor")
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(integer("offsets.topic.segment.bytes")),
            "compression.type": "producer",
        }
    elif name == TRANSACTIONS_TOPIC:
        partitions = integer("transaction.state.log.num.partitions")
        replication_factor = integer("transaction.state.log.replication.factor")
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(integer("transaction.state.log.min.isr")),
            "segment.bytes": str(integer("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        }
    elif name == SHARE_STATE_TOPIC:
        partitions = integer("share.coordinator.state.topic.num.partitions")
        replication_factor = integer("share.coordinator.state.topic.replication.factor")
        configs = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(integer("share.coordinator.state.topic.min.isr")),
            "retention.ms": "-1",
            "segment.bytes": str(integer("share.coordinator.state.topic.segment.bytes")),
        }
    else:
        # The controller has defaults of its own, for keys that this broker's property file lacks.
        if "num.partitions" in services.config.static:
            partitions = integer("num.partitions")
        if "default.replication.factor" in services.config.static:
            replication_factor = integer("default.replication.factor")
    return _creatable(name, partitions, replication_factor, configs)


def _creatable(
    name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
