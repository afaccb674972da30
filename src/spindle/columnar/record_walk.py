"""The walk over the records of batches in Python: check them, and make digests of keys and values.

`native/src/audit/records.rs` has the same, and digests from both are compared with each other.
"""

from collections.abc import Callable
from typing import Final

from spindle.columnar.tables import (
    RECORD_ENDS_EARLY,
    RECORD_NULL_HEADER_KEY,
    RECORD_TRAILING,
    RECORD_WRONG_FIELD,
    RECORD_WRONG_LENGTH,
    RECORD_WRONG_OFFSET,
    RECORD_WRONG_ORDER,
    TOMBSTONE,
)
from spindle.common.ports import Bytes

_HIGH_SEED: Final = 0x1B873593CC9E2D51
_LOW_SEED: Final = 0x165667B19E3779F9
_FACTOR: Final = 0x2545F4914F6CDD1D
_WORD: Final = 2**64 - 1
_MAX_NUMBER_BITS: Final = 70
_MIN_LENGTH: Final = 6

OnRecord = Callable[[int, Bytes | None, bool, Bytes], None]
"""Gets the offset delta of a record, its key, whether it has a value, and its content: the bytes
from the length of the key on."""


class _Stop(Exception):
    """The walk ends at a byte of the records, with a finding."""

    def __init__(self, finding: int, byte: int = 0) -> None:
        self.finding = finding
        self.byte = byte


def check_records(data: Bytes, count: int, last_delta: int) -> tuple[int, int]:
    """Check the uncompressed records of a batch.

    Args:
        count, last_delta: the count of records and the largest offset delta, by the batch header.

    Return (an index into `tables.RECORD_FINDINGS`, the byte within the records).
    """
    return _walk(data, count, last_delta, None)


def batch_digests(
    data: Bytes, count: int, base_offset: int, last_delta: int
) -> list[tuple[int, int, int, int]]:
    """Return the digests of a batch's records that have a key; none if it contradicts itself.

    They are rows of `tables`: KEY_HIGH, KEY_LOW, OFFSET, CONTENT.
    """
    digests: list[tuple[int, int, int, int]] = []

    def add(offset_delta: int, key: Bytes | None, has_value: bool, content: Bytes) -> None:
        if key is not None:
            digests.append(
                (
                    _signed(_hash(key, _HIGH_SEED)),
                    _signed(_hash(key, _LOW_SEED)),
                    _signed((base_offset + offset_delta) & _WORD),
                    _signed(_hash(content, _LOW_SEED) | 1) if has_value else TOMBSTONE,
                )
            )

    finding, _ = _walk(data, count, last_delta, add)
    return [] if finding else digests


def _walk(data: Bytes, count: int, last_delta: int, on_record: OnRecord | None) -> tuple[int, int]:
    try:
        return _walk_on(data, count, last_delta, on_record)
    except _Stop as stop:
        return stop.finding, stop.byte


def _walk_on(
    data: Bytes, count: int, last_delta: int, on_record: OnRecord | None
) -> tuple[int, int]:
    position, end, before = 0, len(data), -1
    for _ in range(count):
        length, position = _number(data, position, end, RECORD_ENDS_EARLY)
        if length < _MIN_LENGTH or length > end - position:
            return RECORD_ENDS_EARLY, position
        record_end = position + length
        _, position = _number(data, position + 1, record_end)
        delta, position = _number(data, position, record_end)
        if delta < 0 or delta > last_delta:
            return RECORD_WRONG_OFFSET, position
        if delta <= before:
            return RECORD_WRONG_ORDER, position
        before = delta
        content = position
        key, position = _field(data, position, record_end)
        value, position = _field(data, position, record_end)
        position = _after_headers(data, position, record_end)
        if position != record_end:
            return RECORD_WRONG_LENGTH, position
        if on_record is not None:
            on_record(delta, key, value is not None, data[content:record_end])
    return (RECORD_TRAILING if position != end else 0), position


def _number(
    data: Bytes, position: int, end: int, finding: int = RECORD_WRONG_LENGTH
) -> tuple[int, int]:
    """Return (a zig-zag number, the position after it); bits above the 64th are ignored.

    Raises:
        _Stop: it does not end before `end`, or has more than ten bytes.
    """
    raw = shift = 0
    while position < end and shift < _MAX_NUMBER_BITS:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= _WORD
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise _Stop(finding)


def _field(data: Bytes, position: int, end: int) -> tuple[Bytes | None, int]:
    """Return (a field, the position after it). Raise _Stop if it exceeds the record."""
    length, position = _number(data, position, end)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise _Stop(RECORD_WRONG_FIELD, position)
    return data[position : position + length], position + length


def _after_headers(data: Bytes, position: int, end: int) -> int:
    """Return the position after the headers of a record. Raise _Stop if they are wrong."""
    count, position = _number(data, position, end)
    if count < 0 or count > (end - position) >> 1:
        raise _Stop(RECORD_WRONG_FIELD, position)
    for _ in range(count):
        length, at = _number(data, position, end)
        if length < 0:
            raise _Stop(RECORD_NULL_HEADER_KEY, at)
        _, position = _field(data, position, end)
        _, position = _field(data, position, end)
    return position


def _hash(data: Bytes, seed: int) -> int:
    """Return a hash of 64 bits."""
    size = len(data)
    digest = seed ^ (size * _FACTOR & _WORD)
    whole = size - size % 8
    for at in range(0, whole, 8):
        digest = (digest ^ int.from_bytes(data[at : at + 8], "big")) * _FACTOR & _WORD
        digest ^= digest >> 29
    digest = (digest ^ int.from_bytes(data[whole:], "big")) * _FACTOR & _WORD
    digest ^= digest >> 29
    digest = digest * _FACTOR & _WORD
    return digest ^ digest >> 32


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
