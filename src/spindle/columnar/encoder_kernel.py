"""The compiled loops of writing: partition by key, digest rows, encode rows as records.

`encode_rows` appends records to the buffers of slots; a slot is one partition that is written.
Columns are passed as memory addresses, so that the machine code fits every batch.
"""

from typing import Any, Final, TypeAlias

import numpy as np

from spindle.columnar.memory import (
    byte_at,
    compiled,
    copy,
    inlined,
    little_uint32_at,
    little_uint64_at,
    put_byte,
)

BytesBuffers: TypeAlias = tuple[int, int, int]
"""Addresses of a column of bytes: (32-bit offsets, validity bits or 0 if nothing is null, data)."""

HeaderLists: TypeAlias = tuple[int, int, BytesBuffers, BytesBuffers]
"""(row offsets, row validity bits, keys, values) of the headers; (0, 0, ...) if there are none."""

# Columns of the slot table (int64): where records go, and how far the buffer is filled.
SLOT_ADDRESS: Final = 0
SLOT_USED: Final = 1
SLOT_CAPACITY: Final = 2
SLOT_RECORDS: Final = 3
SLOT_WIDTH: Final = 4

# The result of `encode_rows` (int64).
NEXT_ROW: Final = 0
NEEDED_BYTES: Final = 1
RESULT_WIDTH: Final = 2

_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_SIGN_BIT: Final = 0x7FFFFFFF

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_AGAIN: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_LAST: Final = np.uint64(0x94D049BB133111EB)
_SEED: Final = np.uint64(0x243F6A8885A308D3)
_29: Final = np.uint64(29)
_32: Final = np.uint64(32)
_NULL_LENGTH: Final = -1


@inlined
def _is_valid(valid: int, row: int) -> Any:
    return valid == 0 or (byte_at(valid + (row >> 3)) >> (row & 7)) & 1 != 0


@inlined
def _offset(offsets: int, row: int) -> Any:
    return np.int64(little_uint32_at(offsets + 4 * row))


@inlined
def _length(column: BytesBuffers, row: int) -> Any:
    """Return the length in bytes of a value, -1 for null."""
    offsets, valid, _ = column
    if not _is_valid(valid, row):
        return _NULL_LENGTH
    return _offset(offsets, row + 1) - _offset(offsets, row)


@inlined
def _murmur2(address: Any, size_bytes: Any) -> Any:
    value: Any = (_MURMUR_SEED ^ size_bytes) & _WORD
    position = address
    end = address + (size_bytes & ~3)
    while position < end:
        word = np.int64(little_uint32_at(position)) * _MURMUR_MULTIPLIER & _WORD
        word = (word ^ (word >> 24)) * _MURMUR_MULTIPLIER & _WORD
        value = (value * _MURMUR_MULTIPLIER & _WORD) ^ word
        position += 4
    rest = size_bytes & 3
    if rest:
        tail = 0
        for index in range(rest):
            tail |= byte_at(position + index) << (8 * index)
        value = (value ^ tail) * _MURMUR_MULTIPLIER & _WORD
    value = (value ^ (value >> 13)) * _MURMUR_MULTIPLIER & _WORD
    return value ^ (value >> 15)


@compiled
def partition_by_key(
    keys: BytesBuffers, topics: Any, counts: Any, sticky: Any, given: Any, partitions: Any
) -> int:
    """Fill `partitions` for each row; return the first row with an impossible partition, or -1.

    A given partition (0 or above) is taken, else the hash of the key decides, as in Kafka's Java
    producer; rows without a key go to the sticky partition of their topic.

    Args:
        topics: Index of the topic of each row.
        counts, sticky: Number of partitions, and sticky partition, of each topic.
        given: Partition of each row, -1 for none; empty if no row has one.
    """
    for row in range(partitions.size):
        topic = topics[row]
        wanted = given[row] if given.size else np.int64(-1)
        if wanted != -1:
            if wanted < 0 or wanted >= counts[topic]:
                return row
            partitions[row] = wanted
            continue
        length = _length(keys, row)
        if length < 0:
            partitions[row] = sticky[topic]
        else:
            value = _murmur2(keys[2] + _offset(keys[0], row), length)
            partitions[row] = (value & _SIGN_BIT) % counts[topic]
    return -1


@inlined
def _mixed(value: Any, word: Any) -> Any:
    value = (value ^ word) * _MIX
    return value ^ (value >> _29)


