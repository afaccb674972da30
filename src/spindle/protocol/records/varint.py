"""Zig-zag variable-length integers as records use them (32 and 64 bits)."""

from spindle.common.errors import CorruptRecords
from spindle.common.ports import Bytes

_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10
_PREPARED_COUNT = 2048


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    """Return a 32-bit value and the position after it.

    Raises:
        CorruptRecords: more than five bytes, or the data ends within the number.
    """
    return _read(data, position, _MAX_VARINT_BYTES)


def read_varlong(data: Bytes, position: int) -> tuple[int, int]:
    """Return a 64-bit value and the position after it.

    Raises:
        CorruptRecords: more than ten bytes, or the data ends within the number.
    """
    return _read(data, position, _MAX_VARLONG_BYTES)


def _read(data: Bytes, position: int, max_bytes: int) -> tuple[int, int]:
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        # Most numbers that have more than one byte have two.
        second = data[position + 1]
        value = byte & 0x7F | second << 7
        if second < 0x80:
            return (value >> 1) ^ -(value & 1), position + 2
        value &= 0x3FFF
        for index in range(2, max_bytes):
            byte = data[position + index]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position + index + 1
    except IndexError:
        raise CorruptRecords(f"the records end within the number at byte {position}") from None
    raise CorruptRecords(f"the number at byte {position} has more than {max_bytes} bytes")


def encode_varint(value: int) -> bytes:
    """Return the bytes of `value` (32 or 64 bits, signed)."""
    if 0 <= value < _PREPARED_COUNT:
        return _PREPARED[value]
    return _encode(value)


def _encode(value: int) -> bytes:
    encoded = value << 1 if value >= 0 else ~(value << 1)
    output = bytearray()
    while encoded > 0x7F:
        output.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    output.append(encoded)
    return bytes(output)


_PREPARED = tuple(_encode(value) for value in range(_PREPARED_COUNT))
