"""Checks of `.index` and `.timeindex` against the batches of their segment.

An entry of the offset index has the last offset of a batch and the byte where this batch begins
(older brokers: where the first of several batches begins). An entry of the time index has the
largest timestamp up to a batch, and an offset of this batch.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np

from spindle.audit.findings import Collector, FindingKind
from spindle.audit.index_files import LOST_ENTRIES, IndexContent, IndexTail
from spindle.audit.segment_scan import SegmentScan
from spindle.audit.sound_walk import SoundPrefix
from spindle.columnar.header_table import BASE_OFFSET, LAST_DELTA, MAX_TIMESTAMP, POSITION
from spindle.log.formats.index_entries import OFFSET_ENTRY_FIELDS, TIME_ENTRY_FIELDS

_OFFSET_ENTRY: Final = np.dtype(list(OFFSET_ENTRY_FIELDS))
_TIME_ENTRY: Final = np.dtype(list(TIME_ENTRY_FIELDS))
_NOTHING_SEEN: Final = -1


def _add_unread(findings: Collector, path: Path, content: IndexContent, count: int) -> None:
    """Report entries that are not checked, because checking so many needs gigabytes."""
    findings.add(
        FindingKind.UNREADABLE,
        path,
        f"it has {content.size_bytes} bytes; only its first {count} entries are checked",
    )


def _columns(data: bytes | bytearray, entry: "np.dtype[Any]") -> tuple[Any, Any]:
    entries = np.frombuffer(data, entry, count=len(data) // entry.itemsize)
    first, second = entry.names or ()
    return entries[first].astype(np.int64), entries[second].astype(np.int64)


def _written(first: Any, second: Any) -> int:
    """Return the count of entries before the zeros at the end, which a broker preallocates."""
    used = np.flatnonzero((first != 0) | (second != 0))
    return int(used[-1]) + 1 if used.size else 0


def _check_size(
    findings: Collector,
    kind: FindingKind,
    path: Path,
    content: IndexContent,
    count: int,
    entry_bytes: int,
    *,
    is_trimmed: bool,
) -> None:
    """Report bytes after the entries that are no entry, or that a trimmed file must not have."""
    rest_bytes = content.size_bytes - count * entry_bytes
    has_rest = is_trimmed and content.is_whole and rest_bytes
    if content.size_bytes % entry_bytes or has_rest:
        findings.add(
            kind,
            path,
            f"{rest_bytes} bytes follow its {count} entries",
            position=count * entry_bytes,
        )


class OffsetIndexChecks:
    """Compares an offset index with the batches.

    Args:
        content: of the file.
        base_offset: of the segment.
        is_trimmed: the file must end after its last entry.
    """

    def __init__(
        self,
        findings: Collector,
        path: Path,
        content: IndexContent,
        base_offset: int,
        *,
        is_trimmed: bool,
    ) -> None:
        self._findings = findings
        self._path = path
        relative, positions = _columns(content.data, _OFFSET_ENTRY)
        count = _written(relative, positions)
        kind, entry_bytes = FindingKind.OFFSET_INDEX_SIZE, _OFFSET_ENTRY.itemsize
        _check_size(findings, kind, path, content, count, entry_bytes, is_trimmed=is_trimmed)
        relative, positions = relative[:count], positions[:count]
        wrong = np.flatnonzero((np.diff(relative) <= 0) | (np.diff(positions) <= 0))
        if wrong.size:
            index = int(wrong[0]) + 1
            self._findings.add(
                FindingKind.OFFSET_INDEX_ORDER,
                path,
                f"the entry (offset {base_offset + relative[index]}, position {positions[index]}) "
                f"follows (offset {base_offset + relative[index - 1]}, position "
                f"{positions[index - 1]})",
                position=index * _OFFSET_ENTRY.itemsize,
                offset=int(base_offset + relative[index]),
            )
            relative, positions = relative[:0], positions[:0]
        elif not content.is_whole:
            _add_unread(findings, path, content, count)
        self.positions = positions
        self._is_comparable = content.is_whole and not wrong.size
        self._last_batch = 0
        self._offsets = relative + base_offset
        self._is_start = np.zeros(positions.size, bool)
        self._found_at = np.full(positions.size, -1, np.int64)

    def skip(self, prefix: SoundPrefix) -> None:
        """Start checking after batches whose index entries are known to be right."""
        self._last_batch = prefix.last_position
        self._is_start[: prefix.starts_seen] = True
        self._found_at[: prefix.ends_seen] = self.positions[: prefix.ends_seen]

    def window(self, fields: Any) -> None:
        """Note which entries point to these batches."""
        self._last_batch = int(fields[POSITION, -1])
        if not self.positions.size:
            return
        starts = fields[POSITION]
        first, last = self.positions.searchsorted([starts[0], starts[-1] + 1]).tolist()
        if first < last:
            wanted = self.positions[first:last]
            index = np.minimum(starts.searchsorted(wanted), starts.size - 1)
            self._is_start[first:last] = starts[index] == wanted
        lasts = fields[BASE_OFFSET] + fields[LAST_DELTA]
        # The offsets of damaged batches are in no order.
        order = np.argsort(lasts, kind="stable")
        ends = lasts[order[[0, -1]]] + (0, 1)
        first, last = self._offsets.searchsorted(ends).tolist()
        if first < last:
            wanted = self._offsets[first:last]
            index = order[np.minimum(lasts.searchsorted(wanted, sorter=order), lasts.size - 1)]
            before = self._found_at[first:last]
            self._found_at[first:last] = np.where(lasts[index] == wanted, starts[index], before)

    def finish(self, scan: SegmentScan) -> None:
        """Report the entries that point to no batch, or to another one."""
        if not self.positions.size:
            return
        ends = np.append(self.positions[1:], scan.size_bytes)
        is_right = self._is_start & (self._found_at >= self.positions) & (self._found_at < ends)
        for index in np.flatnonzero(~is_right).tolist():
            position = int(self.positions[index])
            if scan.span_at(position) is not None:
                continue  # the bytes there are damaged, which is a finding already
            offset = int(self._offsets[index])
            if not self._is_start[index]:
                evidence = f"points to byte {position} of the segment, where no batch begins"
            else:
                evidence = f"points to byte {position}, where no batch ends at this offset"
            self._findings.add(
                FindingKind.OFFSET_INDEX_ENTRY,
                self._path,
                f"the entry of offset {offset} {evidence}",
                position=index * _OFFSET_ENTRY.itemsize,
                offset=offset,
            )

    def tail(self, scan: SegmentScan, times: "TimeIndexChecks") -> IndexTail | None:
        """Return the tail after the last entry; None if the segment or the index is damaged."""
        if scan.bad_spans or not self._is_comparable:
            return None
        return _index_tail(self._path, self.positions, self._last_batch, times.batch_positions)


class TimeIndexChecks:
    """Compares a time index with the batches; the arguments are those of `OffsetIndexChecks`.

    Attributes:
        batch_positions: where the batch of each entry begins, -1 if there is none.
    """

    def __init__(
        self,
        findings: Collector,
        path: Path,
        content: IndexContent,
        base_offset: int,
        *,
        is_trimmed: bool,
    ) -> None:
        self._findings = findings
        self._path = path
        timestamps, relative = _columns(content.data, _TIME_ENTRY)
        count = _written(timestamps, relative)
        kind, entry_bytes = FindingKind.TIME_INDEX_SIZE, _TIME_ENTRY.itemsize
        _check_size(findings, kind, path, content, count, entry_bytes, is_trimmed=is_trimmed)
        timestamps, relative = timestamps[:count], relative[:count]
        wrong = np.flatnonzero((np.diff(timestamps) <= 0) | (np.diff(relative) < 0))
        if wrong.size:
            index = int(wrong[0]) + 1
            findings.add(
                FindingKind.TIME_INDEX_ORDER,
                path,
                f"the entry (timestamp {timestamps[index]}, offset "
                f"{base_offset + relative[index]}) follows (timestamp {timestamps[index - 1]}, "
                f"offset {base_offset + relative[index - 1]})",
                position=index * _TIME_ENTRY.itemsize,
                offset=int(base_offset + relative[index]),
            )
        elif not content.is_whole:
            _add_unread(findings, path, content, count)
        self._is_whole = content.is_whole
        self._is_usable = not wrong.size
        self._timestamps, self._offsets = timestamps, relative + base_offset
        self._is_right = np.zeros(timestamps.size, bool)
        self.batch_positions = np.full(timestamps.size, -1, np.int64)
        self._greatest = _NOTHING_SEEN

    def skip(self, prefix: SoundPrefix) -> None:
        """Start checking after batches whose index entries are known to be right."""
        self._greatest = prefix.greatest_timestamp
        self._is_right[: prefix.times_seen] = True
        # The skipped entries point before the end of the offset index.
        self.batch_positions[: prefix.times_seen] = 0
        behind = prefix.times_seen - len(prefix.times_behind)
        self.batch_positions[behind : prefix.times_seen] = prefix.times_behind

    def window(self, fields: Any) -> None:
        """Note which entries agree with these batches."""
        greatest = np.maximum.accumulate(np.maximum(fields[MAX_TIMESTAMP], self._greatest))
        bases = fields[BASE_OFFSET]
        lasts = bases + fields[LAST_DELTA]
        first = int(self._offsets.searchsorted(bases.min()))
        last = int(self._offsets.searchsorted(lasts.max(), side="right"))
        if self._is_usable and first < last:
            wanted, offsets = self._timestamps[first:last], self._offsets[first:last]
            # The offsets of damaged batches are in no order.
            order = np.argsort(lasts, kind="stable")
            index = order[np.minimum(lasts.searchsorted(offsets, sorter=order), lasts.size - 1)]
            is_here = (bases[index] <= offsets) & (offsets <= lasts[index])
            before = self.batch_positions[first:last]
            self.batch_positions[first:last] = np.where(is_here, fields[POSITION][index], before)
            self._is_right[first:last] |= (
                is_here & (fields[MAX_TIMESTAMP][index] == wanted) & (greatest[index] == wanted)
            )
        self._greatest = int(greatest[-1])

    def finish(self, scan: SegmentScan, *, must_be_complete: bool) -> None:
        """Report entries that do not agree, and a missing last entry.

        Args:
            must_be_complete: the segment was rolled or closed, which adds its largest timestamp.
        """
        if not self._is_usable or scan.bad_spans:
            return
        for index in np.flatnonzero(~self._is_right).tolist():
            self._findings.add(
                FindingKind.TIME_INDEX_ENTRY,
                self._path,
                f"the entry says that {self._timestamps[index]} is the largest timestamp up to "
                f"offset {self._offsets[index]}, which is not so",
                position=index * _TIME_ENTRY.itemsize,
                offset=int(self._offsets[index]),
            )
        last = int(self._timestamps[-1]) if self._timestamps.size else _NOTHING_SEEN
        if must_be_complete and self._is_whole and last < self._greatest:
            self._findings.add(
                FindingKind.TIME_INDEX_SHORT,
                self._path,
                f"its last timestamp is {last}, the largest one of the segment is "
                f"{self._greatest}: a search by time misses records",
            )


def _index_tail(path: Path, positions: Any, last_batch: int, time_positions: Any) -> IndexTail:
    """Return the tail of an index.

    Args:
        positions: ascending bytes of the segment that the entries name.
        last_batch: the byte where the last batch begins.
        time_positions: the bytes where the batches begin that the time index names, -1 for an entry
            that names no batch.
    """
    gaps = np.diff(positions, prepend=0)
    last = int(positions[-1]) if positions.size else 0
    behind = np.sort(time_positions[time_positions > last])
    lost = np.sort(np.diff(behind, prepend=last))
    return IndexTail(
        path,
        int(gaps.size),
        int(gaps.min()) if gaps.size else 0,
        int(gaps.max()) if gaps.size else 0,
        last_batch - last,
        int(lost[-LOST_ENTRIES]) if lost.size >= LOST_ENTRIES else 0,
    )
