"""InitProducerId with a transactional id: a new epoch fences the producers before (KIP-360)."""

from collections.abc import Callable
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.config import TransactionsConfig
from spindle.coordinator.transactions.metadata import (
    NO_TIMEOUT_MS,
    TransactionMetadata,
    TransactionState,
    is_exhausted,
)
from spindle.coordinator.transactions.transaction_table import TransactionalId, TransactionTable
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NewProducerId = Callable[[], int]
"""Returns a producer id that no other producer has. Raises ApiError if there is none yet."""
_NO_PRODUCER: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def check_initialization(request: InitProducerIdRequest, config: TransactionsConfig) -> None:
    """Raise ApiError if the request is refused whatever the state of its transactional id."""
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc and not config.allows_two_phase_commit:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        # Kafka 4.4 does not serve this part of KIP-939 either.
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    has_valid_timeout = 0 < request.transaction_timeout_ms <= config.max_timeout_ms
    if not request.enable2_pc and not has_valid_timeout:
        raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def find_or_create(
    table: TransactionTable,
    request: InitProducerIdRequest,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> TransactionalId:
    """Return the transactional id of a request that was checked.

    Raises:
        ApiError: there is no producer id for a new one.
    """
    name = request.transactional_id or ""
    entry = table.find(name)
    if entry is not None:
        return entry
    return table.put(
        name, TransactionMetadata(new_producer_id(), request.transaction_timeout_ms, now_ms)
    )


def initialized(
    transactional_id: TransactionalId,
    request: InitProducerIdRequest,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> TransactionMetadata | None:
    """Return the state that the initialised producer has.

    Return None if a transaction is open, which must be aborted first.

    Raises:
        ApiError: CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, or there is no new producer id.
    """
    transactional_id.check_no_change()
    metadata = transactional_id.metadata
    expected = (request.producer_id, request.producer_epoch)
    is_new = expected == _NO_PRODUCER
    if not is_new and not _may_continue(metadata, *expected):
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if metadata.state.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if metadata.state is TransactionState.ONGOING:
        return None
    timeout_ms = NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
    if metadata.is_epoch_exhausted and (is_new or expected[1] == metadata.producer_epoch):
        return metadata.with_new_producer_id(
            new_producer_id(), timeout_ms, now_ms, keeps_last_epoch=not is_new
        )
    return metadata.with_next_epoch(timeout_ms, None if is_new else expected[1], now_ms)


def _may_continue(metadata: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """Return True if the request's producer id and epoch are current or just replaced.

    A producer may repeat the request that exhausted the epochs of its former producer id.
    """
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == metadata.producer_id
        or (producer_id == metadata.previous_producer_id and is_exhausted(epoch))
    )
