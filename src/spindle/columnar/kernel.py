"""The compiled inner loop: decode records of version 2 batches into buffers of Arrow columns.

Every read is checked against the end of its batch, because numba checks no bounds and a batch with
a valid CRC may still have wrong lengths. Bytes are copied with memcpy (a loop in compiled code is
five times slower on 100-byte values). Batches are passed by memory address, so that one call
decodes batches of the read buffer and of decompressed buffers.

Importing this module imports numba (about 0.3 s); the machine code comes from its cache on disk.
"""

from typing import Any, Final, TypeAlias

from spindle.columnar.memory import byte_at, compiled, copy, inlined
from spindle.columnar.tables import (
    ADDRESS,
    APPEND_TIMESTAMP,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    CREATE_TIME,
    LAST_DELTA,
    LENGTH,
    RECORD_ENDS_EARLY,
    RECORD_NULL_HEADER_KEY,
    RECORD_TRAILING,
    RECORD_WRONG_FIELD,
    RECORD_WRONG_LENGTH,
    RECORD_WRONG_OFFSET,
    RECORD_WRONG_TIMESTAMP,
    ROWS,
)

# Columns of the result (int64).
STATUS: Final = 0
FAILED_BATCH: Final = 1
FAILED_POSITION: Final = 2
ROW_COUNT: Final = 3
KEY_BYTES: Final = 4
NULL_KEYS: Final = 5
VALUE_BYTES: Final = 6
NULL_VALUES: Final = 7
HEADER_COUNT: Final = 8
HEADER_KEY_BYTES: Final = 9
HEADER_VALUE_BYTES: Final = 10
NULL_HEADER_VALUES: Final = 11
ROWS_WITHOUT_HEADERS: Final = 12
RESULT_WIDTH: Final = 13


_MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000


@inlined
def varint(position: int, end: int) -> tuple[int, int]:
    """Return (value, position after it); position -1 if the number exceeds `end` or ten bytes."""
    if position >= end:
        return 0, -1
    byte = byte_at(position)
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    shift = 7
    position += 1
    while position < end and shift < 70:
        byte = byte_at(position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Zig-zag is defined on unsigned numbers, so the shift must not copy the sign bit.
            return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), position
        shift += 7
    return 0, -1


HeaderBuffers: TypeAlias = tuple[Any, Any, Any, int, Any, Any, int]
"""(row offsets, row validity, key offsets, key data, value offsets, value validity, value data):
the buffers of the headers column, data as addresses; empty offsets arrays if it is not wanted."""


@compiled
def _decode_headers(
    position: int, end: int, count: int, headers: HeaderBuffers, result: Any
) -> tuple[int, int]:
    """Append the headers of one record; return (position after them, status)."""
    _, _, key_offsets, key_data, value_offsets, value_valid, value_data = headers
    index = result[HEADER_COUNT]
    key_bytes = result[HEADER_KEY_BYTES]
    value_bytes = result[HEADER_VALUE_BYTES]
    for _ in range(count):
        key_length, position = varint(position, end)
        if position < 0:
            return position, RECORD_WRONG_LENGTH
        if key_length < 0:
            return position, RECORD_NULL_HEADER_KEY
        if key_length > end - position:
            return position, RECORD_WRONG_FIELD
        copy(key_data + key_bytes, position, key_length)
        key_bytes += key_length
        position += key_length
        value_length, position = varint(position, end)
        if position < 0:
            return position, RECORD_WRONG_LENGTH
        if value_length < -1 or value_length > end - position:
            return position, RECORD_WRONG_FIELD
        bit = 1 << (index & 7)
        if bit == 1:
            value_valid[index >> 3] = 0
        if value_length < 0:
            result[NULL_HEADER_VALUES] += 1
        else:
            value_valid[index >> 3] |= bit
            copy(value_data + value_bytes, position, value_length)
            value_bytes += value_length
            position += value_length
        index += 1
        key_offsets[index] = key_bytes
        value_offsets[index] = value_bytes
    result[HEADER_COUNT] = index
    result[HEADER_KEY_BYTES] = key_bytes
    result[HEADER_VALUE_BYTES] = value_bytes
    return position, 0


