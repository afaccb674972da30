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
from spindle.audit.producer_checks import Marker, ProducerChecks, TransactionChecks
from spindle.audit.record_checks import RecordChecks
from spindle.audit.segment_scan import SegmentScan
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
    """Audits the segments of one log, in order; its parts keep what goes on between them."""

    def __init__(
        self,
        findings: Collector,
        batches: BatchChecks,
        producers: ProducerChecks,
        transactions: TransactionChecks,
        digest: DigestBuilder,
        records: RecordChecks | None,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._findings = findings
        self._batches = batches
        self._producers = producers
        self._transactions = transactions
        self._digest = digest
        self._records = records
        self._on_bytes = on_bytes
        self.size_bytes = 0
        self.batch_count = 0

    def audit(self, segment: SegmentFile, *, is_finished: bool) -> None:
        """Audit one segment.

        Args:
            is_finished: the segment was rolled or closed in order, so nothing in it may be torn,
                and its indexes are cut to their entries.

        Raises:
            FileNotFoundError: the segment is gone.
            OSError: the disk refuses to read.
        """
        path = segment.path
        # The indexes are read first: all of their entries are in the log then.
        is_plain = path.name.endswith(LOG_SUFFIX)
        offset_index = self._index(path, INDEX_SUFFIX) if is_plain else None
        time_index = self._index(path, TIME_INDEX_SUFFIX) if is_plain else None
        aborted_data = _read(path.with_suffix(TRANSACTION_INDEX_SUFFIX)) if is_plain else None
        with path.open("rb", buffering=0) as file:
            base = segment.base_offset
            self._batches.begin_segment(path, base)
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
            scan = SegmentScan(file, size_bytes, offsets.positions)
            for fields in _joined(self._read(path, scan)):
                self._window(file, fields)
                offsets.window(fields)
                times.window(fields)
            self._batches.bad_spans(scan.bad_spans, may_be_torn=not is_finished)
            offsets.finish(scan)
            if time_index is not None:
                times.finish(scan, must_be_complete=is_finished)
            self.size_bytes += scan.size_bytes
        name = path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        entries = self._aborted(name, aborted_data or b"")
        if entries is not None:
            self._transactions.finish_segment(name, entries, base)

    def _read(self, path: Path, scan: SegmentScan) -> Iterator[Any]:
        """Yield the fields of the batches in each window, when their bytes are no longer needed."""
        for fields in scan.windows():
            if self._records is not None:
                self._records.window(path, fields, scan.view, scan.window_at)
            self._on_bytes(int(fields[SIZE_BYTES].sum()))
            yield fields

    def _window(self, file: Any, fields: Any) -> None:
        self.batch_count += fields.shape[1]
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

    def _aborted(self, path: Path, data: bytes) -> list[AbortedTransaction] | None:
        kind = FindingKind.TRANSACTION_INDEX_FILE
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
