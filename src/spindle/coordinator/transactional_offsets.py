"""TxnOffsetCommit, for one shard: offsets that become visible with the producer's transaction.

KIP-98 (transactions), KIP-447 (the group's member and generation fence zombies), KIP-1319 (topic
ids, errors of consumer groups).
"""

from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition, TopicPartition
from spindle.coordinator.coordinator_result import Client, GroupResult, InTransaction
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.offset_requests import add_offset, group_not_found
from spindle.coordinator.records import CommittedOffset
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

TransactionalTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
TransactionalPartition = TransactionalTopic.TxnOffsetCommitResponsePartition

_GROUP_ERRORS_FROM_VERSION: Final = 6
"""From this version on, producers know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319)."""


def transactional_error(
    request: TxnOffsetCommitRequest, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """Return the answer that gives every partition of a transactional commit the same error."""
    return TxnOffsetCommitResponse(
        topics=[
            TransactionalTopic(
                name=topic.name,
                topic_id=topic.topic_id,
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
    groups: GroupTable, request: TxnOffsetCommitRequest, client: Client, out: GroupResult
) -> TxnOffsetCommitResponse:
    """Add one record per partition; a partition whose metadata is too long gets an error.

    Every topic of the request has its name and its id.

    Raises:
        ApiError: the caller may not commit for this group; GROUP_ID_NOT_FOUND if the group does not
            exist, STALE_MEMBER_EPOCH if the member's epoch is not its present one, before version 6
            ILLEGAL_GENERATION for both.
    """
    _check(
        groups,
        request,
        client.api_version,
        [
            TopicIdPartition(topic.topic_id, partition.partition_index)
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
                topic_id=topic.topic_id,
            )
            name = TopicPartition(topic.name, partition.partition_index)
            code = add_offset(out, request.group_id, name, committed, limit)
            partitions.append(
                TransactionalPartition(partition_index=partition.partition_index, error_code=code)
            )
        topics.append(
            TransactionalTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return TxnOffsetCommitResponse(topics=topics)


def _check(
    groups: GroupTable,
    request: TxnOffsetCommitRequest,
    version: int,
    partitions: list[TopicIdPartition],
) -> None:
    generation_id = request.generation_id_or_member_epoch
    knows_group_errors = version >= _GROUP_ERRORS_FROM_VERSION
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
            if error.code is ErrorCode.STALE_MEMBER_EPOCH and not knows_group_errors:
                # Older producers know this error of the classic protocol.
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
            raise
    elif generation_id >= 0:
        missing = group_not_found(request.group_id)
        if knows_group_errors:
            raise missing
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, missing.message)
