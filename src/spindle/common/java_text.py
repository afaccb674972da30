"""Numbers as Java prints them, and the order in which its hash maps yield their keys.

Kafka's tools print the entries of such maps, and scripts and recorded outputs contain that order.
It follows from the hash codes alone, so the same lines can be printed here.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from spindle.common.ids import TopicPartition

T = TypeVar("T")
_WORD: Final = 0xFFFFFFFF
_FIRST_CAPACITY: Final = 16


def java_double(value: float) -> str:
    """Return the text of `Double.toString`: plain from 0.001 up to ten million, else `digits E
    exponent`.
    """
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    for digits in range(1, 18):
        text = f"{value:.{digits}e}"
        if float(text) == value:
            break
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}E{int(exponent)}"


def string_hash(text: str) -> int:
    """Return `String.hashCode` as an unsigned 32-bit number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _WORD
    return value


def partition_hash(partition: TopicPartition) -> int:
    """Return `TopicPartition.hashCode` as an unsigned 32-bit number."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _WORD


def in_map_order(
    items: Iterable[T], hash_of: Callable[[T], int], *, is_sized: bool = False
) -> list[T]:
    """Return the items in the iteration order of a HashMap into which they were put in this order.

    Args:
        is_sized: the map was made for the number of items instead of the usual 16.
    """
    listed = list(items)
    capacity = 1 << max(0, len(listed) - 1).bit_length() if is_sized else _FIRST_CAPACITY
    while len(listed) > capacity * 3 // 4:
        capacity *= 2
    return sorted(listed, key=lambda item: _spread(hash_of(item)) & capacity - 1)


def _spread(value: int) -> int:
    return value ^ value >> 16
