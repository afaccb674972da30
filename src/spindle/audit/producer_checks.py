"""Checks of producer snapshots and transaction indexes against the batches of a log.

A contradiction that compaction could explain, because it removes batches and markers, is kept back
until the whole log was read, and dropped if the log was compacted.
"""

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from spindle.audit.findings import Collector, FindingKind
from spindle.log.formats.transaction_index import ENTRY_BYTES, AbortedTransaction
from spindle.log.producers.entry import ProducerStateEntry
from spindle.pipeline.records.headers import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_DELTA,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from spindle.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, add_to_sequence

_NO_BATCH: Final = -1


class _LastBatch(NamedTuple):
    epoch: int
    last_sequence: int
    last_offset: int


class ProducerSnapshot(NamedTuple):
    """A snapshot file: the state of all producers before `offset`."""

    offset: int
    path: Path
    entries: tuple[ProducerStateEntry, ...]


class ProducerChecks:
    """Compares snapshots with the last batches of their producers.

    Args:
        snapshots: ascending by offset.
    """

    def __init__(self, findings: Collector, snapshots: list[ProducerSnapshot]) -> None:
        self._findings = findings
        self._waiting = list(snapshots)
        self._last: dict[int, _LastBatch] = {}
        self._first_offset: int | None = None
        self._unless_compacted: list[tuple[ProducerSnapshot, str, int]] = []

    def window(self, fields: Any) -> None:
        """Note the producers of the next batches, and compare the snapshots among them."""
        bases = fields[BASE_OFFSET]
        if self._first_offset is None:
            self._first_offset = int(bases[0])
        start = 0
        while self._waiting and self._waiting[0].offset <= bases[-1]:
            cut = int(bases.searchsorted(self._waiting[0].offset))
            self._note(fields[:, start:cut])
            self._compare(self._waiting.pop(0))
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
            self._last[column[PRODUCER_ID]] = _LastBatch(
                column[PRODUCER_EPOCH],
                add_to_sequence(column[BASE_SEQUENCE], delta),
                column[BASE_OFFSET] + delta,
            )

    def _compare(self, snapshot: ProducerSnapshot) -> None:
        for entry in snapshot.entries:
            said = entry.last_data_offset
            if said == _NO_BATCH:
                continue
            seen = self._last.get(entry.producer_id)
            producer = f"producer {entry.producer_id}"
            if said >= snapshot.offset:
                self._add(snapshot, f"{producer} has offset {said}, which is not before it", said)
            elif seen is None:
                if self._first_offset is not None and said >= self._first_offset:
                    text = f"{producer} has offset {said}, but the log has no batch of it"
                    self._unless_compacted.append((snapshot, text, said))
            elif seen.epoch == entry.producer_epoch:
                text = (
                    f"{producer} has sequence {entry.last_sequence} at offset {said}, but its last "
                    f"batch in the log has {seen.last_sequence} at {seen.last_offset}"
                )
                if seen.last_offset < said:
                    self._unless_compacted.append((snapshot, text, said))
                elif (seen.last_offset, seen.last_sequence) != (said, entry.last_sequence):
                    self._add(snapshot, text, said)

    def _add(self, snapshot: ProducerSnapshot, evidence: str, offset: int) -> None:
        kind = FindingKind.PRODUCER_SNAPSHOT_ENTRY
        self._findings.add(kind, snapshot.path, evidence, offset=offset)

    def finish(self, end_offset: int, *, is_compacted: bool, may_be_short: bool) -> None:
        """Compare the snapshots at the end of the log, and report.

        Args:
            end_offset: the log end offset.
            may_be_short: the log may have lost its end, because the broker died.
        """
        for snapshot in self._waiting:
            if snapshot.offset <= end_offset:
                self._compare(snapshot)
            elif not may_be_short:
                self._findings.add(
                    FindingKind.LOG_SHORT,
                    snapshot.path,
                    f"the snapshot was taken at offset {snapshot.offset}, but the log ends at "
                    f"{end_offset}",
                    offset=snapshot.offset,
                )
        if not is_compacted:
            for each in self._unless_compacted:
                self._add(*each)


