"""CreateTopics (KIP-4, KIP-464, KIP-516, KIP-525)."""

from collections.abc import Collection, Sequence
from typing import Final

from spindle.authorization.access import Access
from spindle.authorization.operations import CLUSTER_NAME, Operation, ResourceType
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import METADATA_TOPIC
from spindle.controller.assignment import (
    check_manual_assignment,
    new_partition,
    place_replicas,
)
from spindle.controller.configs import clear_elr_records
from spindle.controller.decision import (
    MAX_RECORDS_PER_OPERATION,
    ControllerContext,
    Decision,
    OperationContext,
    repeated,
)
from spindle.controller.topic_names import NameCollisions, check_topic_name
from spindle.metadata.configs import TOPIC_RESOURCE, ConfigResource
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.protocol.messages.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from spindle.protocol.sentinels import DEFAULT_COUNT

MAX_PARTITIONS_PER_REQUEST: Final = MAX_RECORDS_PER_OPERATION

_Topic = CreateTopicsRequest.CreatableTopic
_Result = CreateTopicsResponse.CreatableTopicResult


def create_topics(
    given: OperationContext, request: CreateTopicsRequest
) -> Decision[CreateTopicsResponse]:
    """Create the valid topics; each other topic gets its own error.

    Raises:
        ApiError: POLICY_VIOLATION for more than 10,000 partitions in one request.
    """
    image = given.image
    duplicates = repeated(topic.name for topic in request.topics)
    refused = _refused_names(request, given.access)
    _check_partition_limit([t for t in request.topics if t.name not in refused], given.context)
    collisions = NameCollisions(image.topics.by_name)
    records: list[Message] = []
    results: dict[str, _Result] = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            _check_allowed(topic.name, is_repeated=topic.name in duplicates, refused=refused)
            _check_creatable(image, topic, collisions)
            topic_records, result = _create(image, topic, given.context)
            given.charge(result.num_partitions)
            _hide_configs(result, given.access)
        except ApiError as error:
            result = _Result(name=topic.name, error_code=error.code, error_message=error.message)
        else:
            records += topic_records
        results[topic.name] = result
    response = CreateTopicsResponse(topics=list(results.values()))
    if request.validate_only:
        return Decision(response)
    return Decision(response, records, is_atomic=True)


def _check_partition_limit(topics: Sequence[_Topic], context: ControllerContext) -> None:
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions == DEFAULT_COUNT:
            total += context.settings.num_partitions
        else:
            total += max(0, topic.num_partitions)
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {total}, "
            f"at most {MAX_PARTITIONS_PER_REQUEST} are allowed.",
        )


def _refused_names(request: CreateTopicsRequest, access: Access) -> Collection[str]:
    """Return the names of topics that the sender may not create."""
    if access.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=False):
        return ()
    names = dict.fromkeys(topic.name for topic in request.topics)
    return {
        name: None
        for name in names
        if not access.allows(Operation.CREATE, ResourceType.TOPIC, name)
    }


def _check_allowed(name: str, *, is_repeated: bool, refused: Collection[str]) -> None:
    """Check the rights first, so that a refusal does not reveal whether the topic exists."""
    if is_repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if name == METADATA_TOPIC:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Creation of internal topic {METADATA_TOPIC} is prohibited.",
        )
    if name in refused:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")


def _hide_configs(result: _Result, access: Access) -> None:
    """Omit the configuration of a new topic that the sender may not describe (KIP-525)."""
    if not access.allows(
        Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name, is_logged=False
    ):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions, result.replication_factor = -1, -1
        result.configs = []


def _check_creatable(image: MetadataImage, topic: _Topic, collisions: NameCollisions) -> None:
    check_topic_name(topic.name)
    if topic.name in image.topics.by_name:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    collisions.check(topic.name)


def _create(
    image: MetadataImage, topic: _Topic, context: ControllerContext
) -> tuple[list[Message], _Result]:
    configs = _configs(topic, context)
    topic_id = context.new_uuid()
    partitions = _partitions(image, topic, topic_id, context)
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    for name, value in configs.items():
        records.append(
            ConfigRecord(
                resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value
            )
        )
    records += clear_elr_records(image, ConfigResource(TOPIC_RESOURCE, topic.name), configs)
    records += partitions
    entries = context.config_rules.effective_topic_configs(
        configs, image.configs.default_broker(), image.configs.broker
    )
    result = _Result(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=[
            _Result.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in entries
        ],
    )
    return records, result


def _configs(topic: _Topic, context: ControllerContext) -> dict[str, str]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {', '.join(nulls)}",
        )
    configs = {config.name: config.value or "" for config in topic.configs}
    if configs:
        context.config_rules.validate(TOPIC_RESOURCE, topic.name, configs)
    return configs


def _partitions(
    image: MetadataImage, topic: _Topic, topic_id: bytes, context: ControllerContext
) -> list[PartitionRecord]:
    if topic.assignments:
        return _manual_partitions(image, topic, topic_id)
    if topic.replication_factor < DEFAULT_COUNT or topic.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < DEFAULT_COUNT or topic.num_partitions == 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    settings = context.settings
    count = topic.num_partitions
    if count == DEFAULT_COUNT:
        count = settings.num_partitions
    factor = topic.replication_factor
    if factor == DEFAULT_COUNT:
        factor = settings.default_replication_factor
    prefix = f"Unable to replicate the partition {factor} time(s): "
    try:
        placed = place_replicas(image, context.random, count, factor)
    except ApiError as error:
        raise ApiError(error.code, f"{prefix}{error.message}") from None
    partitions: list[PartitionRecord] = []
    for partition_id, replicas in enumerate(placed):
        record = new_partition(image, topic_id, partition_id, replicas)
        if record is None:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{prefix}All brokers are currently fenced or in controlled shutdown.",
            )
        partitions.append(record)
    return partitions


def _manual_partitions(
    image: MetadataImage, topic: _Topic, topic_id: bytes
) -> list[PartitionRecord]:
    for name, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != DEFAULT_COUNT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {name} was not set to -1.",
            )

    def refuse(text: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)

    records: dict[int, PartitionRecord] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        partition_id = assignment.partition_index
        if partition_id in records:
            raise refuse(
                f"Found multiple manual partition assignments for partition {partition_id}"
            )
        check_manual_assignment(image, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
        record = new_partition(image, topic_id, partition_id, list(assignment.broker_ids))
        if record is None:
            raise refuse(
                f"All brokers specified in the manual partition assignment for partition "
                f"{partition_id} are fenced or in controlled shutdown."
            )
        records[partition_id] = record
    if sorted(records) != list(range(len(records))):
        raise refuse("partitions should be a consecutive 0-based integer sequence")
    return [records[partition_id] for partition_id in range(len(records))]
