"""Count the rows that a read returns from batches, with as little decoding as possible."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from spindle.client.fetching import AbortedProducer
from spindle.client.isolation import AbortedTransactions
from spindle.columnar import header_table
from spindle.columnar.decoder import BatchDecoder, RowFilter
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.protocol.records.batch import (
    CONTROL_FLAG,
    HEADER_BYTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    read_header,
)
from spindle.protocol.records.record import decode_records


class RowCounter:
    """Counts the rows of the batches of a range, which are given in offset order.

    Args:
        row_filter: The rows that are wanted.
        aborted: Transactions whose records are left out.
    """

    def __init__(
        self, source: TopicPartition, row_filter: RowFilter, aborted: Iterable[AbortedProducer]
    ) -> None:
        self._source = source
        self._filter = row_filter
        self._has_times = row_filter[2:] != RowFilter()[2:]
        transactions = tuple(aborted)
        self._aborted = AbortedTransactions(transactions) if transactions else None

    def counts(self, fields: Any, batch_at: Callable[[int, int], Bytes]) -> Any:
        """Return the count of rows of each batch.

        Args:
            fields: Header fields, an array (FIELD_COUNT, batches) of `headers`.
            batch_at: Returns the bytes of a batch by its position and size.

        Raises:
            CorruptRecords: a batch that must be decoded cannot be.
        """
        wanted = self._filter
        base, delta = fields[header_table.BASE_OFFSET], fields[header_table.LAST_DELTA]
        counts = fields[header_table.RECORD_COUNT].copy()
        is_cut = (base < wanted.start_offset) | (base + delta >= wanted.end_offset)
        is_uncertain = is_cut & (counts != delta + 1)
        inside = np.minimum(base + delta + 1, wanted.end_offset)
        inside -= np.maximum(base, wanted.start_offset)
        counts = np.where(is_cut, inside, counts)
        if self._has_times:
            is_uncertain |= self._restrict_to_times(fields, counts)
        counts[fields[header_table.ATTRIBUTES] & CONTROL_FLAG != 0] = 0
        if self._aborted is not None:
            self._leave_out_aborted(fields, counts, batch_at)
        for index in np.flatnonzero(is_uncertain & (counts != 0)).tolist():
            position, size = fields[
                [header_table.POSITION, header_table.SIZE_BYTES], index
            ].tolist()
            counts[index] = self._decoded_count(batch_at(position, size))
        return counts

    def _restrict_to_times(self, fields: Any, counts: Any) -> Any:
        """Set the counts of batches whose header times decide; return a mask of the others."""
        least, greatest = self._filter.min_timestamp_ms, self._filter.max_timestamp_ms
        newest = fields[header_table.MAX_TIMESTAMP]
        has_one_time = fields[header_table.ATTRIBUTES] & TIMESTAMP_TYPE_FLAG != 0
        is_out = (newest < least) | (has_one_time & (newest > greatest))
        counts[is_out] = 0
        # A header does not contain the time of the oldest record.
        is_in = has_one_time | ((newest <= greatest) & (least == RowFilter().min_timestamp_ms))
        return ~is_in

    def _leave_out_aborted(
        self, fields: Any, counts: Any, batch_at: Callable[[int, int], Bytes]
    ) -> None:
        assert self._aborted is not None
        attributes = fields[header_table.ATTRIBUTES]
        for index in np.flatnonzero(attributes & TRANSACTIONAL_FLAG).tolist():
            position, size = fields[
                [header_table.POSITION, header_table.SIZE_BYTES], index
            ].tolist()
            is_control = attributes[index] & CONTROL_FLAG
            data = batch_at(position, size if is_control else HEADER_BYTES)
            header = read_header(data)
            if is_control:
                self._aborted.end_of_transaction(header, decode_records(data, 0, header))
            elif self._aborted.covers(header):
                counts[index] = 0

    def _decoded_count(self, data: Bytes) -> int:
        decoder = BatchDecoder(self._source, ("offset",), self._filter)
        return sum(rows.num_rows for rows in decoder.decode(data))
