"""The transactional ids of one partition, each with the change that is being appended."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.transactions.metadata import TransactionMetadata


class MarkedTransaction(NamedTuple):
    """A transaction whose end is decided and committed, so that markers must be written."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int


class TransactionalId:
    """One transactional id.

    `pending` is the state that is being appended, or that follows when all markers are written, or
    None. While it is set, other requests get CONCURRENT_TRANSACTIONS, because a transactional id
    changes step by step.
    """

    __slots__ = ("has_unstored_fence", "metadata", "name", "pending", "unmarked")

    def __init__(self, name: str, metadata: TransactionMetadata) -> None:
        self.name = name
        self.metadata = metadata
        self.pending: TransactionMetadata | None = None
        self.unmarked: dict[TopicPartition, None] | None = None
        """The partitions whose markers are missing; None unless markers are being written."""
        self.has_unstored_fence = False
        """The epoch was bumped in memory only; the record is still to be written."""

    @property
    def open_partitions(self) -> Sequence[TopicPartition]:
        """The partitions that belong to the transaction and have no marker yet."""
        return self.metadata.partitions if self.unmarked is None else tuple(self.unmarked)

    def check_no_change(self) -> None:
        """Raise ApiError CONCURRENT_TRANSACTIONS if a change is not finished."""
        if self.pending is not None:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)


class TransactionTable:
    """Transactional ids by name, in the order in which they were created."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[str, TransactionalId] = {}

    def find(self, name: str) -> TransactionalId | None:
        return self._ids.get(name)

    def get(self, name: str) -> TransactionalId:
        """Return a transactional id.

        Raises:
            ApiError: INVALID_PRODUCER_ID_MAPPING if it does not exist, INVALID_REQUEST if the name
                is empty.
        """
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        entry = self._ids.get(name)
        if entry is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return entry

    def put(self, name: str, metadata: TransactionMetadata) -> TransactionalId:
        """Store the state of a transactional id, in place of an earlier one."""
        entry = self._ids.get(name)
        if entry is None:
            entry = self._ids[name] = TransactionalId(name, metadata)
        entry.metadata = metadata
        return entry

    def remove(self, name: str) -> None:
        self._ids.pop(name, None)

    def __iter__(self) -> Iterator[TransactionalId]:
        return iter(self._ids.values())

    def __len__(self) -> int:
        return len(self._ids)
