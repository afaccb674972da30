"""Audit of the files of one segment: the batches once, and the indexes beside them."""

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from spindle.audit.batch_checks import BatchChecks
from spindle.audit.digests import DigestBuilder
from spindle.audit.findings import Collector, FindingKind
from spindle.audit.index_checks import IndexContent, OffsetIndexChecks, TimeIndexChecks, read_index
from spindle.audit.index_tails import IndexTail
from spindle.audit.log_join import SegmentPart
from spindle.audit.producer_notes import ProducerNotes
from spindle.audit.record_checks import RecordChecks
from spindle.audit.segment_scan import SegmentScan
from spindle.audit.transaction_notes import Marker, TransactionNotes
from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.log.formats.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
)
from spindle.log.formats.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    decode_aborted_transactions,
)
from spindle.pipeline.records.headers import (
    ATTRIBUTES,
    BASE_OFFSET,
    POSITION,
    PRODUCER_ID,
    SIZE_BYTES,
)
from spindle.pipeline.segments.segment_log import SegmentFile
from spindle.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, read_header
from spindle.protocol.records.control import ControlType, read_control_type
from spindle.protocol.records.record import decode_records

_NO_INDEX: Final = IndexContent(b"", 0)
_JOINED_BATCHES: Final = 4096
_JOINED_WINDOWS: Final = 64
_MARKER_FLAGS: Final = CONTROL_FLAG | TRANSACTIONAL_FLAG


