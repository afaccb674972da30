"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860)."""

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.assignment import check_manual_assignment
from spindle.controller.decision import ControllerContext, Decision, OperationContext
from spindle.controller.partition_change_builder import (
    Election,
    PartitionChangeBuilder,
    PartitionChanges,
)
from spindle.controller.topic_settings import is_unclean_election_enabled
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.metadata.topics import TopicImage
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from spindle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from spindle.protocol.messages.metadata_records import PartitionChangeRecord

_TopicAnswer = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Answer = _TopicAnswer.ReassignablePartitionResponse
_Ongoing = ListPartitionReassignmentsResponse.OngoingTopicReassignment


def alter_partition_reassignments(
    given: OperationContext, request: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Start, change or (without replicas) cancel reassignments, each with its own result."""
    records: list[Message] = []
    responses: list[_TopicAnswer] = []
    for asked in request.topics:
        answers: list[_Answer] = []
        for target in asked.partitions:
            code, text = ErrorCode.NONE, None
            try:
                record = _alter(
                    given.image,
                    given.context,
                    asked.name,
                    target.partition_index,
                    target.replicas,
                    allow_resize=request.allow_replication_factor_change,
                )
                if record is not None:
                    records.append(record)
            except ApiError as error:
                code, text = error.code, error.message
            answers.append(
                _Answer(partition_index=target.partition_index, error_code=code, error_message=text)
            )
        responses.append(_TopicAnswer(name=asked.name, partitions=answers))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        # Kafka tells an empty request from others by the text.
        error_message=None if request.topics else "",
        responses=responses,
    )
    return Decision(response, records)


def list_partition_reassignments(
    given: OperationContext, request: ListPartitionReassignmentsRequest
) -> Decision[ListPartitionReassignmentsResponse]:
    """Return the ongoing reassignments of all partitions or of the named ones."""
    if request.topics is None:
        asked = [(t.name, list(t.partitions)) for t in given.image.topics.with_reassignments()]
    else:
        asked = [(entry.name, list(entry.partition_indexes)) for entry in request.topics]
    ongoing: list[_Ongoing] = []
    for name, partition_ids in asked:
        topic = given.image.topics.by_name.get(name)
        partitions: list[_Ongoing.OngoingPartitionReassignment] = []
        for partition_id in partition_ids:
            partition = topic.partitions.get(partition_id) if topic else None
            if partition is not None and partition.is_reassigning:
                partitions.append(
                    _Ongoing.OngoingPartitionReassignment(
                        partition_index=partition_id,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding_replicas),
                        removing_replicas=list(partition.removing_replicas),
                    )
                )
        if partitions:
            ongoing.append(_Ongoing(name=name, partitions=partitions))
    return Decision(ListPartitionReassignmentsResponse(error_message=None, topics=ongoing))


def _alter(
    image: MetadataImage,
    context: ControllerContext,
    name: str,
    partition_id: int,
    target: list[int] | None,
    *,
    allow_resize: bool,
) -> PartitionChangeRecord | None:
    topic = image.topics.by_name.get(name)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
    partition = topic.partitions.get(partition_id)
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {name}:{partition_id}.",
        )
    change = PartitionChanges(image, context.settings).of(topic, partition_id, partition)
    if target is None:
        is_unclean_allowed = is_unclean_election_enabled(image, context.settings, name)
        _cancel(change, topic, partition_id, partition, is_unclean_allowed=is_unclean_allowed)
    else:
        check_manual_assignment(image, target, None)
        _retarget(change, partition, target, allow_resize=allow_resize)
    return change.build()


def _retarget(
    change: PartitionChangeBuilder,
    partition: PartitionRegistration,
    target: list[int],
    *,
    allow_resize: bool,
) -> None:
    original = [r for r in partition.replicas if r not in partition.adding_replicas]
    if not allow_resize and len(target) != len(original):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(original)} to {len(target)}",
        )
    removing = sorted(replica for replica in partition.replicas if replica not in target)
    # Replicas that an earlier reassignment is still adding have yet to catch up.
    adding = sorted(replica for replica in target if replica not in original)
    change.target_replicas = [*target, *removing]
    change.target_removing = removing
    change.target_adding = adding


def _cancel(
    change: PartitionChangeBuilder,
    topic: TopicImage,
    partition_id: int,
    partition: PartitionRegistration,
    *,
    is_unclean_allowed: bool,
) -> None:
    if not partition.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [r for r in partition.replicas if r not in partition.adding_replicas]
    isr = [replica for replica in partition.isr if replica in replicas]
    if not replicas:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid replica assignment: addingReplicas contains all replicas.",
        )
    if not isr and partition.isr:
        # Only replicas being added are in sync: those that stay may lack records.
        if not is_unclean_allowed:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition_id} because "
                "it would require an unclean leader election.",
            )
        isr = list(filter(change.can_lead, replicas))[:1]
        if not isr:
            # Kafka would name a dead replica as in sync: the data and the partition would be gone.
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition_id} because "
                "none of the remaining replicas is alive.",
            )
    if is_unclean_allowed:
        change.election = Election.UNCLEAN
    change.target_isr = isr
    change.target_replicas = replicas
    change.target_removing = []
    change.target_adding = []
