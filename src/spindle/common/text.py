"""Numbers and lists of things as text for people."""

from collections.abc import Sequence


def count_noun(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun: `1 move`, `2 moves`, `1,000 batches`.

    Args:
        plural: irregular plural of the noun.
    """
    many = plural or f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def join_first(names: Sequence[object], most: int) -> str:
    """Return the first names, at most so many, and the number of the others: `a, b and 3 more`."""
    shown = ", ".join(map(str, names[:most]))
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown
