"""The transactions of the batches that compaction reads in order (KIP-98).

Remove the records of aborted transactions. Keep a transaction's marker as long as one of its
batches was read before it; a marker without batches may be removed after its delete horizon.
"""

from collections.abc import Sequence

from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.protocol.records.batch import BatchHeader
from spindle.protocol.records.control import ControlType, read_control_type
from spindle.protocol.records.record import decode_bounded


class CleanedTransactions:
    """Transactions that are open at the current position of a pass over the batches.

    `still_visible` collects, in order of their markers, the aborted transactions of which records
    or markers remain: they belong in the transaction index of the cleaned segment.
    """

    __slots__ = ("_aborted", "_next", "_ongoing_aborted", "_ongoing_committed", "still_visible")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        """`aborted`: all aborted transactions in the batches of the pass."""
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset)
        self._next = 0
        self._ongoing_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._ongoing_committed: dict[int, None] = {}
        self.still_visible: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Read a data batch; return whether its records belong to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        ongoing = self._ongoing_aborted.get(producer_id)
        if ongoing is None:
            self._ongoing_committed[producer_id] = None
            return False
        self._ongoing_aborted[producer_id] = (ongoing[0], True)
        return True

    def is_marker_without_batches(self, header: BatchHeader, data: memoryview) -> bool:
        """Read a control batch; return whether no batch of its transaction was read."""
        self._begin_up_to(header.last_offset)
        records = decode_bounded(data, 0, header)
        if not records:
            return True
        control_type = read_control_type(records[0].key)
        if control_type == ControlType.COMMIT:
            if header.producer_id in self._ongoing_committed:
                del self._ongoing_committed[header.producer_id]
                return False
            return True
        if control_type == ControlType.ABORT:
            transaction, was_met = self._ongoing_aborted.pop(header.producer_id, (None, False))
            if transaction is not None and was_met:
                self.still_visible.append(transaction)
                return False
            return True
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._next < len(self._aborted):
            transaction = self._aborted[self._next]
            if transaction.first_offset > offset:
                return
            self._next += 1
            if self._ongoing_aborted.get(transaction.producer_id) is None:
                self._ongoing_aborted[transaction.producer_id] = (transaction, False)
