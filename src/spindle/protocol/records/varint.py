"""Zig-zag variable-length integers as records use them (32 and 64 bits)."""

from spindle.common.errors import CorruptRecords

_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A 32-bit value and the position after it.

    Raises:
        CorruptRecords: more than five bytes, or the data ends within the number.
    """
    return _read(data, position, _MAX_VARINT_BYTES)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """A 64-bit value and the position after it.

    Raises:
        CorruptRecords: more than ten bytes, or the data ends within the number.
    """
    return _read(data, position, _MAX_VARLONG_BYTES)


def _read(data: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    result = 0
    for shift, byte in enumerate(data[position : position + max_bytes]):
        result |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position + shift + 1
    if position + max_bytes > len(data):
        raise CorruptRecords(f"the records end within the number at byte {position}")
    raise CorruptRecords(f"the number at byte {position} has more than {max_bytes} bytes")


def write_varint(output: bytearray, value: int) -> None:
    """Append `value` (32 or 64 bits, signed)."""
    encoded = value << 1 if value >= 0 else ~(value << 1)
    while encoded > 0x7F:
        output.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    output.append(encoded)


def varint_bytes(value: int) -> int:
    """How many bytes `value` takes."""
    encoded = value << 1 if value >= 0 else ~(value << 1)
    return max(1, (encoded.bit_length() + 6) // 7)