class SegmentAudit:
    """Audits one segment of a log, without the others; `log_join` joins their parts.

    Args:
        replica: the directory of the replica, for its findings.
        snapshot_offsets: of all producer snapshots of the log, ascending.
        checks_records: the records are decoded, too.
        on_bytes: is told the bytes of batches as they are read.
    """

    def __init__(
        self,
        replica: Path,
        segment: SegmentFile,
        snapshot_offsets: Iterable[int],
        *,
        checks_records: bool,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._segment = segment
        self._findings = Collector(str(replica))
        self._batches = BatchChecks(self._findings, segment.path, segment.base_offset)
        self._producers = ProducerNotes(snapshot_offsets)
        self._index_path = segment.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        self._transactions = TransactionNotes(self._index_path, segment.base_offset, None)
        self._digest = DigestBuilder()
        self._records = RecordChecks(self._findings) if checks_records else None
        self._on_bytes = on_bytes
        self._index_tail: IndexTail | None = None
        self._size_bytes = 0
        self._batch_count = 0

    def run(self, *, is_finished: bool) -> SegmentPart:
        """Read the segment; what cannot be read is a finding.

        Args:
            is_finished: the segment was rolled or closed in order, so nothing in it may be torn,
                and its indexes are cut to their entries.
        """
        is_gone = False
        try:
            self._audit(is_finished=is_finished)
        except FileNotFoundError:
            is_gone = True
        except OSError as error:
            self._findings.add_unreadable(self._segment.path, error)
        return SegmentPart(
            self._segment.path,
            self._segment.base_offset,
            tuple(self._findings.found),
            dict(self._findings.left_out),
            self._batches.part(),
            self._producers.part(),
            self._transactions.part(),
            self._digest.digest(),
            self._size_bytes,
            self._batch_count,
            is_gone,
            self._index_tail,
        )

    def _audit(self, *, is_finished: bool) -> None:
        segment = self._segment
        path = segment.path
        # The indexes are read first: all of their entries are in the log then.
        is_plain = path.name.endswith(LOG_SUFFIX)
        offset_index = self._index(path, INDEX_SUFFIX) if is_plain else None
        time_index = self._index(path, TIME_INDEX_SUFFIX) if is_plain else None
        aborted_data = _read(self._index_path) if is_plain else None
        entries = self._aborted(aborted_data or b"")
        self._transactions = TransactionNotes(self._index_path, segment.base_offset, entries)
        with path.open("rb", buffering=0) as file:
            base = segment.base_offset
            offsets = OffsetIndexChecks(
                self._findings,
                path.with_suffix(INDEX_SUFFIX),
                offset_index or _NO_INDEX,
                base,
                is_trimmed=is_finished,
            )
            times = TimeIndexChecks(
                self._findings,
                path.with_suffix(TIME_INDEX_SUFFIX),
                time_index or _NO_INDEX,
                base,
                is_trimmed=is_finished,
            )
            size_bytes = os.fstat(file.fileno()).st_size
            scan = SegmentScan(
                file,
                size_bytes,
                offsets.positions,
                self._on_bytes,
                checks_records=self._records is not None,
            )
            for fields in _joined(self._read(path, scan)):
                self._window(file, fields)
                offsets.window(fields)
                times.window(fields)
            self._batches.bad_spans(scan.bad_spans, may_be_torn=not is_finished)
            offsets.finish(scan)
            if is_finished and offset_index is not None:
                self._index_tail = offsets.tail(scan, times)
            # A damaged batch may have other timestamps than when its entry was made.
            if time_index is not None and not self._batches.has_wrong_checksum:
                times.finish(scan, must_be_complete=is_finished)
            self._size_bytes += scan.size_bytes

    def _read(self, path: Path, scan: SegmentScan) -> Iterator[Any]:
        """Yield the fields of the batches in each window, when their bytes are no longer needed."""
        for fields in scan.windows():
            if self._records is not None:
                self._records.window(path, fields, scan)
            self._on_bytes(int(fields[SIZE_BYTES].sum()))
            yield fields

    def _window(self, file: Any, fields: Any) -> None:
        self._batch_count += fields.shape[1]
        self._batches.window(fields)
        self._producers.window(fields)
        self._digest.window(fields)
        if (fields[ATTRIBUTES] & _MARKER_FLAGS).any():
            self._transactions.window(fields, _markers(file, fields))

    def _index(self, segment: Path, suffix: str) -> IndexContent | None:
        path = segment.with_suffix(suffix)
        data = read_index(path)
        if data is None:
            is_offset_index = suffix == INDEX_SUFFIX
            kind = (
                FindingKind.OFFSET_INDEX_MISSING
                if is_offset_index
                else FindingKind.TIME_INDEX_MISSING
            )
            self._findings.add(kind, path, "the segment has no such file")
        return data

    def _aborted(self, data: bytes) -> list[AbortedTransaction] | None:
        """Return the entries of the transaction index, None if they cannot be read."""
        path, kind = self._index_path, FindingKind.TRANSACTION_INDEX_FILE
        if len(data) % ENTRY_BYTES:
            whole = len(data) - len(data) % ENTRY_BYTES
            evidence = f"{len(data)} bytes are no multiple of an entry's {ENTRY_BYTES}"
            self._findings.add(kind, path, evidence, position=whole)
        try:
            return decode_aborted_transactions(str(path), data)
        except CorruptLog as error:
            self._findings.add(kind, path, error.finding, position=error.position)
            return None


def _joined(windows: Iterable[Any]) -> Iterator[Any]:
    """Yield the fields of several windows as one array, because each call of NumPy costs time."""
    waiting: list[Any] = []
    count = 0
    for fields in windows:
        waiting.append(fields)
        count += fields.shape[1]
        if count >= _JOINED_BATCHES or len(waiting) == _JOINED_WINDOWS:
            yield np.concatenate(waiting, axis=1)
            waiting, count = [], 0
    if waiting:
        yield np.concatenate(waiting, axis=1)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _markers(file: Any, fields: Any) -> list[Marker]:
    """Return the markers of transactions among batches."""
    is_marker = (fields[ATTRIBUTES] & _MARKER_FLAGS) == _MARKER_FLAGS
    markers = []
    for index in np.flatnonzero(is_marker).tolist():
        position, size = int(fields[POSITION, index]), int(fields[SIZE_BYTES, index])
        data = os.pread(file.fileno(), size, position)
        try:
            records = decode_records(data, 0, read_header(data))
            kind = read_control_type(records[0].key) if records else None
        except (CorruptRecords, struct.error, ValueError):
            continue  # its checksum is a finding already
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            markers.append(
                Marker(
                    position,
                    int(fields[BASE_OFFSET, index]),
                    int(fields[PRODUCER_ID, index]),
                    kind == ControlType.ABORT,
                )
            )
    return markers
