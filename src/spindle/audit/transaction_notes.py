"""The transactions of one segment: their markers, and those that go on behind its end."""

from collections.abc import Sequence
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
    """

    marker: Marker
    began_at: int | None
    is_first: bool


class TransactionPart(NamedTuple):
    """The transactions of one segment.

    Attributes:
        entries: of its transaction index, None if they cannot be read.
        last_offset: the last offset that was seen among transactions, -1 for none.
        markers: of aborts, and those that the index names.
        ended: the producers with a marker.
        still_open: the first offsets of transactions that have not ended, by producer id.
    """

    index_path: Path
    base_offset: int
    entries: Sequence[AbortedTransaction] | None
    last_offset: int
    markers: tuple[SeenMarker, ...]
    ended: tuple[int, ...]
    still_open: dict[int, int]


class TransactionNotes:
    """Notes the transactions of one segment.

    Args:
        index: the path of its transaction index.
        base_offset: of the segment.
    """

    def __init__(self, index: Path, base_offset: int) -> None:
        self._index_path = index
        self._base_offset = base_offset
        self._entries: Sequence[AbortedTransaction] | None = None
        self._open: dict[int, int] = {}
        self._markers: list[SeenMarker] = []
        self._ended: set[int] = set()
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
            self._markers.append(SeenMarker(marker, began_at, producer_id not in self._ended))
            self._ended.add(producer_id)
            start = end
        self._begin(fields[:, start:], is_data[start:])
        self._last_offset = int(fields[BASE_OFFSET, -1] + fields[LAST_DELTA, -1])

    def _begin(self, fields: Any, is_data: Any) -> None:
        if not is_data.any():
            return
        ids, first = np.unique(fields[PRODUCER_ID][is_data], return_index=True)
        bases = fields[BASE_OFFSET][is_data][first]
        for producer_id, base in zip(ids.tolist(), bases.tolist(), strict=True):
            self._open.setdefault(producer_id, base)

    def entries(self, entries: Sequence[AbortedTransaction]) -> None:
        """Note the entries of the index."""
        self._entries = entries

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
            tuple(self._ended),
            self._open,
        )
