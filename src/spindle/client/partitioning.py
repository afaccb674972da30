"""The partition of a key, by the hash of Kafka's Java producer (murmur2)."""

from typing import Final

_WORD: Final = 0xFFFFFFFF
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_SIGN_BIT: Final = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of some bytes, unsigned."""
    value = (_SEED ^ len(data)) & _WORD
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _WORD
        value = (value * _MULTIPLIER & _WORD) ^ word
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _WORD
    value = (value ^ value >> 13) * _MULTIPLIER & _WORD
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic with this number of partitions."""
    return (murmur2(key) & _SIGN_BIT) % partitions
