"""Checks of producer snapshots against the batches of a log, from the parts of its segments.

Compaction removes batches and markers. A contradiction that it could explain is kept until the
whole log was read, and dropped if the log was compacted.
"""

from pathlib import Path
from typing import Final, NamedTuple

from spindle.audit.findings import Collector, FindingKind
from spindle.audit.segment_part import LastBatch, ProducerPart
from spindle.log.producers.entry import ProducerStateEntry

_NO_BATCH: Final = -1


class ProducerSnapshot(NamedTuple):
    """A snapshot file: the state of all producers before `offset`."""

    offset: int
    path: Path
    entries: tuple[ProducerStateEntry, ...]


class ProducerChecks:
    """Compares snapshots with the last batches of their producers.

    Args:
        snapshots: ascending by offset; the parts have a cut at each of these offsets.
    """

    def __init__(self, findings: Collector, snapshots: list[ProducerSnapshot]) -> None:
        self._findings = findings
        self._waiting = list(snapshots)
        self._last: dict[int, LastBatch] = {}
        self._first_offset: int | None = None
        self._unless_compacted: list[tuple[ProducerSnapshot, str, int]] = []

    def take(self, part: ProducerPart) -> None:
        """Add the next segment, and compare the snapshots in it."""
        if self._first_offset is None:
            self._first_offset = part.first_offset
        for cut in part.cuts:
            self._last.update(cut.newest)
            if self._waiting and self._waiting[0].offset == cut.offset:
                self._compare(self._waiting.pop(0))
        self._last.update(part.newest)

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
            may_be_short: the log may have lost its end, because the broker was killed.
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
            for finding in self._unless_compacted:
                self._add(*finding)
