"""The walk over batch headers for a machine without the compiled one: numba compiles this."""

from typing import Any, Final

from spindle.columnar.header_table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COMPUTED_CRC,
    CRC,
    LAST_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    RECORDS_ARE_PACKED,
    RECORDS_BYTE,
    RECORDS_STATUS,
    SIZE_BYTES,
    WALK_BATCHES,
    WALK_FINISHED,
    WALK_NEXT_OFFSET,
    WALK_POSITION,
    WALK_STATUS,
    WALK_TORN,
)
from spindle.columnar.memory import (
    big_int16_at,
    big_int32_at,
    big_int64_at,
    byte_at,
    compiled,
    crc32c_at,
)
from spindle.columnar.record_walk import walk_batch
from spindle.columnar.tables import (
    OLD_FORMAT,
    UNKNOWN_FORMAT,
    WRONG_COUNT,
    WRONG_LENGTH,
    WRONG_OFFSETS,
)

_CONTROL_FLAG: Final = 0x20
_CODEC_MASK: Final = 7
_HEADER_BYTES: Final = 61
_OVERHEAD_BYTES: Final = 12
_CRC_FROM: Final = 21
_LAST_NEXT_OFFSET: Final = 2**63 - 1
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
    or at a batch that the file does not hold as a whole (WALK_TORN). An impossible header sets
    WALK_STATUS, an index into SCAN_FINDINGS. WALK_POSITION is the position to continue at; it may
    be after `end`.

    `records` gets the result of reading the records of each batch: RECORDS_STATUS and RECORDS_BYTE.
    With no rows in it, records are not read.
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
        last_delta = big_int32_at(at + 23)
        # Before any sum: numba does not notice one that overflows.
        if base_offset < 0 or last_delta < 0 or base_offset >= _LAST_NEXT_OFFSET - last_delta:
            result[WALK_STATUS] = WRONG_OFFSETS
            break
        if base_offset >= limits[1]:
            result[WALK_FINISHED] = 1
            break
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
