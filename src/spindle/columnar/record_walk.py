"""The compiled walk over the records of batches: check them, and make digests of keys and values.

It writes no columns, so it runs at about the rate at which the bytes come from memory. `kernel.c`
has the same in C (`unpacked_records`); this one serves where Spindle was installed without a
compiler. Every read
is checked against the end of its batch, as in the kernel that decodes.
"""

from typing import Any, Final

from spindle.columnar.kernel import varint
from spindle.columnar.memory import big_int64_at, byte_at, compiled
from spindle.columnar.tables import (
    ADDRESS,
    BASE_OFFSET,
    CONTENT,
    COUNT,
    KEY_HIGH,
    KEY_LOW,
    LAST_DELTA,
    LENGTH,
    OFFSET,
    RECORD_ENDS_EARLY,
    RECORD_NULL_HEADER_KEY,
    RECORD_TRAILING,
    RECORD_WRONG_FIELD,
    RECORD_WRONG_LENGTH,
    RECORD_WRONG_OFFSET,
    RECORD_WRONG_ORDER,
    TOMBSTONE,
)

_HIGH_SEED: Final = 0x1B873593CC9E2D51
_LOW_SEED: Final = 0x165667B19E3779F9
_FACTOR: Final = 0x2545F4914F6CDD1D
_LOW_35_BITS: Final = 0x7FFFFFFFF
_NO_DELTA: Final = -1
_MIN_LENGTH: Final = 6


@compiled
def _hash(start: int, end: int, seed: int) -> int:
    """Return a hash of the bytes at addresses [start, end)."""
    digest = seed ^ ((end - start) * _FACTOR)
    while end - start >= 8:
        digest = (digest ^ big_int64_at(start)) * _FACTOR
        digest ^= (digest >> 29) & _LOW_35_BITS
        start += 8
    rest = 0
    while start < end:
        rest = (rest << 8) | byte_at(start)
        start += 1
    digest = (digest ^ rest) * _FACTOR
    digest ^= (digest >> 29) & _LOW_35_BITS
    digest *= _FACTOR
    return digest ^ ((digest >> 32) & 0xFFFFFFFF)


@compiled
def _past_headers(position: int, end: int, count: int) -> tuple[int, int]:
    """Return (the position after the headers of one record, status)."""
    for _ in range(count):
        length, position = varint(position, end)
        if position < 0:
            return position, RECORD_WRONG_LENGTH
        if length < 0:
            return position, RECORD_NULL_HEADER_KEY
        if length > end - position:
            return position, RECORD_WRONG_FIELD
        position += length
        length, position = varint(position, end)
        if position < 0:
            return position, RECORD_WRONG_LENGTH
        if length < -1 or length > end - position:
            return position, RECORD_WRONG_FIELD
        position += max(length, 0)
    return position, 0


@compiled
def _past_field(position: int, end: int) -> tuple[int, int, int]:
    """Return (a field's length, the position after the field, status)."""
    length, position = varint(position, end)
    if position < 0:
        return length, position, RECORD_WRONG_LENGTH
    if length < -1 or length > end - position:
        return length, position, RECORD_WRONG_FIELD
    return length, position + max(length, 0), 0


@compiled
def _past_offset(position: int, end: int) -> tuple[int, int]:
    """Return (a record's offset delta, the position after it), from the attributes on."""
    _, position = varint(position + 1, end)
    if position < 0:
        return 0, position
    return varint(position, end)


@compiled
def _past_fields(position: int, end: int) -> tuple[int, int, int, int, int]:
    """Return (position after a record, status, key's length, its end, value's length).

    Args:
        position: of the key's length.
    """
    key_length, position, status = _past_field(position, end)
    if status != 0:
        return position, status, 0, 0, 0
    key_end = position
    value_length, position, status = _past_field(position, end)
    if status != 0:
        return position, status, 0, 0, 0
    header_count, position = varint(position, end)
    if position < 0:
        return position, RECORD_WRONG_LENGTH, 0, 0, 0
    if header_count < 0 or header_count > (end - position) >> 1:
        return position, RECORD_WRONG_FIELD, 0, 0, 0
    position, status = _past_headers(position, end, header_count)
    if status == 0 and position != end:
        status = RECORD_WRONG_LENGTH
    return position, status, key_length, key_end, value_length


@compiled
def walk_batch(
    start: int, end: int, count: int, base: int, last_delta: int, digests: Any, made: int
) -> tuple[int, int, int]:
    """Check the records of one batch at addresses [start, end).

    Return (an index into RECORD_FINDINGS, the byte within the records, the count of digests).
    `digests` gets a row for each record that has a key, from row `made` on; with no rows in it,
    none is made.
    """
    before = _NO_DELTA
    position = start
    for _ in range(count):
        length, position = varint(position, end)
        if position < 0 or length < _MIN_LENGTH or length > end - position:
            return RECORD_ENDS_EARLY, max(position - start, 0), made
        record_end = position + length
        delta, position = _past_offset(position, record_end)
        if position < 0:
            return RECORD_WRONG_LENGTH, 0, made
        if delta < 0 or delta > last_delta:
            return RECORD_WRONG_OFFSET, position - start, made
        if delta <= before:
            return RECORD_WRONG_ORDER, position - start, made
        before = delta
        content = position
        position, status, key_length, key_end, value_length = _past_fields(content, record_end)
        if status != 0:
            return status, max(position - start, 0), made
        if digests.shape[0] and key_length >= 0:
            row = digests[made]
            row[KEY_HIGH] = _hash(key_end - key_length, key_end, _HIGH_SEED)
            row[KEY_LOW] = _hash(key_end - key_length, key_end, _LOW_SEED)
            row[OFFSET] = base + delta
            row[CONTENT] = TOMBSTONE
            if value_length >= 0:
                row[CONTENT] = _hash(content, record_end, _LOW_SEED) | 1
            made += 1
    return (RECORD_TRAILING if position != end else 0), position - start, made


@compiled
def digest_records(table: Any, digests: Any) -> int:
    """Make the digests of the records of the batches in a batch table of `scan`.

    `digests` gets a row for each record that has a key, and needs room for all records. A batch
    that contradicts itself has none. Return how many there are.
    """
    made = 0
    for index in range(table.shape[0]):
        start = table[index, ADDRESS]
        status, _, made_then = walk_batch(
            start,
            start + table[index, LENGTH],
            table[index, COUNT],
            table[index, BASE_OFFSET],
            table[index, LAST_DELTA],
            digests,
            made,
        )
        if status == 0:
            made = made_then
    return made
