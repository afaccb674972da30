"""DeleteTopics and CreatePartitions (KIP-4, KIP-195, KIP-516)."""

from collections.abc import Sequence

from spindle.authorization.access import FULL_ACCESS, Access
from spindle.authorization.operations import CLUSTER_NAME, Operation, ResourceType
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.controller.assignment import (
    check_manual_assignment,
    new_partition,
    place_replicas,
)
from spindle.controller.create_topics import MAX_PARTITIONS_PER_REQUEST
from spindle.controller.decision import ControllerContext, Decision, OperationContext, repeated
from spindle.metadata.image import MetadataImage
from spindle.metadata.topics import TopicImage
from spindle.protocol.message import Message
from spindle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from spindle.protocol.messages.metadata_records import PartitionRecord, RemoveTopicRecord

_Deleted = DeleteTopicsResponse.DeletableTopicResult
_Grow = CreatePartitionsRequest.CreatePartitionsTopic
_Grown = CreatePartitionsResponse.CreatePartitionsTopicResult

UNKNOWN_TOPIC_TEXT = "This server does not host this topic-partition."
UNKNOWN_TOPIC_ID_TEXT = "This server does not host this topic ID."


def delete_topics(
    given: OperationContext, request: DeleteTopicsRequest
) -> Decision[DeleteTopicsResponse]:
    """Delete topics named by name or by id; each gets its own result.

    Raises:
        ApiError: TOPIC_DELETION_DISABLED.
    """
    if not given.context.settings.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    asked, results = _distinct(request)
    deletes_all = given.access.allows(
        Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=False
    )
    records: list[RemoveTopicRecord] = []
    done: dict[Uuid, None] = {}
    # Ids first: if a name and an id are the same topic, the name is refused.
    for name, topic_id in asked:
        try:
            topic = _find(given.image, name, topic_id, FULL_ACCESS if deletes_all else given.access)
            if topic.topic_id in done:
                records = [r for r in records if r.topic_id != topic.topic_id]
                results = [r for r in results if r.topic_id != topic.topic_id]
                topic_id = topic.topic_id
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            given.charge(len(topic.partitions))
        except _NotDeletable as error:
            results.append(_refused(error.name, topic_id, error.code, error.message))
            continue
        except ApiError as error:
            results.append(_refused(name, topic_id, error.code, error.message))
            continue
        done[topic.topic_id] = None
        records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        results.append(_Deleted(name=topic.name, topic_id=topic.topic_id))
    return Decision(DeleteTopicsResponse(responses=results), [*records], is_atomic=True)


def _distinct(
    request: DeleteTopicsRequest,
) -> tuple[list[tuple[str | None, Uuid]], list[_Deleted]]:
    """Split the request into distinct topics, ids before names, and refusals of the others."""
    results: list[_Deleted] = []
    names = [*request.topic_names]
    ids: list[Uuid] = []
    for state in request.topics:
        topic_id = bytes(state.topic_id)
        if state.name is not None and topic_id != ZERO_UUID:
            text = "You may not specify both topic name and topic id."
            results.append(_refused(state.name, topic_id, ErrorCode.INVALID_REQUEST, text))
        elif state.name is not None:
            names.append(state.name)
        elif topic_id != ZERO_UUID:
            ids.append(topic_id)
        else:
            text = "Neither topic name nor id were specified."
            results.append(_refused(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, text))
    repeated_names, repeated_ids = repeated(names), repeated(ids)
    for name in dict.fromkeys(n for n in names if n in repeated_names):
        text = "Duplicate topic name."
        results.append(_refused(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, text))
    for topic_id in dict.fromkeys(i for i in ids if i in repeated_ids):
        text = "Duplicate topic id."
        results.append(_refused(None, topic_id, ErrorCode.INVALID_REQUEST, text))
    asked: list[tuple[str | None, Uuid]] = [(None, i) for i in ids if i not in repeated_ids]
    asked += [(name, ZERO_UUID) for name in names if name not in repeated_names]
    return asked, results