@compiled
def decode_batches(
    table: Any,
    limits: Any,
    key_offsets: Any,
    key_valid: Any,
    key_data: int,
    value_offsets: Any,
    value_valid: Any,
    value_data: int,
    offsets: Any,
    timestamps: Any,
    headers: HeaderBuffers,
    result: Any,
) -> None:
    """Decode the batches of `table` into the given buffers; `result` gets counts and status.

    `limits` is (start offset, end offset, least timestamp, greatest timestamp) in ms: rows outside
    are not written. `key_data` and `value_data` are addresses of buffers with room for all bytes of
    all batches. A column that is not wanted has an empty offsets array and is skipped. Offsets
    arrays have one entry more than rows, validity arrays one bit per row.

    For corrupt input, STATUS is an index into RECORD_FINDINGS, FAILED_BATCH the row of the table
    and FAILED_POSITION the byte within its records.
    """
    start_offset, end_offset, min_timestamp, max_timestamp = limits
    want_key = key_offsets.size > 0
    want_value = value_offsets.size > 0
    want_offset = offsets.size > 0
    want_timestamp = timestamps.size > 0
    want_headers = headers[0].size > 0
    row = 0
    key_bytes = 0
    value_bytes = 0
    null_keys = 0
    null_values = 0
    if want_key:
        key_offsets[0] = 0
    if want_value:
        value_offsets[0] = 0
    if want_headers:
        headers[0][0] = 0
        headers[2][0] = 0
        headers[4][0] = 0

    for index in range(table.shape[0]):
        start = table[index, ADDRESS]
        end = start + table[index, LENGTH]
        base_offset = table[index, BASE_OFFSET]
        last_delta = table[index, LAST_DELTA]
        base_timestamp = table[index, BASE_TIMESTAMP]
        append_timestamp = table[index, APPEND_TIMESTAMP]
        first_row = row
        position = start
        status = 0
        for _ in range(table[index, COUNT]):
            length, position = varint(position, end)
            if position < 0:
                status = RECORD_ENDS_EARLY
                break
            if length < 6 or length > end - position:
                status = RECORD_ENDS_EARLY
                break
            record_end = position + length
            timestamp_delta, position = varint(position + 1, record_end)
            if position < 0:
                status = RECORD_WRONG_LENGTH
                break
            offset_delta, position = varint(position, record_end)
            if position < 0:
                status = RECORD_WRONG_LENGTH
                break
            if offset_delta < 0 or offset_delta > last_delta:
                status = RECORD_WRONG_OFFSET
                break
            offset = base_offset + offset_delta
            if append_timestamp == CREATE_TIME:
                timestamp = base_timestamp + timestamp_delta
            else:
                timestamp = append_timestamp
            if (
                offset < start_offset
                or offset >= end_offset
                or timestamp < min_timestamp
                or timestamp > max_timestamp
            ):
                position = record_end
                continue

            key_length, position = varint(position, record_end)
            if position < 0:
                status = RECORD_WRONG_LENGTH
                break
            if key_length < -1 or key_length > record_end - position:
                status = RECORD_WRONG_FIELD
                break
            key_start = position
            if key_length > 0:
                position += key_length
            value_length, position = varint(position, record_end)
            if position < 0:
                status = RECORD_WRONG_LENGTH
                break
            if value_length < -1 or value_length > record_end - position:
                status = RECORD_WRONG_FIELD
                break
            value_start = position
            if value_length > 0:
                position += value_length
            header_count, position = varint(position, record_end)
            if position < 0:
                status = RECORD_WRONG_LENGTH
                break
            if header_count < 0 or header_count > (record_end - position) >> 1:
                status = RECORD_WRONG_FIELD
                break

            bit = 1 << (row & 7)
            if want_key:
                if bit == 1:
                    key_valid[row >> 3] = 0
                if key_length > 0:
                    copy(key_data + key_bytes, key_start, key_length)
                    key_bytes += key_length
                if key_length < 0:
                    null_keys += 1
                else:
                    key_valid[row >> 3] |= bit
                key_offsets[row + 1] = key_bytes
            if want_value:
                if bit == 1:
                    value_valid[row >> 3] = 0
                if value_length > 0:
                    copy(value_data + value_bytes, value_start, value_length)
                    value_bytes += value_length
                if value_length < 0:
                    null_values += 1
                else:
                    value_valid[row >> 3] |= bit
                value_offsets[row + 1] = value_bytes
            if want_offset:
                offsets[row] = offset
            if want_timestamp:
                if timestamp > _MAX_TIMESTAMP_MS or timestamp < -_MAX_TIMESTAMP_MS:
                    status = RECORD_WRONG_TIMESTAMP
                    break
                timestamps[row] = timestamp * 1000
            if want_headers:
                if bit == 1:
                    headers[1][row >> 3] = 0
                if header_count > 0:
                    headers[1][row >> 3] |= bit
                    position, status = _decode_headers(
                        position, record_end, header_count, headers, result
                    )
                    if status != 0:
                        break
                else:
                    result[ROWS_WITHOUT_HEADERS] += 1
                headers[0][row + 1] = result[HEADER_COUNT]
            elif header_count > 0:
                position = record_end
            row += 1
            if position != record_end:
                status = RECORD_WRONG_LENGTH
                break
        if status == 0 and position != end:
            status = RECORD_TRAILING
        if status != 0:
            result[STATUS] = status
            result[FAILED_BATCH] = index
            result[FAILED_POSITION] = max(position - start, 0)
            return
        table[index, ROWS] = row - first_row

    result[ROW_COUNT] = row
    result[KEY_BYTES] = key_bytes
    result[NULL_KEYS] = null_keys
    result[VALUE_BYTES] = value_bytes
    result[NULL_VALUES] = null_values
