"""The transaction coordinators of a broker, as request handlers see them."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.transactions.descriptions import DescribedTransaction
from spindle.coordinator.transactions.end_txn import EndRequest
from spindle.protocol.messages.end_txn import EndTxnResponse
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


class TransactionCoordinatorPort(Protocol):
    """All transactional ids whose partition this broker leads.

    A producer is its id and epoch. Every method raises ApiError if it refuses the whole request:
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, or a code of its own.
    """

    async def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Answer InitProducerId with a transactional id."""
        ...

    def add_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        client_version: int,
    ) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """Add partitions to a transaction; return NONE for each when the change is committed."""
        ...

    def verify_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Sequence[TopicPartition]
    ) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """Return NONE for each partition that belongs to the producer's transaction."""
        ...

    async def end_transaction(self, transactional_id: str, request: EndRequest) -> EndTxnResponse:
        """Commit or abort a transaction; return when the decision is committed."""
        ...

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Describe a transactional id. Never raises: it has its own error."""
        ...

    def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """List the transactional ids of all partitions."""
        ...
