"""TxnOffsetCommit, for one shard: offsets that become visible with the producer's transaction.

KIP-98 (transactions), KIP-447 (the group's member and generation fence zombies), KIP-1319 (topic
ids, errors of consumer groups).
"""

from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.coordinator.coordinator_result import GroupRequest, InTransaction
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.offset_requests import (
    TransactionalTopic,
    add_offsets,
    group_not_found,
    named_partitions,
)
from spindle.coordinator.streams.streams_group import StreamsGroup
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

_GROUP_ERRORS_FROM_VERSION: Final = 6
"""From this version on, producers know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319)."""


def commit_transactional_offsets(
    groups: GroupTable, request: GroupRequest[TxnOffsetCommitRequest]
) -> TxnOffsetCommitResponse:
    """Add one record per partition; a partition whose metadata is too long gets an error.

    Every topic of the request has its name and its id.

    Raises:
        ApiError: the caller may not commit for this group; GROUP_ID_NOT_FOUND if the group does not
            exist, STALE_MEMBER_EPOCH if the member's epoch is not its present one, before version 6
            ILLEGAL_GENERATION for both.
    """
    message, out = request.message, request.out
    _check(groups, message, request.client.api_version)
    out.transaction = InTransaction(message.producer_id, message.producer_epoch)
    return TxnOffsetCommitResponse(
        topics=add_offsets(
            TransactionalTopic,
            message.group_id,
            message.topics,
            out,
            present=groups.view.topics,
            metadata_max_bytes=groups.config.offset_metadata_max_bytes,
        )
    )


def _check(groups: GroupTable, request: TxnOffsetCommitRequest, version: int) -> None:
    generation_id = request.generation_id_or_member_epoch
    knows_group_errors = version >= _GROUP_ERRORS_FROM_VERSION
    group = groups.get(request.group_id)
    owner = groups.offset_owner(request.group_id)
    sender = (request.member_id, request.group_instance_id, generation_id)
    groups.check_has_offsets(request.group_id)
    if group is not None:
        group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            generation_id,
            is_transactional=True,
        )
    elif owner is not None:
        partitions = [
            TopicIdPartition(topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ]
        try:
            if isinstance(owner, StreamsGroup):
                owner.check_transactional_commit(*sender, named_partitions(request.topics))
            else:
                owner.check_transactional_commit(*sender, partitions)
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
