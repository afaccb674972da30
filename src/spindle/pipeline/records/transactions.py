"""Which batches a read_committed reader leaves out (KIP-98): the consumer's own rule.

The broker, or a `.txnindex` file, names the aborted transactions that overlap what is read. A
producer is "aborted" from the first offset of such a transaction to its abort marker.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from spindle.common.errors import CorruptRecords
from spindle.protocol.records.batch import BatchHeader
from spindle.protocol.records.control import ControlType, read_control_type
from spindle.protocol.records.record import Record


class AbortedTransaction(NamedTuple):
    """A producer's aborted transaction by its first offset in the partition."""

    producer_id: int
    first_offset: int


class AbortedTransactions:
    """State of a walk over batches in offset order; one object for each range that is read."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = [(entry.first_offset, entry.producer_id) for entry in aborted]
        heapq.heapify(self._waiting)
        self._aborted_producers: dict[int, None] = {}

    def covers(self, header: BatchHeader) -> bool:
        """True if the (data) batch belongs to an aborted transaction. Call in offset order."""
        self._advance_to(header.last_offset)
        return header.is_transactional and header.producer_id in self._aborted_producers

    def end_of_transaction(self, header: BatchHeader, records: list[Record]) -> None:
        """A control batch was passed: an abort marker ends its producer's aborted transaction."""
        if not records:
            raise CorruptRecords(f"control batch at offset {header.base_offset} has no record")
        # A marker may be the first that is seen of its transaction: it ends that one, too.
        self._advance_to(header.last_offset)
        if read_control_type(records[0].key) == ControlType.ABORT:
            self._aborted_producers.pop(header.producer_id, None)

    def _advance_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, producer_id = heapq.heappop(self._waiting)
            self._aborted_producers[producer_id] = None
