"""XXH64 over the columns of Arrow batches, row by row, as Spark's `xxhash64(...)` defines it.

The hash of a row starts with the seed 42. Each column that is not null is then hashed with the
hash so far as its seed: binary values and text by their bytes, timestamps by their microseconds.
So a checksum that Python computes over input can be compared with one that Spark SQL computes over
a table.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from spindle.columnar.memory import (
    byte_at,
    compiled,
    inlined,
    little_uint32_at,
    little_uint64_at,
)

SEED: Final = 42
_BYTE_TYPES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
)
_PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3: Final = np.uint64(0x165667B19E3779F9)
_PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5: Final = np.uint64(0x27D4EB2F165667C5)


@inlined
def _rotated(value: Any, bits: int) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _round(lane: Any, data: Any) -> Any:
    return _rotated(lane + data * _PRIME_2, 31) * _PRIME_1


@inlined
def _merged(state: Any, lane: Any) -> Any:
    return (state ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4


@inlined
def _finished(state: Any) -> Any:
    state ^= state >> np.uint64(33)
    state *= _PRIME_2
    state ^= state >> np.uint64(29)
    state *= _PRIME_3
    return state ^ (state >> np.uint64(32))


@compiled
def _hash_bytes(address: int, size_bytes: int, seed: Any) -> Any:
    end = address + size_bytes
    position = address
    if size_bytes >= 32:
        lane_1 = seed + _PRIME_1 + _PRIME_2
        lane_2 = seed + _PRIME_2
        lane_3 = seed
        lane_4 = seed - _PRIME_1
        while end - position >= 32:
            lane_1 = _round(lane_1, little_uint64_at(position))
            lane_2 = _round(lane_2, little_uint64_at(position + 8))
            lane_3 = _round(lane_3, little_uint64_at(position + 16))
            lane_4 = _round(lane_4, little_uint64_at(position + 24))
            position += 32
        state = (
            _rotated(lane_1, 1) + _rotated(lane_2, 7) + _rotated(lane_3, 12) + _rotated(lane_4, 18)
        )
        state = _merged(_merged(_merged(_merged(state, lane_1), lane_2), lane_3), lane_4)
    else:
        state = seed + _PRIME_5
    state += np.uint64(size_bytes)
    while end - position >= 8:
        state ^= _round(np.uint64(0), little_uint64_at(position))
        state = _rotated(state, 27) * _PRIME_1 + _PRIME_4
        position += 8
    if end - position >= 4:
        state ^= little_uint32_at(position) * _PRIME_1
        state = _rotated(state, 23) * _PRIME_2 + _PRIME_3
        position += 4
    while position < end:
        state ^= np.uint64(byte_at(position)) * _PRIME_5
        state = _rotated(state, 11) * _PRIME_1
        position += 1
    return _finished(state)


@compiled
def _add_binary(offsets: Any, valid: Any, first: int, address: int, hashes: Any) -> None:
    for row in range(hashes.size):
        at = first + row
        if valid.size and not valid[at >> 3] >> (at & 7) & 1:
            continue
        start = offsets[at]
        hashes[row] = _hash_bytes(address + start, offsets[at + 1] - start, hashes[row])


@compiled
def _add_longs(values: Any, valid: Any, first: int, hashes: Any) -> None:
    for row in range(hashes.size):
        at = first + row
        if valid.size and not valid[at >> 3] >> (at & 7) & 1:
            continue
        state = hashes[row] + _PRIME_5 + np.uint64(8)
        state ^= _round(np.uint64(0), np.uint64(values[at]))
        hashes[row] = _finished(_rotated(state, 27) * _PRIME_1 + _PRIME_4)


def row_hashes(columns: list[Any]) -> "np.ndarray[Any, Any]":
    """Return the uint64 hash of every row of equally long Arrow arrays.

    A column holds binary values, text or timestamps.

    Raises:
        TypeError: a column of another type.
    """
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        if pa.types.is_timestamp(column.type):
            _hash_timestamps(column.cast(pa.timestamp("us", tz=column.type.tz)), hashes)
        elif any(is_type(column.type) for is_type in _BYTE_TYPES):
            _hash_binary(column.cast(pa.binary()), hashes)
        else:
            raise TypeError(f"cannot hash a column of type {column.type}")
    return hashes


def _hash_binary(column: Any, hashes: Any) -> None:
    if not len(column):
        return
    valid, offsets, data = column.buffers()
    address = 0 if data is None else data.address
    _add_binary(np.frombuffer(offsets, np.int32), _bits(valid), column.offset, address, hashes)


def _hash_timestamps(column: Any, hashes: Any) -> None:
    if not len(column):
        return
    valid, values = column.buffers()
    _add_longs(np.frombuffer(values, np.int64), _bits(valid), column.offset, hashes)


def _bits(valid: Any) -> Any:
    return np.empty(0, np.uint8) if valid is None else np.frombuffer(valid, np.uint8)
