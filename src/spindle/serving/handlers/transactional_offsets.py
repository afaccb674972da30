"""TxnOffsetCommit: offsets that a producer commits together with its records.

Requests name topics by name up to version 5, by id since version 6 (KIP-1319). The coordinator gets
both.
"""

from collections.abc import Awaitable, Callable

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.append_errors import coordinator_error
from spindle.coordinator.transactional_offsets import (
    TransactionalPartition,
    TransactionalTopic,
    transactional_error,
)
from spindle.protocol import versions
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.handlers.groups import GroupServices, client_of
from spindle.serving.permissions import check_group, check_transactional_id, may_use_topic


async def handle_txn_offset_commit(
    services: GroupServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Add the offsets of partitions that exist to a transaction; the others get an error."""
    try:
        check_transactional_id(services, context, Operation.WRITE, request.transactional_id)
        check_group(services, context, Operation.READ, request.group_id)
    except ApiError as error:
        return transactional_error(request, error.code)
    refused: list[TransactionalTopic] = []
    request.topics = _known_topics(services, context, request, refused)
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
        response = transactional_error(request, code)
    if refused:
        response.topics = _merged(refused, response.topics)
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


def _known_topics(
    services: GroupServices,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    refused: list[TransactionalTopic],
) -> list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]:
    """Return the topics with name, id and partitions that exist; add the others to `refused`."""
    known = []
    topics = services.metadata.image.topics
    by_id = context.api_version >= versions.TXN_OFFSET_COMMIT_TOPIC_IDS
    for topic in request.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        image = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
        if image is None and by_id:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not may_use_topic(
            services, context, Operation.READ, topic.name if image is None else image.name
        ):
            code, image = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        if image is not None:
            topic.name, topic.topic_id = image.name, image.topic_id
        partitions = {} if image is None else image.partitions
        unknown = [p for p in topic.partitions if p.partition_index not in partitions]
        if unknown or image is None:
            refused.append(
                TransactionalTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        TransactionalPartition(partition_index=p.partition_index, error_code=code)
                        for p in unknown
                    ],
                )
            )
        topic.partitions = [p for p in topic.partitions if p.partition_index in partitions]
        if topic.partitions:
            known.append(topic)
    return known


def _merged(
    refused: list[TransactionalTopic], done: list[TransactionalTopic]
) -> list[TransactionalTopic]:
    """Merge the refused partitions and the coordinator's results, in this order."""
    topics = {(topic.name, topic.topic_id): topic for topic in refused}
    for topic in done:
        present = topics.setdefault((topic.name, topic.topic_id), topic)
        if present is not topic:
            present.partitions += topic.partitions
    return list(topics.values())
