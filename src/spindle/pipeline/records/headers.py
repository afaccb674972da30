"""Read batch headers: the compiled walk over them, and their fields as NumPy columns.

The walk jumps from header to header and touches no records, unless checksums are wanted. So large
batches are passed without being read from the disk.
"""

from typing import Any, Final

import numpy as np

from spindle.pipeline.records.memory import (
    big_int16_at,
    big_int32_at,
    big_int64_at,
    byte_at,
    compiled,
    crc32c_at,
)
from spindle.pipeline.records.record_walk import walk_batch
from spindle.pipeline.records.scan import (
    OLD_FORMAT,
    SCAN_FINDINGS,
    UNKNOWN_FORMAT,
    WRONG_COUNT,
    WRONG_LENGTH,
)

# Rows of the header table (int64): one for each field, a column for each batch.
POSITION: Final = 0
SIZE_BYTES: Final = 1
BASE_OFFSET: Final = 2
LEADER_EPOCH: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_DELTA: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
RECORD_COUNT: Final = 12
COMPUTED_CRC: Final = 13
FIELD_COUNT: Final = 14

# The result of a walk (int64).
WALK_STATUS: Final = 0
WALK_POSITION: Final = 1
WALK_BATCHES: Final = 2
WALK_NEXT_OFFSET: Final = 3
WALK_FINISHED: Final = 4
WALK_TORN: Final = 5
WALK_WIDTH: Final = 6

# Rows of the table of records (int64); a column for each batch.
RECORDS_STATUS: Final = 0
RECORDS_BYTE: Final = 1
RECORDS_WIDTH: Final = 2

RECORDS_ARE_PACKED: Final = -1
"""The RECORDS_STATUS of a batch that must be decompressed first; others index `FINDINGS`."""

MAX_BATCHES: Final = 8192
_CONTROL_FLAG: Final = 0x20
_CODEC_MASK: Final = 7
_HEADER_BYTES: Final = 61
_OVERHEAD_BYTES: Final = 12
_CRC_FROM: Final = 21
_UINT32: Final = 0xFFFFFFFF


@compiled
def _note(table: Any, index: int, at: int) -> None:
    """Write the fields of the header at an address."""
    table[SIZE_BYTES, index] = big_int32_at(at + 8) + _OVERHEAD_BYTES
    table[BASE_OFFSET, index] = big_int64_at(at)
    table[LEADER_EPOCH, index] = big_int32_at(at + 12)
    table[CRC, index] = big_int32_at(at + 17) & _UINT32
    table[ATTRIBUTES, index] = big_int16_at(at + 21)
    table[LAST_DELTA, index] = big_int32_at(at + 23)
    table[BASE_TIMESTAMP, index] = big_int64_at(at + 27)
    table[MAX_TIMESTAMP, index] = big_int64_at(at + 35)
    table[PRODUCER_ID, index] = big_int64_at(at + 43)
    table[PRODUCER_EPOCH, index] = big_int16_at(at + 51)
    table[BASE_SEQUENCE, index] = big_int32_at(at + 53)
    table[RECORD_COUNT, index] = big_int32_at(at + 57)


@compiled
def _walk_records(table: Any, index: int, at: int, records: Any) -> None:
    """Check the records of a batch, while its bytes are in the processor's cache."""
    records[RECORDS_STATUS, index] = 0
    if table[CRC, index] != table[COMPUTED_CRC, index] or table[RECORD_COUNT, index] == 0:
        return
    attributes = table[ATTRIBUTES, index]
    if attributes & _CONTROL_FLAG:
        return
    if attributes & _CODEC_MASK:
        records[RECORDS_STATUS, index] = RECORDS_ARE_PACKED
        return
    status, byte, _ = walk_batch(
        at + _HEADER_BYTES,
        at + table[SIZE_BYTES, index],
        table[RECORD_COUNT, index],
        table[BASE_OFFSET, index],
        table[LAST_DELTA, index],
        records[:0],
        0,
    )
    records[RECORDS_STATUS, index] = status
    records[RECORDS_BYTE, index] = byte


