"""The transactions of one segment: their markers, and those that are open at its end."""

from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from spindle.audit.segment_part import NO_BATCH, Marker, SeenMarker, TransactionPart
from spindle.columnar.header_table import ATTRIBUTES, BASE_OFFSET, LAST_DELTA, POSITION, PRODUCER_ID
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG


class TransactionNotes:
    """Collects the transactions of one segment.

    Args:
        index: the path of its transaction index.
        base_offset: of the segment.
        entries: of the index, None if they cannot be read.
    """

    def __init__(
        self, index: Path, base_offset: int, entries: Sequence[AbortedTransaction] | None
    ) -> None:
        self._index_path = index
        self._base_offset = base_offset
        self._entries = entries
        self._open: dict[int, int] = {}
        self._by_first: list[tuple[int, int]] = []
        self._markers: list[SeenMarker] = []
        self._ended: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        self._wanted = {
            entry.last_stable_offset
            for entry in entries or ()
            if entry.last_stable_offset > entry.last_offset + 1
        }
        self._last_offset = NO_BATCH

    def window(self, fields: Any, markers: list[Marker]) -> None:
        """Add the transactional batches and markers of the next batches."""
        attributes = fields[ATTRIBUTES]
        is_data = (attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG)) == TRANSACTIONAL_FLAG
        start = 0
        for marker in markers:
            end = int(fields[POSITION].searchsorted(marker.position))
            self._begin(fields[:, start:end], is_data[start:end])
            producer_id = marker.producer_id
            began_at = self._open.pop(producer_id, None)
            is_first = producer_id not in self._ended
            self._markers.append(SeenMarker(marker, began_at, is_first, self._first_open()))
            self._ended.setdefault(producer_id, marker.offset)
            start = end
        self._begin(fields[:, start:], is_data[start:])
        self._last_offset = int(fields[BASE_OFFSET, -1] + fields[LAST_DELTA, -1])

    def _begin(self, fields: Any, is_data: Any) -> None:
        if not is_data.any():
            return
        ids, first = np.unique(fields[PRODUCER_ID][is_data], return_index=True)
        bases = fields[BASE_OFFSET][is_data][first]
        for producer_id, base in zip(ids.tolist(), bases.tolist(), strict=True):
            if producer_id in self._open:
                continue
            self._open[producer_id] = base
            heappush(self._by_first, (base, producer_id))
            if base in self._wanted:
                self._begun[base] = producer_id

    def _first_open(self) -> int | None:
        """Return the first offset of all open transactions that began in this segment."""
        while self._by_first:
            first, producer_id = self._by_first[0]
            if self._open.get(producer_id) == first:
                return first
            heappop(self._by_first)
        return None

    def part(self) -> TransactionPart:
        """Return the collected transactions."""
        named = {entry.last_offset for entry in self._entries or ()}
        return TransactionPart(
            self._index_path,
            self._base_offset,
            self._entries,
            self._last_offset,
            tuple(
                marker
                for marker in self._markers
                if marker.marker.is_abort or marker.marker.offset in named
            ),
            self._ended,
            self._open,
            self._begun,
        )
