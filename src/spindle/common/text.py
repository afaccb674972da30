"""Numbers, durations and lists of things as text for people."""

from collections.abc import Sequence
from typing import Final

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_MAX_S: Final = 3650 * _DAY_S


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


def duration_text(time_s: float) -> str:
    """Return a duration as 0:34 or 2:05:09."""
    whole_s = int(time_s + 0.5)
    hours, rest_s = divmod(whole_s, _HOUR_S)
    minutes, seconds = divmod(rest_s, _MINUTE_S)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


def span_text(span_s: float) -> str:
    """Return a span with one unit: `35 s`, `12.0 min`, `7.5 h`, `5.2 d`."""
    if span_s >= _MAX_S:
        return "10 years or more"
    for unit_s, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if span_s >= 2 * unit_s:
            return f"{span_s / unit_s:.1f} {unit}"
    return f"{span_s:.0f} s"
