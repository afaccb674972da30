"""TxnOffsetCommit: offsets that a producer commits together with its records.

Requests name topics by name up to version 5, by id since version 6 (KIP-1319). The coordinator gets
both.
"""

from collections.abc import Awaitable, Callable

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.append_errors import coordinator_error
from spindle.coordinator.offset_requests import TransactionalTopic, refused_topics
from spindle.protocol import versions
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.handlers.committed_offsets import known_topics, merged_topics
from spindle.serving.handlers.groups import GroupServices, client_of
from spindle.serving.permissions import check_group, check_transactional_id


async def handle_txn_offset_commit(
    services: GroupServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Add the offsets of partitions that exist to a transaction; the others get an error."""
    try:
        check_transactional_id(services, context, Operation.WRITE, request.transactional_id)
        check_group(services, context, Operation.READ, request.group_id)
    except ApiError as error:
        return TxnOffsetCommitResponse(
            topics=refused_topics(TransactionalTopic, request.topics, error.code)
        )
    by_id = context.api_version >= versions.TXN_OFFSET_COMMIT_TOPIC_IDS
    request.topics, refused = known_topics(
        services, context, request.topics, TransactionalTopic, by_id=by_id
    )
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    try:
        response = await services.groups.commit_transactional_offsets(
            request, client_of(context), _verification(services, context.api_version, request)
        )
    except ApiError as error:
        code = coordinator_error(error.code)
        if (
            code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            and context.api_version < versions.TXN_OFFSET_COMMIT_LOAD_IN_PROGRESS
        ):
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        topics = refused_topics(TransactionalTopic, request.topics, code)
        response = TxnOffsetCommitResponse(topics=topics)
    if refused:
        response.topics = merged_topics(refused, response.topics)
    return response


def _verification(
    services: GroupServices, version: int, request: TxnOffsetCommitRequest
) -> Callable[[TopicPartition], Awaitable[None]]:
    """Return the verification request for the transaction's coordinator (KIP-890)."""
    adds = version >= versions.TXN_OFFSET_COMMIT_ADDS_PARTITION

    async def verify(partition: TopicPartition) -> None:
        hosted = services.replicas.lookup(*partition)
        if not adds and hosted is not None and not hosted.log.config.verifies_transactions:
            return
        codes = await services.verification.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [partition],
            adds=adds,
        )
        code = codes[partition]
        if (
            code is ErrorCode.TRANSACTION_ABORTABLE
            and version < versions.TXN_OFFSET_COMMIT_ABORTABLE
        ):
            code = ErrorCode.INVALID_TXN_STATE
        if code is not ErrorCode.NONE:
            raise ApiError(code)

    return verify
