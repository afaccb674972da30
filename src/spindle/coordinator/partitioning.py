"""The partition of an internal topic to which a group or a transactional id belongs."""

from functools import lru_cache


@lru_cache(maxsize=4_096)
def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = value * 31 + (units[position] << 8 | units[position + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a group id in `__consumer_offsets`, or of a transactional id in its
    topic.

    The hash -2^31 has no absolute value in Java and counts as 0.
    """
    hashed = java_string_hash(key)
    return 0 if hashed == -(1 << 31) else abs(hashed) % partition_count


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, by which Kafka limits the metadata of a commit."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
