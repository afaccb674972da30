"""DescribeTransactions and ListTransactions."""

from collections.abc import Iterable
from typing import TypeAlias

from spindle.common.errors import ErrorCode
from spindle.coordinator.regular_expressions import compile_regex
from spindle.coordinator.transactions.metadata import TransactionState
from spindle.coordinator.transactions.records import by_topic
from spindle.coordinator.transactions.transaction_table import TransactionalId, TransactionTable
from spindle.protocol.messages.describe_transactions import DescribeTransactionsResponse
from spindle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

DescribedTransaction: TypeAlias = DescribeTransactionsResponse.TransactionState
ListedTransaction: TypeAlias = ListTransactionsResponse.TransactionState
_STATES = {state.wire_name: state for state in TransactionState}


def describe_transaction(table: TransactionTable, name: str) -> DescribedTransaction:
    """Describe a transactional id; one that does not exist has TRANSACTIONAL_ID_NOT_FOUND."""
    entry = table.find(name)
    if entry is None:
        return transaction_error(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    metadata = entry.metadata
    return DescribedTransaction(
        transactional_id=name,
        transaction_state=metadata.state.wire_name,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            DescribedTransaction.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(tuple(entry.open_partitions)).items()
        ],
    )


def transaction_error(name: str, code: ErrorCode) -> DescribedTransaction:
    """Return the description of a transactional id that cannot be described."""
    return DescribedTransaction(transactional_id=name, error_code=code)


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """Return the names in the request that name no state."""
    return [name for name in request.state_filters if name not in _STATES]


class TransactionFilter:
    """The filters of a ListTransactions request."""

    def __init__(self, request: ListTransactionsRequest) -> None:
        """Compile the filters.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        self._producer_ids = frozenset(request.producer_id_filters)
        self._has_states = bool(request.state_filters)
        self._states = frozenset(_STATES[n] for n in request.state_filters if n in _STATES)
        self._duration_ms = request.duration_filter
        pattern = request.transactional_id_pattern
        self._pattern = compile_regex(pattern, "Transaction ID pattern") if pattern else None

    def listed(self, ids: Iterable[TransactionalId], now_ms: int) -> list[ListedTransaction]:
        """Return the transactional ids that pass all filters."""
        return [
            ListedTransaction(
                transactional_id=entry.name,
                producer_id=entry.metadata.producer_id,
                transaction_state=entry.metadata.state.wire_name,
            )
            for entry in ids
            if self._passes(entry, now_ms)
        ]

    def _passes(self, entry: TransactionalId, now_ms: int) -> bool:
        metadata = entry.metadata
        if self._producer_ids and metadata.producer_id not in self._producer_ids:
            return False
        if self._has_states and metadata.state not in self._states:
            return False
        if self._duration_ms >= 0 and now_ms - metadata.start_ms <= self._duration_ms:
            return False
        return self._pattern is None or self._pattern.fullmatch(entry.name) is not None