class Marker(NamedTuple):
    """The control batch that ended a transaction."""

    position: int
    offset: int
    producer_id: int
    is_abort: bool


class TransactionChecks:
    """Compares the transaction indexes with markers and transactional batches."""

    def __init__(self, findings: Collector) -> None:
        self._findings = findings
        self._open: dict[int, int] = {}
        self._markers: dict[int, Marker] = {}
        self._aborted_from: dict[int, int] = {}
        self._last_offset = _NO_BATCH
        self._unless_compacted: list[tuple[Path, str, int, int]] = []

    def window(self, fields: Any, markers: list[Marker]) -> None:
        """Note transactional batches and the markers among the next batches."""
        attributes = fields[ATTRIBUTES]
        is_data = (attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG)) == TRANSACTIONAL_FLAG
        start = 0
        for marker in markers:
            end = int(fields[POSITION].searchsorted(marker.position))
            self._begin(fields[:, start:end], is_data[start:end])
            first = self._open.pop(marker.producer_id, None)
            self._markers[marker.offset] = marker
            if marker.is_abort and first is not None:
                self._aborted_from[marker.offset] = first
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

    def finish_segment(
        self, path: Path, entries: list[AbortedTransaction], base_offset: int
    ) -> None:
        """Compare the index of a segment with its markers."""
        named = set()
        before = base_offset - 1
        for number, entry in enumerate(entries):
            named.add(entry.last_offset)
            evidence = self._contradiction(entry, base_offset, before)
            before = max(before, entry.last_offset)
            first = self._aborted_from.get(entry.last_offset)
            if evidence:
                position = number * ENTRY_BYTES
                self._add(path, f"entry {number} {evidence}", entry.last_offset, position)
                continue
            if entry.last_offset not in self._markers:
                text = f"entry {number} names offset {entry.last_offset}, where no marker is"
            elif first is not None and first != entry.first_offset:
                text = (
                    f"entry {number} begins at {entry.first_offset}, but the transaction at {first}"
                )
            else:
                continue
            self._unless_compacted.append((path, text, entry.last_offset, number * ENTRY_BYTES))
        for offset in self._aborted_from.keys() - named:
            text = f"no entry names the transaction that was aborted at offset {offset}"
            self._unless_compacted.append((path, text, offset, len(entries) * ENTRY_BYTES))
        self._markers.clear()
        self._aborted_from.clear()

    def _contradiction(
        self, entry: AbortedTransaction, base_offset: int, before: int
    ) -> str | None:
        said = f"says that producer {entry.producer_id} aborted at offset {entry.last_offset}"
        marker = self._markers.get(entry.last_offset)
        if not base_offset <= entry.last_offset <= self._last_offset:
            return f"{said}, which is outside of the segment"
        if entry.last_offset <= before:
            return f"{said}, but an entry before it has offset {before}"
        if not 0 <= entry.first_offset <= entry.last_offset:
            return f"{said} and began at {entry.first_offset}"
        if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            return f"{said} and moved the last stable offset to {entry.last_stable_offset}"
        if marker is not None and (marker.producer_id != entry.producer_id or not marker.is_abort):
            ending = "an abort" if marker.is_abort else "a commit"
            return f"{said}, but there is {ending} of producer {marker.producer_id}"
        return None

    def _add(self, path: Path, evidence: str, offset: int, position: int) -> None:
        kind = FindingKind.TRANSACTION_INDEX_ENTRY
        self._findings.add(kind, path, evidence, position=position, offset=offset)

    def finish(self, *, is_compacted: bool) -> None:
        """Report what only compaction could have explained."""
        if not is_compacted:
            for each in self._unless_compacted:
                self._add(*each)
