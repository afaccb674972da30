"""The transactions of one segment: their markers, and those that go on behind its end."""

from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.pipeline.records.headers import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_DELTA,
    POSITION,
    PRODUCER_ID,
)
from spindle.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG

_NO_BATCH: Final = -1


class Marker(NamedTuple):
    """The control batch that ended a transaction."""

    position: int
    offset: int
    producer_id: int
    is_abort: bool


class SeenMarker(NamedTuple):
    """A marker in a segment.

    Attributes:
        began_at: the first offset of its transaction in this segment, None if there is none.
        is_first: no marker of the producer is before it in this segment, so its transaction may
            have begun in an earlier one.
        open_from: the first offset of the transactions of other producers that began in this
            segment and are open at the marker, None if there is none.
    """

    marker: Marker
    began_at: int | None
    is_first: bool
    open_from: int | None


class TransactionPart(NamedTuple):
    """The transactions of one segment.

    Attributes:
        entries: of its transaction index, None if they cannot be read.
        last_offset: the last offset that was seen among transactions, -1 for none.
        markers: of aborts, and those that the index names.
        ended: the offset of the first marker of each producer with one, by producer id.
        still_open: the first offsets of transactions that have not ended, by producer id.
        begun: the producers of transactions by their first offsets; only for offsets that an entry
            of the index has as its last stable offset, and that are behind the marker of the entry.
    """

    index_path: Path
    base_offset: int
    entries: Sequence[AbortedTransaction] | None
    last_offset: int
    markers: tuple[SeenMarker, ...]
    ended: dict[int, int]
    still_open: dict[int, int]
    begun: dict[int, int]


class TransactionNotes:
    """Notes the transactions of one segment.

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
            each.last_stable_offset
            for each in entries or ()
            if each.last_stable_offset > each.last_offset + 1
        }
        self._last_offset = _NO_BATCH

    def window(self, fields: Any, markers: list[Marker]) -> None:
        """Note transactional batches and the markers among the next batches."""
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
        """Return what was noted."""
        named = {entry.last_offset for entry in self._entries or ()}
        return TransactionPart(
            self._index_path,
            self._base_offset,
            self._entries,
            self._last_offset,
            tuple(
                each
                for each in self._markers
                if each.marker.is_abort or each.marker.offset in named
            ),
            self._ended,
            self._open,
            self._begun,
        )
