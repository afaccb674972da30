"""EndTxn and the abort of transactions that timed out or whose producer is fenced (KIP-890)."""

from typing import Final, NamedTuple

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.transactions.init_producer_id import NewProducerId
from spindle.coordinator.transactions.metadata import (
    EPOCH_BUMP_VERSION,
    TransactionMetadata,
    TransactionState,
)
from spindle.coordinator.transactions.transaction_table import TransactionalId
from spindle.protocol.records.batch import NO_PRODUCER_ID

_LAST_OF_PRODUCER: Final = 2**15 - 2


class EndRequest(NamedTuple):
    """A producer's request to end its transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    client_version: int
    """The `transaction.version` of the client."""


def ended(
    transactional_id: TransactionalId,
    request: EndRequest,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> TransactionMetadata | None:
    """Return the state with which the transaction ends.

    Return None if the same request ended it before: it is answered with the present state.

    Raises:
        ApiError: the request does not fit the state.
    """
    if request.client_version >= EPOCH_BUMP_VERSION:
        return _ended_with_bump(transactional_id, request, new_producer_id, now_ms)
    return _ended_without_bump(transactional_id, request, now_ms)


def _ended_without_bump(
    transactional_id: TransactionalId, request: EndRequest, now_ms: int
) -> TransactionMetadata | None:
    metadata = transactional_id.metadata
    if metadata.producer_id != request.producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != request.producer_epoch:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    transactional_id.check_no_change()
    if metadata.state is TransactionState.ONGOING:
        return metadata.prepared(
            is_commit=request.is_commit,
            client_version=0,
            next_producer_id=NO_PRODUCER_ID,
            now_ms=now_ms,
        )
    _check_same_end(metadata, request)
    return None


def _ended_with_bump(
    transactional_id: TransactionalId,
    request: EndRequest,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> TransactionMetadata | None:
    transactional_id.check_no_change()
    metadata = transactional_id.metadata
    is_bumped = metadata.producer_epoch == request.producer_epoch + 1
    has_new_id = _has_new_producer_id(metadata, request)
    if metadata.producer_id != request.producer_id and not has_new_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_repeated = is_bumped or has_new_id
    is_valid = metadata.producer_epoch == request.producer_epoch
    if metadata.state.is_prepared:
        is_valid = is_bumped
    elif metadata.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        is_valid = is_valid or is_repeated
    if not is_valid:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    is_abort_of_nothing = metadata.state.is_idle and not request.is_commit and not is_repeated
    if metadata.state is TransactionState.ONGOING or is_abort_of_nothing:
        # A client may not know whether its transaction has begun. An abort always bumps the epoch.
        return _prepared_with_bump(metadata, request.is_commit, new_producer_id, now_ms)
    if metadata.state.is_idle and not is_repeated:
        raise ApiError(ErrorCode.INVALID_TXN_STATE)
    _check_same_end(metadata, request)
    return None


def _has_new_producer_id(metadata: TransactionMetadata, request: EndRequest) -> bool:
    """Return True if the transaction that the request ended exhausted the producer's epochs."""
    return (
        metadata.previous_producer_id == request.producer_id
        and request.producer_epoch == _LAST_OF_PRODUCER
        and metadata.producer_epoch == 0
    )


def _check_same_end(metadata: TransactionMetadata, request: EndRequest) -> None:
    """Raise ApiError unless the transaction is over, and ended as the request wants.

    Raises:
        ApiError: CONCURRENT_TRANSACTIONS while markers are written, INVALID_TXN_STATE if there was
            no transaction, or if it ended in the other way.
    """
    has_ended = metadata.state is not TransactionState.EMPTY
    if not has_ended or metadata.is_commit != request.is_commit:
        raise ApiError(ErrorCode.INVALID_TXN_STATE)
    if metadata.state.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _prepared_with_bump(
    metadata: TransactionMetadata, is_commit: bool, new_producer_id: NewProducerId, now_ms: int
) -> TransactionMetadata:
    return metadata.prepared(
        is_commit=is_commit,
        client_version=EPOCH_BUMP_VERSION,
        next_producer_id=new_producer_id() if metadata.is_epoch_exhausted else NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def fenced(
    transactional_id: TransactionalId,
    transaction_version: int,
    new_producer_id: NewProducerId,
    now_ms: int,
) -> TransactionMetadata:
    """Return the state with which an open transaction is aborted and its producer is fenced.

    Raises:
        ApiError: there is no new producer id for an exhausted one.
    """
    metadata = transactional_id.metadata
    if transaction_version >= EPOCH_BUMP_VERSION:
        return _prepared_with_bump(metadata, False, new_producer_id, now_ms)
    if not transactional_id.has_unstored_fence:
        # The epoch is raised at once, so that the producer can do nothing more.
        transactional_id.metadata = metadata.with_fenced_producer()
        transactional_id.has_unstored_fence = True
    return transactional_id.metadata.prepared(
        is_commit=False, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
    )
