"""Digests of all records of a compacted log that have a key, in files by the hash of the key.

Keys with equal hashes are in the same file, so the latest records of two logs are compared file by
file, and memory is bounded by the largest of them.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from spindle.audit.record_checks import MAX_UNPACKED_BYTES
from spindle.audit.segment_scan import SegmentScan
from spindle.columnar import header_table, tables
from spindle.columnar.segment_files import SegmentFile, list_segments
from spindle.columnar.unpacked_records import RecordsPlace, digest_records
from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.ports import Bytes
from spindle.log.formats.names import TRANSACTION_INDEX_SUFFIX
from spindle.log.formats.transaction_index import AbortedTransaction, decode_aborted_transactions
from spindle.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_BYTES,
    TRANSACTIONAL_FLAG,
)
from spindle.protocol.records.compression import DecompressionBuffer, decompress

_MIN_RECORD_BYTES: Final = 7
_NO_POSITIONS: Final = np.zeros(0, np.int64)
_PLACE_ROWS: Final = [
    header_table.POSITION,
    header_table.SIZE_BYTES,
    header_table.RECORD_COUNT,
    header_table.BASE_OFFSET,
    header_table.LAST_DELTA,
]


class KeyDigests:
    """The digests of one log; rows are those of `unpacked_records.digest_records`.

    Attributes:
        stable_end: all transactions before this offset have ended.
    """

    def __init__(self, folder: Path, bucket_count: int) -> None:
        folder.mkdir()
        self._paths = [folder / str(number) for number in range(bucket_count)]
        self.stable_end = 0

    def read(self, replica: Path, on_bytes: Callable[[int], None]) -> None:
        """Read a log. Damaged batches are skipped; the audit reports them.

        Raises:
            OSError: a segment is gone, or the disk refuses.
        """
        buffer = DecompressionBuffer()
        transactions = _Transactions(replica)
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in self._paths]
            for segment in list_segments(replica):
                for fields, view, window_at in _windows(segment, on_bytes):
                    on_bytes(int(fields[header_table.SIZE_BYTES].sum()))
                    is_visible = transactions.visible(fields)
                    for rows in _rows(fields[:, is_visible], view, window_at, buffer):
                        self._add(files, rows)
        self.stable_end = transactions.stable_end

    def _add(self, files: list[Any], rows: Any) -> None:
        buckets = rows[:, tables.KEY_HIGH] & (len(files) - 1)
        for bucket in np.unique(buckets).tolist():
            files[bucket].write(rows[buckets == bucket].tobytes())

    def bucket(self, number: int) -> Any:
        """Return the rows of one file, by offset."""
        rows = np.fromfile(self._paths[number], np.int64).reshape(-1, tables.DIGEST_WIDTH)
        return rows[np.argsort(rows[:, tables.OFFSET], kind="stable")]


class _AbortedRanges(NamedTuple):
    """The offsets of one producer's aborted transactions: ascending, and none overlaps another."""

    firsts: list[int]
    lasts: list[int]

    def holds(self, offset: int) -> bool:
        index = bisect_right(self.firsts, offset) - 1
        return index >= 0 and offset <= self.lasts[index]


_NO_RANGES: Final = _AbortedRanges([], [])


def _joined_ranges(entries: list[AbortedTransaction]) -> _AbortedRanges:
    """Join overlapping transactions, which only a damaged index has."""
    joined_ranges = _AbortedRanges([], [])
    for first, last in sorted((entry.first_offset, entry.last_offset) for entry in entries):
        if last < first:
            continue
        if joined_ranges.lasts and first <= joined_ranges.lasts[-1]:
            joined_ranges.lasts[-1] = max(last, joined_ranges.lasts[-1])
        else:
            joined_ranges.firsts.append(first)
            joined_ranges.lasts.append(last)
    return joined_ranges


class _Transactions:
    """Selects the batches of a log, in order, that do not belong to aborted transactions."""

    def __init__(self, replica: Path) -> None:
        aborted: dict[int, list[AbortedTransaction]] = {}
        for path in sorted(replica.glob(f"*{TRANSACTION_INDEX_SUFFIX}")):
            try:
                entries = decode_aborted_transactions(str(path), path.read_bytes())
            except CorruptLog:
                continue  # the audit reports it
            for entry in entries:
                aborted.setdefault(entry.producer_id, []).append(entry)
        self._aborted = {
            producer: _joined_ranges(transactions) for producer, transactions in aborted.items()
        }
        self._open: dict[int, int] = {}
        self._end = 0

    def visible(self, fields: Any) -> Any:
        """Return which batches hold records that count, as a mask."""
        attributes = fields[header_table.ATTRIBUTES]
        is_control = attributes & CONTROL_FLAG != 0
        is_visible = ~is_control & (fields[header_table.CRC] == fields[header_table.COMPUTED_CRC])
        is_visible &= fields[header_table.RECORD_COUNT] > 0
        for index in np.flatnonzero(attributes & TRANSACTIONAL_FLAG).tolist():
            producer, base = (
                int(fields[row, index])
                for row in (header_table.PRODUCER_ID, header_table.BASE_OFFSET)
            )
            if is_control[index]:
                self._open.pop(producer, None)
                continue
            self._open.setdefault(producer, base)
            if self._aborted.get(producer, _NO_RANGES).holds(base):
                is_visible[index] = False
        self._end = (
            int(fields[header_table.BASE_OFFSET, -1] + fields[header_table.LAST_DELTA, -1]) + 1
        )
        return is_visible

    @property
    def stable_end(self) -> int:
        return min([self._end, *self._open.values()])


def _windows(
    segment: SegmentFile, on_bytes: Callable[[int], None]
) -> Iterator[tuple[Any, memoryview, int]]:
    with segment.path.open("rb", buffering=0) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        reading = SegmentScan(file, size_bytes, _NO_POSITIONS, on_bytes)
        for fields in reading.windows():
            yield fields, reading.view, reading.window_at


def _rows(
    fields: Any, view: memoryview, window_at: int, buffer: DecompressionBuffer
) -> Iterator[Any]:
    """Yield the digests of the records of batches.

    Args:
        fields: the headers of the batches (`header_table`).
        view: the bytes of the file from byte `window_at` on.
    """
    places = [
        RecordsPlace(position - window_at + HEADER_BYTES, size - HEADER_BYTES, *rest)
        for position, size, *rest in fields[_PLACE_ROWS].T.tolist()
    ]
    codecs = (fields[header_table.ATTRIBUTES] & CODEC_MASK).tolist()
    yield _digests(view, [place for place, codec in zip(places, codecs, strict=True) if not codec])
    for place, codec in zip(places, codecs, strict=True):
        if not codec:
            continue
        payload = view[place.start : place.start + place.size_bytes]
        try:
            records = decompress(codec, payload, MAX_UNPACKED_BYTES, buffer)
        except CorruptRecords:
            continue  # also those with more than MAX_UNPACKED_BYTES
        yield _digests(records, [place._replace(start=0, size_bytes=len(records))])
        del records  # the buffer of the next batch


def _digests(data: Bytes, places: list[RecordsPlace]) -> Any:
    # A record count that the bytes cannot hold must not allocate memory.
    return digest_records(
        data, [p for p in places if p.record_count <= p.size_bytes // _MIN_RECORD_BYTES]
    )
