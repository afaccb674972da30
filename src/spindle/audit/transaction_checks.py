"""Checks of transaction indexes against the batches of a log, from the parts of its segments.

Compaction removes batches and markers. A contradiction that it could explain is kept until the
whole log was joined, and dropped if the log was compacted.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spindle.audit.findings import Collector, FindingKind
from spindle.audit.segment_part import Marker, TransactionPart
from spindle.log.formats.transaction_index import ENTRY_BYTES, AbortedTransaction

_NO_BATCH: Final = -1
_LAST_OFFSET: Final = 2**63 - 1
MAX_WRONG_ENTRIES: Final = 5_000
"""After this many wrong entries of one index, the others are skipped."""


class TransactionChecks:
    """Compares the transaction indexes with markers and transactional batches."""

    def __init__(self, findings: Collector) -> None:
        self._findings = findings
        self._open: dict[int, int] = {}
        self._markers: dict[int, Marker] = {}
        self._aborted_from: dict[int, int] = {}
        self._open_from: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        self._first_offset: int | None = None
        self._last_offset = _NO_BATCH
        self._unless_compacted: list[tuple[Path, str, int, int]] = []

    def take(self, part: TransactionPart) -> None:
        """Add the next segment, and compare its index with its markers."""
        self._markers.clear()
        self._aborted_from.clear()
        self._open_from.clear()
        self._begun = part.begun
        if self._first_offset is None:
            self._first_offset = part.base_offset
        earlier_open = sorted((first, producer) for producer, first in self._open.items())
        ended_count = 0
        for marker, began_at, is_first, open_from in part.markers:
            # Skip transactions of earlier segments that ended before the marker or with it.
            while ended_count < len(earlier_open):
                first_open, producer_id = earlier_open[ended_count]
                if part.ended.get(producer_id, _LAST_OFFSET) > marker.offset:
                    open_from = first_open
                    break
                ended_count += 1
            if open_from is not None:
                self._open_from[marker.offset] = open_from
            earlier = self._open.pop(marker.producer_id, None) if is_first else None
            first = began_at if earlier is None else earlier
            self._markers[marker.offset] = marker
            if marker.is_abort and first is not None:
                self._aborted_from[marker.offset] = first
        for producer_id in part.ended:
            self._open.pop(producer_id, None)
        for producer_id, base in part.still_open.items():
            self._open.setdefault(producer_id, base)
        if part.last_offset != _NO_BATCH:
            self._last_offset = part.last_offset
        if part.entries is not None:
            self._compare(part.index_path, part.entries, part.base_offset)

    def _compare(self, path: Path, entries: Sequence[AbortedTransaction], base_offset: int) -> None:
        named = set()
        before = base_offset - 1
        wrong_count = 0
        for number, entry in enumerate(entries):
            if wrong_count == MAX_WRONG_ENTRIES:
                text = f"the entries behind {wrong_count} wrong ones are not compared"
                self._add(path, text, entry.last_offset, number * ENTRY_BYTES)
                return
            named.add(entry.last_offset)
            evidence = self._contradiction(entry, base_offset, before)
            before = max(before, entry.last_offset)
            first = self._aborted_from.get(entry.last_offset)
            if evidence:
                wrong_count += 1
                position = number * ENTRY_BYTES
                self._add(path, f"entry {number} {evidence}", entry.last_offset, position)
                continue
            if entry.last_offset not in self._markers:
                text = f"entry {number} names offset {entry.last_offset}, where no marker is"
            elif first is not None and first != entry.first_offset:
                text = (
                    f"entry {number} begins at {entry.first_offset}, but the transaction at {first}"
                )
            elif first is not None and not self._has_possible_stable_offset(entry):
                stable = self._open_from.get(entry.last_offset, entry.last_offset + 1)
                text = (
                    f"entry {number} has the last stable offset {entry.last_stable_offset}, but "
                    f"behind offset {entry.last_offset} it is {stable}"
                )
            else:
                continue
            wrong_count += 1
            self._unless_compacted.append((path, text, entry.last_offset, number * ENTRY_BYTES))
        for offset in self._aborted_from.keys() - named:
            text = f"no entry names the transaction that was aborted at offset {offset}"
            self._unless_compacted.append((path, text, offset, len(entries) * ENTRY_BYTES))

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
        stable = entry.last_stable_offset
        if stable < 0 or (stable > entry.last_offset + 1 and stable not in self._begun):
            return f"{said} and moved the last stable offset to {entry.last_stable_offset}"
        if marker is not None and (marker.producer_id != entry.producer_id or not marker.is_abort):
            ending = "an abort" if marker.is_abort else "a commit"
            return f"{said}, but there is {ending} of producer {marker.producer_id}"
        return None

    def _has_possible_stable_offset(self, entry: AbortedTransaction) -> bool:
        """Return whether an entry has a last stable offset that a broker may have written.

        It is the first offset of the open transactions of other producers. Without one, it is the
        offset after the marker. A follower of Kafka that appends several batches at once already
        counts transactions that begin after the marker. The first offset of a transaction that
        began before the log start is unknown.
        """
        stable = entry.last_stable_offset
        open_from = self._open_from.get(entry.last_offset)
        if stable < (self._first_offset or 0) or stable == open_from:
            return True
        if open_from is not None:
            return False
        begun = self._begun.get(stable, entry.producer_id)
        return stable == entry.last_offset + 1 or begun != entry.producer_id

    def _add(self, path: Path, evidence: str, offset: int, position: int) -> None:
        kind = FindingKind.TRANSACTION_INDEX_ENTRY
        self._findings.add(kind, path, evidence, position=position, offset=offset)

    def finish(self, *, is_compacted: bool) -> None:
        """Report the contradictions that only compaction could have explained."""
        if not is_compacted:
            for finding in self._unless_compacted:
                self._add(*finding)
