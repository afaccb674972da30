"""The walk over batch headers in Python; `native/src/audit/headers.rs` has the same."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from spindle.columnar.header_table import RECORDS_ARE_PACKED
from spindle.columnar.record_walk import check_records
from spindle.columnar.tables import (
    OLD_FORMAT,
    UNKNOWN_FORMAT,
    WRONG_COUNT,
    WRONG_LENGTH,
    WRONG_OFFSETS,
)
from spindle.common.checksums import crc32c
from spindle.common.ports import Bytes
from spindle.protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
)

_MAX_NEXT_OFFSET: Final = 2**63 - 1


class WalkedHeaders(NamedTuple):
    """The end of a walk.

    Attributes:
        finding: an index into `tables.SCAN_FINDINGS`.
        position: where to read on in the file, perhaps after the window.
        batch_count: the filled columns of the tables.
        next_offset: the offset after the last batch that was passed.
        is_finished: the end offset is reached.
        is_torn: the file does not hold the next batch as a whole.
    """

    finding: int
    position: int
    batch_count: int
    next_offset: int
    is_finished: bool
    is_torn: bool


class _Walk:
    """The state of one walk; the arguments are those of `walk_headers`."""

    def __init__(
        self,
        data: memoryview,
        start: int,
        file_end: int,
        limits: tuple[int, int],
        next_offset: int,
        checks_crcs: bool,
        checks_records: bool,
    ) -> None:
        self._data = data
        self._start = start
        self._file_end = file_end
        self._limits = limits
        self._checks_crcs = checks_crcs
        self._checks_records = checks_records
        self.position = start
        self.next_offset = next_offset
        self.finding = 0
        self.is_finished = self.is_torn = False

    def columns(self) -> Iterator[tuple[list[int], tuple[int, int] | None]]:
        """Yield the column of each batch: its fields, and what its records say."""
        end = self._start + len(self._data)
        while end - self.position >= HEADER_BYTES and not self.is_finished:
            at = self.position - self._start
            header = BatchHeader._make(HEADER.unpack_from(self._data, at))
            size = header.batch_length + LOG_OVERHEAD_BYTES
            self.is_torn = self._is_torn(header, size)
            if not self.is_torn:
                self.finding = _format_finding(header, size)
            if self.finding or self.is_torn:
                return
            if self._checks_crcs and end - self.position < size:
                return
            base_offset, last_delta = header.base_offset, header.last_offset_delta
            if base_offset < 0 or last_delta < 0 or base_offset >= _MAX_NEXT_OFFSET - last_delta:
                self.finding = WRONG_OFFSETS
                return
            if base_offset >= self._limits[1]:
                self.is_finished = True
                return
            if not 0 <= header.record_count <= last_delta + 1:
                self.finding = WRONG_COUNT
                return
            position = self.position
            self.position += size
            self.next_offset = base_offset + last_delta + 1
            self.is_finished = self.next_offset >= self._limits[1]
            if self.next_offset > self._limits[0]:
                yield self._column(header, position, self._data[at : at + size])

    def _is_torn(self, header: BatchHeader, size: int) -> bool:
        if header.magic in (0, 1) and header.batch_length == 0:
            return True  # zeros: space that was allocated and not written
        is_batch = header.magic == MAGIC and size >= HEADER_BYTES
        return is_batch and self._file_end - self.position < size

    def _column(
        self, header: BatchHeader, position: int, batch: memoryview
    ) -> tuple[list[int], tuple[int, int] | None]:
        computed = crc32c(batch[CRC_COVERS_FROM:]) if self._checks_crcs else header.crc
        fields = [
            position,
            header.batch_length + LOG_OVERHEAD_BYTES,
            header.base_offset,
            header.leader_epoch,
            *header[4:],
            computed,
        ]
        if not self._checks_records:
            return fields, None
        if header.crc != computed or header.record_count == 0 or header.attributes & CONTROL_FLAG:
            return fields, (0, 0)
        if header.attributes & CODEC_MASK:
            return fields, (RECORDS_ARE_PACKED, 0)
        records = batch[HEADER_BYTES:]
        return fields, check_records(records, header.record_count, header.last_offset_delta)


def _format_finding(header: BatchHeader, size: int) -> int:
    if header.magic == MAGIC:
        return 0 if size >= HEADER_BYTES else WRONG_LENGTH
    return OLD_FORMAT if header.magic in (0, 1) else UNKNOWN_FORMAT


def walk_headers(
    data: Bytes,
    start: int,
    file_end: int,
    limits: tuple[int, int],
    next_offset: int,
    checks_crcs: bool,
    table: Any,
    records: Any,
) -> WalkedHeaders:
    """Fill tables with the batches of a window that hold offsets [limits[0], limits[1]).

    Stop where the next header (with `checks_crcs`: the next batch) is not in the window as a whole,
    at the end offset, at a full table, in front of a header that cannot be one, and in front of a
    batch that the file does not hold as a whole.

    Args:
        data: the window.
        start: its position in the file.
        file_end: the size of the file.
        next_offset: the offset after the last batch passed before.
        checks_crcs: compute the checksums.
        table: an int64 array (FIELD_COUNT, room).
        records: an int64 array (RECORDS_WIDTH, room) for what the records of each batch say; with
            no rows in it, records are not read. Checksums must be computed, too.
    """
    checks_records = records.shape[0] > 0
    if checks_records and not checks_crcs:
        raise ValueError("records are checked after the checksums of their batches")
    room = table.shape[1]
    walk = _Walk(
        memoryview(data), start, file_end, limits, next_offset, checks_crcs, checks_records
    )
    columns = [column for _, column in zip(range(room), walk.columns(), strict=False)]
    count = len(columns)
    if count:
        table[:, :count] = np.array([fields for fields, _ in columns], np.int64).T
    if count and checks_records:
        records[:, :count] = np.array([checked for _, checked in columns], np.int64).T
    return WalkedHeaders(
        walk.finding, walk.position, count, walk.next_offset, walk.is_finished, walk.is_torn
    )