def _refused(name: str | None, topic_id: Uuid, code: ErrorCode, text: str | None) -> _Deleted:
    return _Deleted(name=name, topic_id=topic_id, error_code=code, error_message=text)


class _NotDeletable(ApiError):
    """The sender may not delete a topic; `name` is None if it may not describe it either."""

    def __init__(self, name: str | None) -> None:
        super().__init__(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        self.name = name


def _find(image: MetadataImage, name: str | None, topic_id: Uuid, access: Access) -> TopicImage:
    """Return the topic to be deleted. Report UNKNOWN_TOPIC for a named topic that the sender may
    not describe."""
    if name is None:
        topic = image.topics.by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID_TEXT)
        if not access.allows(Operation.DELETE, ResourceType.TOPIC, topic.name):
            may_know = access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
            raise _NotDeletable(topic.name if may_know else None)
        return topic
    if not access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
        raise _NotDeletable(name)
    topic = image.topics.by_name.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_TEXT)
    if not access.allows(Operation.DELETE, ResourceType.TOPIC, name):
        raise _NotDeletable(name)
    return topic


def create_partitions(
    given: OperationContext, request: CreatePartitionsRequest
) -> Decision[CreatePartitionsResponse]:
    """Add partitions to topics; each topic gets its own result.

    Raises:
        ApiError: POLICY_VIOLATION for more than 10,000 new partitions in one request.
    """
    duplicates = repeated(topic.name for topic in request.topics)
    _check_partition_limit(given.image, request.topics)
    records: list[Message] = []
    results: dict[str, _Grown] = {}
    for topic in request.topics:
        try:
            if topic.name in duplicates:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not given.access.allows(Operation.ALTER, ResourceType.TOPIC, topic.name):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            added = _grow(given.image, topic, given.context)
            given.charge(len(added))
        except ApiError as error:
            results[topic.name] = _Grown(
                name=topic.name, error_code=error.code, error_message=error.message
            )
        else:
            records += added
            results[topic.name] = _Grown(name=topic.name)
    response = CreatePartitionsResponse(results=list(results.values()))
    if request.validate_only:
        return Decision(response)
    return Decision(response, [*records], is_atomic=True)


def _check_partition_limit(image: MetadataImage, topics: Sequence[_Grow]) -> None:
    """Refuse too many new partitions before the first is placed.

    A topic that exceeds the limit by itself is not counted: it gets its own error later.
    """
    total = 0
    for topic in topics:
        existing = image.topics.by_name.get(topic.name)
        added = 0 if existing is None else topic.count - len(existing.partitions)
        if 0 < added <= MAX_PARTITIONS_PER_REQUEST:
            total += added
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {total}, "
            f"at most {MAX_PARTITIONS_PER_REQUEST} are allowed.",
        )


def _grow(image: MetadataImage, topic: _Grow, context: ControllerContext) -> list[PartitionRecord]:
    existing = image.topics.by_name.get(topic.name)
    if existing is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # Kafka gives no text here
    first = len(existing.partitions)
    if topic.count == first:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {first} partition(s).")
    if topic.count < first:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {first} partition(s); "
            f"{topic.count} would not be an increase.",
        )
    added = topic.count - first
    if added > MAX_PARTITIONS_PER_REQUEST:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {added}, "
            f"at most {MAX_PARTITIONS_PER_REQUEST} are allowed.",
        )
    factor = len(existing.partitions[0].replicas)
    if topic.assignments is None:
        placed = place_replicas(image, context.random, added, factor)
        refusal = ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): All brokers are currently "
            "fenced or in controlled shutdown.",
        )
    else:
        placed = [list(assignment.broker_ids) for assignment in topic.assignments]
        if len(placed) != added:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(placed)} "
                "assignment(s) were specified.",
            )
        for replicas in placed:
            check_manual_assignment(image, replicas, factor)
        refusal = ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in a manual partition assignment are fenced or in controlled "
            "shutdown.",
        )
    records: list[PartitionRecord] = []
    for partition_id, replicas in enumerate(placed, first):
        record = new_partition(image, existing.topic_id, partition_id, replicas)
        if record is None:
            raise refusal
        records.append(record)
    return records
