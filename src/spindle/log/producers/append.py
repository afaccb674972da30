"""The changes of one append to the states of its producers; the log applies them after the write.

Sequences are checked for clients only, because followers append what their leader has accepted.
Epochs are checked wherever records enter the log, so that a fenced producer writes nothing (KIP-98,
KIP-360).
"""

from typing import Final, NamedTuple, NoReturn

from spindle.common.errors import ApiError, ErrorCode
from spindle.log.producers.entry import BatchMetadata, ProducerStateEntry, follows
from spindle.log.producers.verification import VerificationGuard
from spindle.protocol.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from spindle.protocol.records.control import EndTransactionMarker
from spindle.protocol.records.validation import AppendOrigin

_EPOCH_BUMPS_FROM: Final = 2
"""The transaction version since which each transaction has an epoch of its own (KIP-890)."""
_MAX_EPOCH: Final = 2**15 - 1


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerAppendInfo:
    """The changes of one producer in one append, on a copy of its entry."""

    __slots__ = (
        "_before",
        "_origin",
        "_verification",
        "_where",
        "entry",
        "is_transactional",
        "started_transactions",
    )

    def __init__(
        self,
        producer_id: int,
        before: ProducerStateEntry | None,
        origin: AppendOrigin,
        where: object,
        verification: VerificationGuard | None,
    ) -> None:
        self._before = before
        self._origin = origin
        self._where = where
        self._verification = verification
        self.is_transactional = False
        self.entry = before.copy() if before is not None else ProducerStateEntry(producer_id)
        self.started_transactions: list[int] = []

    def add_data(self, header: BatchHeader, base_offset: int) -> None:
        """Add a data batch that gets `base_offset`.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
        """
        self._check_epoch(header.producer_epoch, base_offset)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(header, base_offset)
        entry = self.entry
        entry.begin_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        entry.add_batch(
            BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        )
        if header.is_transactional:
            self.is_transactional = True
            if entry.current_transaction_first_offset is None:
                entry.current_transaction_first_offset = base_offset
                self.started_transactions.append(base_offset)
        elif entry.current_transaction_first_offset is not None:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {entry.producer_id} at offset "
                f"{base_offset} in partition {self._where}",
            )

    def add_marker(
        self,
        marker: EndTransactionMarker,
        header: BatchHeader,
        offset: int,
        transaction_version: int,
    ) -> CompletedTransaction | None:
        """Add a marker; return the transaction that it ends, None if that had no records here.

        Raises:
            ApiError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        if transaction_version >= _EPOCH_BUMPS_FROM:
            self._check_bumped_epoch(header.producer_epoch, offset)
        else:
            self._check_epoch(header.producer_epoch, offset)
        self.is_transactional = True
        entry = self.entry
        if marker.coordinator_epoch < entry.coordinator_epoch and (
            self._origin is not AppendOrigin.REPLICATION
        ):
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {entry.producer_id} at offset {offset} in "
                f"partition {self._where}: {marker.coordinator_epoch} (received), "
                f"{entry.coordinator_epoch} (current)",
            )
        entry.begin_epoch(header.producer_epoch)
        first_offset = entry.current_transaction_first_offset
        entry.current_transaction_first_offset = None
        entry.last_timestamp_ms = header.max_timestamp
        entry.coordinator_epoch = max(marker.coordinator_epoch, entry.coordinator_epoch)
        if first_offset is None:
            return None
        return CompletedTransaction(entry.producer_id, first_offset, offset, not marker.is_commit)

    def _check_epoch(self, producer_epoch: int, offset: int) -> None:
        if producer_epoch < self.entry.producer_epoch and (
            self._origin is not AppendOrigin.REPLICATION
        ):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {self.entry.producer_id} at offset {offset} in {self._where} "
                f"is {producer_epoch}, which is smaller than the last seen epoch "
                f"{self.entry.producer_epoch}",
            )

    def _check_bumped_epoch(self, producer_epoch: int, offset: int) -> None:
        """Refuse a marker whose epoch is not higher than that of the records that it would end.

        A marker that is repeated after its transaction has ended has an equal epoch. A marker at
        the largest epoch also has an equal epoch, because it cannot be bumped.
        """
        known = self.entry.producer_epoch
        if producer_epoch > known:
            return
        is_open = self.entry.current_transaction_first_offset is not None
        if producer_epoch == known and (not is_open or producer_epoch == _MAX_EPOCH):
            return
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"The marker of producer {self.entry.producer_id} at offset {offset} in {self._where} "
            f"has epoch {producer_epoch}, want one above {known}, the last seen epoch",
        )

    def _check_first_of_transaction(
        self, verification: VerificationGuard, header: BatchHeader, offset: int
    ) -> None:
        """Refuse a batch that overtakes another one which is still to be verified."""
        sequence = header.base_sequence
        is_known = self._before is not None and bool(self._before.batches)
        if verification.adds_partitions and sequence != 0 and not is_known:
            expected = "0 as the first of a transaction"
        elif sequence > verification.lowest_sequence:
            expected = f"{verification.lowest_sequence} (earliest seen sequence)"
        else:
            return
        self._refuse_sequence(header, offset, expected)

    def _check_sequence(self, header: BatchHeader, offset: int) -> None:
        entry = self.entry
        if self._verification is not None:
            self._check_first_of_transaction(self._verification, header, offset)
        known_epoch = self._before.producer_epoch if self._before else NO_PRODUCER_EPOCH
        if known_epoch == NO_PRODUCER_EPOCH:
            # Nothing is known of the producer, perhaps because its records were deleted: any
            # sequence may come first.
            return
        if header.producer_epoch != entry.producer_epoch:
            expected = "0 as the first of a new epoch"
            is_in_order = header.base_sequence == 0
        else:
            last = entry.last_sequence
            expected = f"{last} (current end sequence number)"
            is_in_order = (
                header.base_sequence == 0
                if last == NO_SEQUENCE
                else follows(last, header.base_sequence)
            )
        if not is_in_order:
            self._refuse_sequence(header, offset, expected)

    def _refuse_sequence(self, header: BatchHeader, offset: int, expected: str) -> NoReturn:
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {self.entry.producer_id} at offset "
            f"{offset} in partition {self._where}: {header.base_sequence} (incoming seq. number), "
            f"{expected}",
        )