@compiled
def walk_headers(
    address: int,
    position: int,
    end: int,
    file_end: int,
    limits: Any,
    check_crcs: int,
    table: Any,
    records: Any,
    result: Any,
) -> None:
    """Fill `table` with the batches that hold offsets [limits[0], limits[1]).

    Bytes [position, end) are in memory, at `address` for byte 0. Stop where the next header (with
    `check_crcs`: the next batch) is not in memory as a whole, at the end offset, at a full table,
    or at a batch that the file does not hold as a whole (WALK_TORN). A header that cannot be one
    gives WALK_STATUS, an index into SCAN_FINDINGS. WALK_POSITION is where to go on; it may be
    after `end`.

    `records` gets what the records of each batch say: RECORDS_STATUS and RECORDS_BYTE. With no
    rows in it, records are not read.
    """
    count = 0
    while end - position >= _HEADER_BYTES and count < table.shape[1]:
        at = address + position
        size = big_int32_at(at + 8) + _OVERHEAD_BYTES
        magic = byte_at(at + 16)
        if magic < 2 and size == _OVERHEAD_BYTES:
            result[WALK_TORN] = 1  # zeros: space that was allocated and not written
            break
        if magic != 2:
            result[WALK_STATUS] = OLD_FORMAT if magic < 2 else UNKNOWN_FORMAT
            break
        if size < _HEADER_BYTES:
            result[WALK_STATUS] = WRONG_LENGTH
            break
        if file_end - position < size:
            result[WALK_TORN] = 1
            break
        if check_crcs and end - position < size:
            break
        base_offset = big_int64_at(at)
        if base_offset >= limits[1]:
            result[WALK_FINISHED] = 1
            break
        last_delta = big_int32_at(at + 23)
        next_offset = base_offset + last_delta + 1
        record_count = big_int32_at(at + 57)
        if record_count < 0 or record_count > last_delta + 1:
            result[WALK_STATUS] = WRONG_COUNT
            break
        if next_offset > limits[0]:
            _note(table, count, at)
            table[POSITION, count] = position
            if check_crcs:
                table[COMPUTED_CRC, count] = crc32c_at(at + _CRC_FROM, size - _CRC_FROM)
            if records.shape[0]:
                _walk_records(table, count, at, records)
            count += 1
        position += size
        result[WALK_NEXT_OFFSET] = next_offset
        if next_offset >= limits[1]:
            result[WALK_FINISHED] = 1
            break
    result[WALK_POSITION] = position
    result[WALK_BATCHES] = count


class HeaderWalk:
    """Calls the walk on windows of a file, in order.

    After each call, `position` is where to read on in the file, `next_offset` the offset after the
    last batch passed, `is_finished` True at the end offset, and `is_torn` True before a batch that
    the file does not hold as a whole. `finding` tells why a header cannot be one, else it is empty.

    Args:
        start_offset, end_offset: Batches that hold offsets of [start, end) are wanted.
        check_crcs: Compute the checksums, for which the windows must hold whole batches.
        check_records: Walk over the records of batches whose checksums are right, too; what they
            say is in `records` after each call, an array (RECORDS_WIDTH, batches).
    """

    def __init__(
        self,
        start_offset: int,
        end_offset: int,
        *,
        check_crcs: bool,
        check_records: bool = False,
    ) -> None:
        self._limits = np.array([start_offset, end_offset], np.int64)
        self._check_crcs = int(check_crcs)
        self._table = np.empty((FIELD_COUNT, MAX_BATCHES), np.int64)
        width = RECORDS_WIDTH if check_records else 0
        self._records = np.empty((width, MAX_BATCHES), np.int64)
        self.records = self._records[:, :0]
        self.position = 0
        self.next_offset = start_offset
        self.is_finished = start_offset >= end_offset
        self.is_torn = False
        self.finding = ""

    def fields(self, address: int, size_bytes: int, window_at: int, file_bytes: int) -> Any:
        """Return the fields of the batches in a window as a (FIELD_COUNT, batches) array.

        Args:
            address, size_bytes: The window in memory.
            window_at: Its position in the file.
            file_bytes: The size of the file.
        """
        result = np.zeros(WALK_WIDTH, np.int64)
        result[WALK_NEXT_OFFSET] = self.next_offset
        walk_headers(
            address - window_at,
            window_at,
            window_at + size_bytes,
            file_bytes,
            self._limits,
            self._check_crcs,
            self._table,
            self._records,
            result,
        )
        self.position = int(result[WALK_POSITION])
        self.next_offset = int(result[WALK_NEXT_OFFSET])
        self.is_finished = bool(result[WALK_FINISHED])
        self.is_torn = bool(result[WALK_TORN])
        self.finding = SCAN_FINDINGS[int(result[WALK_STATUS])]
        count = int(result[WALK_BATCHES])
        self.records = self._records[:, :count]
        return self._table[:, :count].copy()
