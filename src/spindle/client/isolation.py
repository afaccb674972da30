"""Batches that a consumer shows to its application (KIP-98), by the rule of Kafka's consumer.

The broker, or a `.txnindex` file, names the aborted transactions that overlap a range. A producer's
transactional batches are left out from the first offset of such a transaction to its abort marker.
"""

import heapq
from collections.abc import Iterable, Iterator

from spindle.client.fetching import AbortedProducer
from spindle.common.ports import Bytes
from spindle.protocol.records.batch import BatchHeader, batches, check_crc
from spindle.protocol.records.control import ControlType, read_control_type
from spindle.protocol.records.record import Record, decode_records


class AbortedTransactions:
    """The state of a walk over batches in offset order; use one object for each range."""

    def __init__(self, aborted: Iterable[AbortedProducer]) -> None:
        self._waiting = [(entry.first_offset, entry) for entry in aborted]
        heapq.heapify(self._waiting)
        self._aborted_producers: dict[int, int | None] = {}
        """The producers in an aborted transaction, with the offset of its marker if it is known."""

    def covers(self, header: BatchHeader) -> bool:
        """Return True if a data batch was aborted. Call it for batches in offset order."""
        self._advance_to(header.last_offset)
        if not header.is_transactional or header.producer_id not in self._aborted_producers:
            return False
        marker = self._aborted_producers[header.producer_id]
        # Compaction may have removed the marker since the transactions were listed.
        return marker is None or header.base_offset <= marker

    def end_of_transaction(self, header: BatchHeader, records: list[Record]) -> None:
        """Note a control batch: an abort marker ends its producer's aborted transaction."""
        # The marker may be the first batch of its transaction in this range.
        self._advance_to(header.last_offset)
        # Compaction may leave a control batch without its marker.
        if records and read_control_type(records[0].key) == ControlType.ABORT:
            self._aborted_producers.pop(header.producer_id, None)

    def _advance_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, entry = heapq.heappop(self._waiting)
            self._aborted_producers[entry.producer_id] = entry.last_offset


def shown_batches(
    data: Bytes, aborted: Iterable[AbortedProducer]
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield each batch of an answer to Fetch: its position, header, and whether it is shown.

    Args:
        aborted: those that the answer names; none under read_uncommitted.

    Raises:
        CorruptRecords: a batch is damaged.
    """
    transactions = AbortedTransactions(aborted)
    for at, header in batches(data):
        check_crc(data, at, header)
        if header.is_control:
            transactions.end_of_transaction(header, decode_records(data, at, header))
        yield at, header, not header.is_control and not transactions.covers(header)
