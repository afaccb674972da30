"""The checks of one segment over NumPy columns of headers, from its first unusual batch on."""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from spindle.audit.batch_checks import BatchChecks
from spindle.audit.batch_digests import add_batches
from spindle.audit.findings import Collector
from spindle.audit.index_checks import OffsetIndexChecks, TimeIndexChecks
from spindle.audit.index_files import IndexContent, IndexTail
from spindle.audit.producer_scan import ProducerNotes
from spindle.audit.record_checks import PackedBatch, RecordChecks
from spindle.audit.segment_part import Marker, SegmentBatches
from spindle.audit.segment_scan import SegmentScan
from spindle.audit.sound_walk import SoundPrefix
from spindle.audit.transaction_scan import TransactionNotes
from spindle.columnar.header_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_DELTA,
    POSITION,
    PRODUCER_ID,
    RECORD_COUNT,
    RECORDS_ARE_PACKED,
    RECORDS_BYTE,
    RECORDS_STATUS,
    SIZE_BYTES,
)
from spindle.common.errors import CorruptRecords
from spindle.log.formats.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    TRANSACTIONAL_FLAG,
    read_header,
)
from spindle.protocol.records.control import ControlType, read_control_type
from spindle.protocol.records.record import decode_records

_NO_INDEX: Final = IndexContent(b"", 0)
_JOINED_BATCHES: Final = 4096
_JOINED_WINDOWS: Final = 64
_MARKER_FLAGS: Final = CONTROL_FLAG | TRANSACTIONAL_FLAG


class ColumnChecks:
    """Checks the batches and indexes of a segment.

    Args:
        prefix: the batches at its beginning, which are sound.
        indexes: the offset index and the time index, None for one that is missing.
        snapshot_offsets: of all producer snapshots of the log, ascending.
        entries: of the transaction index, None if they cannot be read.
        records: checks the records, too; None if they are not to be checked.
        is_finished: the segment was rolled or closed in order.
    """

    def __init__(
        self,
        findings: Collector,
        prefix: SoundPrefix,
        indexes: tuple[IndexContent | None, IndexContent | None],
        snapshot_offsets: Iterable[int],
        entries: Sequence[AbortedTransaction] | None,
        records: RecordChecks | None,
        *,
        is_finished: bool,
    ) -> None:
        path, base = prefix.path, prefix.base_offset
        self._prefix = prefix
        self._indexes = indexes
        self._records = records
        self._is_finished = is_finished
        self._batches = BatchChecks(findings, path, base, prefix.batches)
        self._producers = ProducerNotes(snapshot_offsets, prefix.producers)
        self._transactions = TransactionNotes(
            path.with_suffix(TRANSACTION_INDEX_SUFFIX), base, entries
        )
        offset_index, time_index = (index or _NO_INDEX for index in indexes)
        self._offsets = OffsetIndexChecks(
            findings, path.with_suffix(INDEX_SUFFIX), offset_index, base, is_trimmed=is_finished
        )
        self._times = TimeIndexChecks(
            findings, path.with_suffix(TIME_INDEX_SUFFIX), time_index, base, is_trimmed=is_finished
        )
        self._offsets.skip(prefix)
        self._times.skip(prefix)
        self._index_tail: IndexTail | None = None
        self._size_bytes = 0
        self._batch_count = prefix.batch_count

    def run(self, file: Any, size_bytes: int, on_bytes: Callable[[int], None]) -> None:
        """Read the rest of the segment, and report its damage.

        Args:
            file: the open file.
            on_bytes: called with the bytes of batches as they are read.

        Raises:
            OSError: the disk refuses to read.
        """
        scan = SegmentScan(
            file,
            size_bytes,
            self._offsets.positions,
            on_bytes,
            checks_records=self._records is not None,
            start_position=self._prefix.position,
        )
        for fields in _joined(self._read(scan, on_bytes)):
            self._window(file, fields)
        self._batches.bad_spans(scan.bad_spans, may_be_torn=not self._is_finished)
        self._offsets.finish(scan)
        has_offset_index, has_time_index = (index is not None for index in self._indexes)
        if self._is_finished and has_offset_index:
            self._index_tail = self._offsets.tail(scan, self._times)
        # A damaged batch may have other timestamps than when its entry was made.
        if has_time_index and not self._batches.has_wrong_checksum:
            self._times.finish(scan, must_be_complete=self._is_finished)
        self._size_bytes = scan.size_bytes

    def result(self) -> SegmentBatches:
        """Return the state of the batches that were read."""
        return SegmentBatches(
            self._batches.part(),
            self._producers.part(),
            self._transactions.part(),
            self._prefix.digest.digest(),
            self._size_bytes,
            self._batch_count,
            self._index_tail,
        )

    def _read(self, scan: SegmentScan, on_bytes: Callable[[int], None]) -> Iterator[Any]:
        """Yield the fields of the batches in each window, after their bytes were used."""
        for fields in scan.windows():
            if self._records is not None:
                _check_records(self._records, fields, scan)
            on_bytes(int(fields[SIZE_BYTES].sum()))
            yield fields

    def _window(self, file: Any, fields: Any) -> None:
        self._batch_count += fields.shape[1]
        self._batches.window(fields)
        self._producers.window(fields)
        add_batches(self._prefix.digest, fields)
        if (fields[ATTRIBUTES] & _MARKER_FLAGS).any():
            self._transactions.window(fields, _markers(file, fields))
        self._offsets.window(fields)
        self._times.window(fields)


def _check_records(records: RecordChecks, fields: Any, scan: SegmentScan) -> None:
    """Check the batches of the present window of a scan, which has walked over plain ones."""
    status = scan.records[RECORDS_STATUS]
    for index in np.flatnonzero(status).tolist():
        column = fields[:, index].tolist()
        position, offset = column[POSITION], column[BASE_OFFSET]
        if status[index] != RECORDS_ARE_PACKED:
            records.walked(
                position, offset, int(status[index]), int(scan.records[RECORDS_BYTE, index])
            )
            continue
        start = position - scan.window_at
        payload = scan.view[start + HEADER_BYTES : start + column[SIZE_BYTES]]
        codec = column[ATTRIBUTES] & CODEC_MASK
        batch = PackedBatch(position, offset, codec, column[RECORD_COUNT], column[LAST_DELTA])
        records.packed(batch, payload)


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
