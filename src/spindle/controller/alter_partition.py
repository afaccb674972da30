"""AlterPartition: a leader proposes a new ISR for its partitions (KIP-497, KIP-903)."""

from collections.abc import Mapping

from spindle.common.errors import ErrorCode
from spindle.controller.broker_heartbeat import check_broker_epoch
from spindle.controller.decision import Decision, OperationContext
from spindle.controller.partition_change_builder import PartitionChanges
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import (
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    PartitionRegistration,
    merge,
)
from spindle.metadata.topics import TopicImage
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)

_Asked = AlterPartitionRequest.TopicData.PartitionData
_Topic = AlterPartitionResponse.TopicData
_Answer = _Topic.PartitionData
ANY_EPOCH = -1
"""A broker epoch that is not checked, because older leaders do not have their followers' epochs."""


def alter_partition(
    given: OperationContext, request: AlterPartitionRequest
) -> Decision[AlterPartitionResponse]:
    """Apply the proposed ISRs that are valid; each partition has its own result.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    image = given.image
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    changes = PartitionChanges(image, given.context.settings)
    records: list[Message] = []
    topics: list[_Topic] = []
    for asked in request.topics:
        topic = image.topics.by_id.get(asked.topic_id)
        answers = [
            _alter(image, changes, topic, data, request.broker_id, records)
            for data in asked.partitions
        ]
        topics.append(_Topic(topic_id=asked.topic_id, partitions=answers))
    return Decision(AlterPartitionResponse(topics=topics), records)


def _alter(
    image: MetadataImage,
    changes: PartitionChanges,
    topic: TopicImage | None,
    data: _Asked,
    broker_id: int,
    records: list[Message],
) -> _Answer:
    def refused(code: ErrorCode) -> _Answer:
        return _Answer(partition_index=data.partition_index, error_code=code)

    if topic is None:
        return refused(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(data.partition_index)
    if partition is None:
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    new_isr = _new_isr(data)
    code = _validate(image, partition, data, broker_id, new_isr)
    if code is not ErrorCode.NONE:
        return refused(code)
    change = changes.by_policy(topic, data.partition_index, partition)
    change.target_isr = [replica for replica, _ in new_isr]
    change.target_recovery_state = data.leader_recovery_state
    record = change.build()
    if record is not None:
        records.append(record)
        partition = merge(partition, record)
        if record.leader not in (NO_LEADER_CHANGE, broker_id):
            # The new ISR completed a reassignment that takes the leadership away from the sender.
            return refused(ErrorCode.NEW_LEADER_ELECTED)
    return _Answer(
        partition_index=data.partition_index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _new_isr(data: _Asked) -> list[tuple[int, int]]:
    """Return (broker, broker epoch) of the proposed members, in any version of the request."""
    if data.new_isr_with_epochs:
        return [(state.broker_id, state.broker_epoch) for state in data.new_isr_with_epochs]
    return [(replica, ANY_EPOCH) for replica in data.new_isr]


def _validate(
    image: MetadataImage,
    partition: PartitionRegistration,
    data: _Asked,
    broker_id: int,
    new_isr: list[tuple[int, int]],
) -> ErrorCode:
    if (
        data.leader_epoch > partition.leader_epoch
        or data.partition_epoch > partition.partition_epoch
    ):
        # The sender has seen newer state than this controller, which therefore is not active any
        # more.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members: Mapping[int, int] = dict(new_isr)
    if len(members) != len(new_isr) or any(r not in partition.replicas for r in members):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in members:
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if data.leader_recovery_state == RECOVERING and (
        len(members) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, partition, replica, epoch) for replica, epoch in new_isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(
    image: MetadataImage, partition: PartitionRegistration, broker_id: int, epoch: int
) -> bool:
    """Return whether a replica may be a member of the ISR.

    The leader may not know yet that the replica's directory has failed. Kafka accepts the replica;
    producers with acks=all then wait for it until it has lagged for replica.lag.time.max.ms.
    """
    broker = image.cluster.brokers.get(broker_id)
    return (
        broker is not None
        and broker.is_active
        and epoch in (ANY_EPOCH, broker.epoch)
        and broker.has_online_directory(partition.directory(broker_id))
    )