@inlined
def _mixed_bytes(value: Any, column: BytesBuffers, row: int) -> Any:
    """Return the hash after a value of a column: its length, then its bytes."""
    length = _length(column, row)
    value = _mixed(value, np.uint64(length + 1))
    position = column[2] + _offset(column[0], row)
    end = position + length
    while end - position >= 8:
        value = _mixed(value, little_uint64_at(position))
        position += 8
    word = np.uint64(0)
    while position < end:
        word = (word << np.uint64(8)) | np.uint64(byte_at(position))
        position += 1
    return _mixed(value, word)


@compiled
def digest_rows(
    keys: BytesBuffers,
    values: BytesBuffers,
    headers: HeaderLists,
    topics: Any,
    topic_hashes: Any,
    given: Any,
    rows: int,
    sums: Any,
) -> None:
    """Add two hashes of each row to `sums` (uint64), so that the order of rows does not matter."""
    for row in range(rows):
        value = _mixed(_SEED, topic_hashes[topics[row]])
        value = _mixed(value, np.uint64(given[row] if given.size else np.int64(-1)))
        value = _mixed_bytes(value, keys, row)
        value = _mixed_bytes(value, values, row)
        if headers[0] != 0 and _is_valid(headers[1], row):
            for index in range(_offset(headers[0], row), _offset(headers[0], row + 1)):
                value = _mixed_bytes(value, headers[2], index)
                value = _mixed_bytes(value, headers[3], index)
        value = (value ^ (value >> _32)) * _MIX_AGAIN
        sums[0] += value ^ (value >> _29)
        value = (value ^ (value >> _32)) * _MIX_LAST
        sums[1] += value ^ (value >> _29)


@inlined
def _varint_size(value: Any) -> int:
    number = (value << 1) ^ (value >> 63)
    size_bytes = 1
    while number >= 0x80:
        number >>= 7
        size_bytes += 1
    return size_bytes


@inlined
def _field_size(length: int) -> int:
    return _varint_size(length) + max(length, 0)


@inlined
def _put_varint(target: int, value: Any) -> int:
    number = (value << 1) ^ (value >> 63)
    while number >= 0x80:
        put_byte(target, (number & 0x7F) | 0x80)
        number >>= 7
        target += 1
    put_byte(target, number)
    return target + 1


@inlined
def _put_field(target: int, column: BytesBuffers, row: int) -> int:
    """Write length and bytes of a value; return the address after them."""
    length = _length(column, row)
    target = _put_varint(target, length)
    if length > 0:
        copy(target, column[2] + _offset(column[0], row), length)
        target += length
    return target


@compiled
def encode_rows(
    keys: BytesBuffers,
    values: BytesBuffers,
    headers: HeaderLists,
    slots: Any,
    first_row: int,
    table: Any,
    result: Any,
) -> None:
    """Append rows to the buffers of their slots until one buffer has no room for its row.

    NEXT_ROW of `result` is then that row, and NEEDED_BYTES its size; at the end NEXT_ROW is the
    number of rows. All records have the base timestamp of their batch.
    """
    for row in range(first_row, slots.size):
        line = table[slots[row]]
        first_header = np.int64(0)
        end_header = np.int64(0)
        if headers[0] != 0 and _is_valid(headers[1], row):
            first_header = _offset(headers[0], row)
            end_header = _offset(headers[0], row + 1)
        body = (
            2  # attributes, timestamp delta
            + _varint_size(line[SLOT_RECORDS])
            + _field_size(_length(keys, row))
            + _field_size(_length(values, row))
            + _varint_size(end_header - first_header)
        )
        for index in range(first_header, end_header):
            body += _field_size(_length(headers[2], index))
            body += _field_size(_length(headers[3], index))
        needed = _field_size(body)
        if line[SLOT_USED] + needed > line[SLOT_CAPACITY]:
            result[NEXT_ROW] = row
            result[NEEDED_BYTES] = needed
            return
        target = _put_varint(line[SLOT_ADDRESS] + line[SLOT_USED], body)
        put_byte(target, 0)
        put_byte(target + 1, 0)
        target = _put_varint(target + 2, line[SLOT_RECORDS])
        target = _put_field(target, keys, row)
        target = _put_field(target, values, row)
        target = _put_varint(target, end_header - first_header)
        for index in range(first_header, end_header):
            target = _put_field(target, headers[2], index)
            target = _put_field(target, headers[3], index)
        line[SLOT_USED] += needed
        line[SLOT_RECORDS] += 1
    result[NEXT_ROW] = slots.size
    result[NEEDED_BYTES] = 0
