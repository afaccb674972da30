"""TxnOffsetCommit, for one shard: offsets that become visible with the producer's transaction.

KIP-98 (transactions), KIP-447 (the group's member and generation fence zombies).
"""

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition, TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.coordinator.coordinator_result import GroupResult, InTransaction
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.offset_requests import TopicIdOf, add_offset
from spindle.coordinator.records import CommittedOffset
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

TransactionalTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
TransactionalPartition = TransactionalTopic.TxnOffsetCommitResponsePartition


def transactional_error(
    request: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """Return the answer that gives every partition of a transactional commit the same error."""
    return TxnOffsetCommitResponse(
        topics=[
            TransactionalTopic(
                name=topic.name,
                partitions=[
                    TransactionalPartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def commit_transactional_offsets(
    groups: GroupTable, request: TxnOffsetCommitRequest, topic_id_of: TopicIdOf, out: GroupResult
) -> TxnOffsetCommitResponse:
    """Add one record per partition; a partition whose metadata is too long gets an error.

    Raises:
        ApiError: the caller may not commit for this group; ILLEGAL_GENERATION if the group does not
            exist or the member's epoch is not its present one.
    """
    topic_ids = {topic.name: topic_id_of(topic.name) or ZERO_UUID for topic in request.topics}
    _check(
        groups,
        request,
        [
            TopicIdPartition(topic_ids[topic.name], partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ],
    )
    out.transaction = InTransaction(request.producer_id, request.producer_epoch)
    limit = groups.config.offset_metadata_max_bytes
    topics = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            committed = CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                out.now_ms,
                topic_id=topic_ids[topic.name],
            )
            name = TopicPartition(topic.name, partition.partition_index)
            code = add_offset(out, request.group_id, name, committed, limit)
            partitions.append(
                TransactionalPartition(partition_index=partition.partition_index, error_code=code)
            )
        topics.append(TransactionalTopic(name=topic.name, partitions=partitions))
    return TxnOffsetCommitResponse(topics=topics)


def _check(
    groups: GroupTable, request: TxnOffsetCommitRequest, partitions: list[TopicIdPartition]
) -> None:
    generation_id = request.generation_id
    group = groups.get(request.group_id)
    consumer_group = groups.consumer.get(request.group_id)
    if group is not None:
        group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            generation_id,
            is_transactional=True,
        )
    elif consumer_group is not None:
        try:
            consumer_group.check_transactional_commit(
                request.member_id, request.group_instance_id, generation_id, partitions
            )
        except ApiError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                # Producers know this error of the classic protocol.
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
            raise
    elif generation_id >= 0:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {request.group_id} not found")
