"""The partition of an internal topic to which a group or a transactional id belongs."""

from functools import lru_cache
from typing import Final

from spindle.common.java_text import string_hash

_SIGN_BIT: Final = 1 << 31


@lru_cache(maxsize=4_096)
def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a group id in `__consumer_offsets`, or of a transactional id in its
    topic.

    The hash -2^31 has no absolute value in Java and counts as 0.
    """
    hashed = string_hash(key)
    if hashed < _SIGN_BIT:
        return hashed % partition_count
    return (2 * _SIGN_BIT - hashed) % _SIGN_BIT % partition_count


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units, by which Kafka limits the metadata of a commit."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
