"""The producers of one segment: the last batch of each before each snapshot, and at the end."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from spindle.audit.segment_part import NO_PRODUCERS, LastBatch, ProducerCut, ProducerPart
from spindle.columnar.header_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_DELTA,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from spindle.protocol.records.batch import CONTROL_FLAG, add_to_sequence


class ProducerNotes:
    """Collects the producers of one segment.

    Args:
        snapshot_offsets: of all snapshots of the log, ascending.
        noted: the producers of the batches before the first window.
    """

    def __init__(self, snapshot_offsets: Iterable[int], noted: ProducerPart = NO_PRODUCERS) -> None:
        self._cuts = list(noted.cuts)
        self._waiting = list(snapshot_offsets)[len(self._cuts) :]
        self._newest = dict(noted.newest)
        self._first_offset = noted.first_offset

    def window(self, fields: Any) -> None:
        """Add the producers of the next batches."""
        bases = fields[BASE_OFFSET]
        if self._first_offset is None:
            self._first_offset = int(bases[0])
        start = 0
        while self._waiting and self._waiting[0] <= bases[-1]:
            cut = int(bases.searchsorted(self._waiting[0]))
            self._note(fields[:, start:cut])
            self._cuts.append(ProducerCut(self._waiting.pop(0), self._newest))
            self._newest = {}
            start = max(start, cut)
        self._note(fields[:, start:])

    def _note(self, fields: Any) -> None:
        ids = fields[PRODUCER_ID]
        is_data = (ids >= 0) & (fields[ATTRIBUTES] & CONTROL_FLAG == 0)
        if not is_data.any():
            return
        indexes = np.flatnonzero(is_data)[::-1]
        _, newest = np.unique(ids[indexes], return_index=True)
        for index in indexes[newest].tolist():
            column = fields[:, index].tolist()
            delta = column[LAST_DELTA]
            self._newest[column[PRODUCER_ID]] = LastBatch(
                column[PRODUCER_EPOCH],
                add_to_sequence(column[BASE_SEQUENCE], delta),
                column[BASE_OFFSET] + delta,
            )

    def part(self) -> ProducerPart:
        """Return the collected producers."""
        return ProducerPart(self._first_offset, tuple(self._cuts), self._newest)
