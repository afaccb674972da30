"""The APIs of transactional producers, and those that describe transactions."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from spindle.coordinator.partitioning import partition_for
from spindle.coordinator.transactions.descriptions import (
    DescribedTransaction,
    transaction_error,
)
from spindle.coordinator.transactions.end_txn import EndRequest
from spindle.coordinator.transactions.metadata import EPOCH_BUMP_VERSION
from spindle.protocol import versions
from spindle.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from spindle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from spindle.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from spindle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from spindle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from spindle.serving.context import RequestContext, fencing_code
from spindle.serving.cooperative import cooperatively
from spindle.serving.permissions import (
    check_cluster,
    check_group,
    check_transactional_id,
    may_use_topic,
    may_use_transactional_id,
)
from spindle.serving.services import BrokerServices

_INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

_Transaction: TypeAlias = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_TransactionResult: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_TopicResult: TypeAlias = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Codes: TypeAlias = Mapping[TopicPartition, ErrorCode]


# ---------------------------------------------------------------- AddPartitionsToTxn


async def handle_add_partitions(
    services: BrokerServices, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions, or verify that they belong to them (KIP-890).

    Clients send one transaction, in versions 0 to 3. Brokers send many, from version 4 on.
    """
    if context.api_version < versions.ADD_PARTITIONS_TO_TXN_BATCHED:
        only = _only_transaction(request)
        codes = await _codes_of(context, only, _begin(services, context, only))
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_by_topic(codes, _TopicResult)
        )
    try:
        check_cluster(services, context, Operation.CLUSTER_ACTION)
    except ApiError as error:
        return AddPartitionsToTxnResponse(error_code=error.code)
    # All are begun before the first one is awaited, so that their records share an append.
    begun = [
        (transaction, _begin(services, context, transaction))
        for transaction in request.transactions
    ]
    results = []
    for transaction, adding in begun:
        codes = await _codes_of(context, transaction, adding)
        results.append(
            _TransactionResult(
                transactional_id=transaction.transactional_id,
                topic_results=_by_topic(codes, _TransactionResult.AddPartitionsToTxnTopicResult),
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _only_transaction(request: AddPartitionsToTxnRequest) -> _Transaction:
    return _Transaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=[
            _Transaction.AddPartitionsToTxnTopic(name=topic.name, partitions=topic.partitions)
            for topic in request.v3_and_below_topics
        ],
    )


def _begin(
    services: BrokerServices, context: RequestContext, transaction: _Transaction
) -> Awaitable[_Codes]:
    """Start adding or verifying the partitions; return an awaitable of the error codes."""
    partitions = _partitions_of(transaction)
    name = transaction.transactional_id
    is_client = context.api_version < versions.ADD_PARTITIONS_TO_TXN_BATCHED
    if is_client and not may_use_transactional_id(services, context, Operation.WRITE, name):
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _refusals(partitions, dict.fromkeys(partitions, denied))
    refused = _refused(services, context, partitions, is_client=is_client)
    if refused:
        return _refusals(partitions, refused)
    producer = (transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return services.transactions.verify_partitions(name, producer, partitions)
    version = 0 if is_client else EPOCH_BUMP_VERSION
    return services.transactions.add_partitions(name, producer, partitions, version)


async def _refusals(partitions: Sequence[TopicPartition], refused: _Codes) -> _Codes:
    """Return the codes of a request that adds nothing, because not all partitions can be added."""
    return {p: refused.get(p, ErrorCode.OPERATION_NOT_ATTEMPTED) for p in partitions}


async def _codes_of(
    context: RequestContext, transaction: _Transaction, adding: Awaitable[_Codes]
) -> _Codes:
    try:
        return await adding
    except ApiError as error:
        code = fencing_code(context, error.code, versions.END_TXN_PRODUCER_FENCED)
        return dict.fromkeys(_partitions_of(transaction), code)
    finally:
        del adding  # a task with an error, and the frame that awaited it, keep each other in memory


def _partitions_of(transaction: _Transaction) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
    ]


def _refused(
    services: BrokerServices,
    context: RequestContext,
    partitions: Sequence[TopicPartition],
    *,
    is_client: bool,
) -> dict[TopicPartition, ErrorCode]:
    """Return the partitions that cannot belong to a transaction, each with its error."""
    topics, refused = services.metadata.image.topics.by_name, {}
    for partition in partitions:
        topic = topics.get(partition.topic)
        if is_client and (
            partition.topic in _INTERNAL_TOPICS
            or not may_use_topic(services, context, Operation.WRITE, partition.topic)
        ):
            refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None or partition.partition not in topic.partitions:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _by_topic(codes: _Codes, result_type: Any) -> list[Any]:
    """Return the codes as results of topics, in the type that the request's version has."""
    partition_type = result_type.AddPartitionsToTxnPartitionResult
    topics: dict[str, Any] = {}
    for (name, index), code in codes.items():
        if name not in topics:
            topics[name] = result_type(name=name)
        topics[name].results_by_partition.append(
            partition_type(partition_index=index, partition_error_code=code)
        )
    return list(topics.values())


# ---------------------------------------------------------------- the other requests of producers


async def handle_add_offsets(
    services: BrokerServices, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the partition of a group's offsets to a transaction."""
    offsets = services.metadata.image.topics.by_name.get(OFFSETS_TOPIC)
    count = (
        services.config.integer("offsets.topic.num.partitions")
        if offsets is None
        else len(offsets.partitions)
    )
    partition = TopicPartition(OFFSETS_TOPIC, partition_for(request.group_id, count))
    producer = (request.producer_id, request.producer_epoch)
    try:
        check_transactional_id(services, context, Operation.WRITE, request.transactional_id)
        check_group(services, context, Operation.READ, request.group_id)
        await services.transactions.add_partitions(
            request.transactional_id, producer, [partition], 0
        )
    except ApiError as error:
        code = fencing_code(context, error.code, versions.END_TXN_PRODUCER_FENCED)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse()


async def handle_end_transaction(
    services: BrokerServices, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    """Commit or abort a transaction; from version 5 on, the producer gets a new epoch."""
    has_bump = context.api_version >= versions.END_TXN_EPOCH_BUMP
    wanted = EndRequest(
        request.producer_id,
        request.producer_epoch,
        request.committed,
        EPOCH_BUMP_VERSION if has_bump else 0,
    )
    try:
        check_transactional_id(services, context, Operation.WRITE, request.transactional_id)
        return await services.transactions.end_transaction(request.transactional_id, wanted)
    except ApiError as error:
        code = fencing_code(context, error.code, versions.END_TXN_PRODUCER_FENCED)
        return EndTxnResponse(error_code=code)


# ---------------------------------------------------------------- questions


async def handle_describe_transactions(
    services: BrokerServices, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe transactional ids; each has its own error."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(services, context, name)
            async for name in cooperatively(request.transactional_ids)
        ]
    )


def _described(
    services: BrokerServices, context: RequestContext, name: str
) -> DescribedTransaction:
    """Describe a transactional id with the topics that the sender may describe."""
    if not may_use_transactional_id(services, context, Operation.DESCRIBE, name):
        return transaction_error(name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    described = services.transactions.describe(name)
    described.topics = [
        topic
        for topic in described.topics
        if may_use_topic(services, context, Operation.DESCRIBE, topic.topic)
    ]
    return described


async def handle_list_transactions(
    services: BrokerServices, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List the transactional ids of this coordinator that the sender may describe."""
    try:
        response = services.transactions.list_transactions(request)
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    response.transaction_states = [
        state
        for state in response.transaction_states
        if may_use_transactional_id(services, context, Operation.DESCRIBE, state.transactional_id)
    ]
    return response
