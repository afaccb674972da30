"""Elements that a request names more than once."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def repeated(values: Iterable[T]) -> dict[T, None]:
    """Return the values that occur more than once, in order of their first occurrence."""
    counts: dict[T, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return {value: None for value, count in counts.items() if count > 1}
