"""The compiled walk over batch headers: it selects the batches to decode and checks their CRCs.

Every batch that may hold wanted rows gets a row of the batch table. Uncompressed batches need no
Python code between this walk and the kernel, so a log of one-record batches is decoded fast.
"""

from typing import Any, Final

from spindle.columnar.memory import (
    big_int32_at,
    big_int64_at,
    byte_at,
    compiled,
    crc32c_at,
)
from spindle.columnar.tables import (
    ADDRESS,
    APPEND_TIMESTAMP,
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    CREATE_TIME,
    LAST_DELTA,
    LENGTH,
    MISPLACED_OFFSETS,
    OLD_FORMAT,
    POSITION,
    ROWS,
    SCAN_BATCHES,
    SCAN_COMPUTED_CRC,
    SCAN_FINISHED,
    SCAN_MAX_OFFSET,
    SCAN_MIN_OFFSET,
    SCAN_NEXT_OFFSET,
    SCAN_POSITION,
    SCAN_STATUS,
    UNKNOWN_FORMAT,
    WRONG_COUNT,
    WRONG_CRC,
    WRONG_LENGTH,
    WRONG_OFFSETS,
)
from spindle.protocol.records.batch import CODEC_MASK, CONTROL_FLAG, TIMESTAMP_TYPE_FLAG

_HEADER_BYTES: Final = 61
_OVERHEAD_BYTES: Final = 12
_MIN_RECORD_BYTES: Final = 7
_CRC_FROM: Final = 21
_UINT32: Final = 0xFFFFFFFF
_LAST_NEXT_OFFSET: Final = 2**63 - 1


@compiled
def _offsets_finding(magic: int, base_offset: int, last_delta: int, result: "Any") -> int:
    """Return the finding of a batch's format or offsets, 0 if they are right."""
    if magic > 2:
        return UNKNOWN_FORMAT
    # Before any sum: numba does not notice one that overflows.
    if base_offset < 0 or last_delta < 0 or base_offset >= _LAST_NEXT_OFFSET - last_delta:
        return WRONG_OFFSETS
    if base_offset < result[SCAN_MIN_OFFSET]:
        return MISPLACED_OFFSETS
    return MISPLACED_OFFSETS if base_offset + last_delta > result[SCAN_MAX_OFFSET] else 0


@compiled
def scan_batches(
    address: int,
    position: int,
    end: int,
    limits: "Any",
    chunk_bytes: int,
    keep_control: int,
    check_crcs: int,
    table: "Any",
    result: "Any",
) -> None:
    """Fill `table` with batches from byte `position` on, until it has about `chunk_bytes` of them.

    Stop at `end` or a batch that is not whole, at a full table, at the end offset, or at a corrupt
    batch: SCAN_STATUS is then an index into SCAN_FINDINGS and SCAN_POSITION the place of the batch.
    `limits` is (start offset, end offset, least timestamp, greatest timestamp) as for the kernel.
    The offsets of a batch must be from SCAN_MIN_OFFSET, which moves with the scan, to
    SCAN_MAX_OFFSET.
    """
    start_offset, end_offset, min_timestamp, max_timestamp = limits
    count = 0
    taken_bytes = 0
    status = 0
    while end - position >= _HEADER_BYTES and count < table.shape[0] and taken_bytes < chunk_bytes:
        at = address + position
        size = big_int32_at(at + 8) + _OVERHEAD_BYTES
        magic = byte_at(at + 16)
        if magic < 2:
            status = OLD_FORMAT if size != _OVERHEAD_BYTES else 0  # zeros were never written
            break
        if size < _HEADER_BYTES:
            status = WRONG_LENGTH
            break
        if end - position < size:
            break
        base_offset, last_delta = big_int64_at(at), big_int32_at(at + 23)
        status = _offsets_finding(magic, base_offset, last_delta, result)
        if status:
            break
        if base_offset >= end_offset:
            result[SCAN_FINISHED] = 1
            break
        attributes = (byte_at(at + 21) << 8) | byte_at(at + 22)
        greatest = big_int64_at(at + 35)
        records = big_int32_at(at + 57)
        is_append_time = attributes & TIMESTAMP_TYPE_FLAG
        wanted = (
            keep_control
            if attributes & CONTROL_FLAG
            else records != 0
            and base_offset + last_delta >= start_offset
            and greatest >= min_timestamp
            and not (is_append_time and greatest > max_timestamp)
        )
        if wanted:
            length = size - _HEADER_BYTES
            if check_crcs:
                crc = crc32c_at(at + _CRC_FROM, size - _CRC_FROM)
                if crc != big_int32_at(at + 17) & _UINT32:
                    status = WRONG_CRC
                    result[SCAN_COMPUTED_CRC] = crc
                    break
            if records < 0 or (
                attributes & CODEC_MASK == 0 and records > length // _MIN_RECORD_BYTES
            ):
                status = WRONG_COUNT
                break
            row = table[count]
            row[ADDRESS] = at + _HEADER_BYTES
            row[LENGTH] = length
            row[BASE_OFFSET] = base_offset
            row[BASE_TIMESTAMP] = big_int64_at(at + 27)
            row[APPEND_TIMESTAMP] = greatest if is_append_time else CREATE_TIME
            row[LAST_DELTA] = last_delta
            row[COUNT] = records
            row[ROWS] = 0
            row[POSITION] = position
            row[ATTRIBUTES] = attributes
            count += 1
            taken_bytes += length
        position += size
        result[SCAN_NEXT_OFFSET] = base_offset + last_delta + 1
        result[SCAN_MIN_OFFSET] = base_offset + last_delta + 1
        if base_offset + last_delta + 1 >= end_offset:
            result[SCAN_FINISHED] = 1
            break
    result[SCAN_STATUS] = status
    result[SCAN_POSITION] = position
    result[SCAN_BATCHES] = count
