"""When a directory will be full, as far as its history tells."""

from dataclasses import dataclass
from enum import StrEnum

from spindle.planner.trend import FEWEST_POINTS, Trend


class Filling(StrEnum):
    """The verdict of a history about a directory."""

    FILLING = "filling"
    NOT_FILLING = "not filling"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TimeToFull:
    """The time until a directory is full, in seconds from now.

    Attributes:
        reason: why it is unknown; empty if it is known.
        growth: in bytes per second, with its interval of 90 %; None if it is unknown.
        expected_s: None if it does not fill.
        earliest_s: with the highest growth of the interval; None if even that fills nothing.
        latest_s: with the lowest growth of the interval; None if that fills nothing.
    """

    filling: Filling
    reason: str = ""
    growth: Trend | None = None
    expected_s: float | None = None
    earliest_s: float | None = None
    latest_s: float | None = None


def unknown(reason: str) -> TimeToFull:
    """Return that nothing can be said."""
    return TimeToFull(Filling.UNKNOWN, reason)


def time_to_full(free_bytes: int, growth: Trend | None, samples: int) -> TimeToFull:
    """Return the time in which growth uses up the free bytes.

    Args:
        free_bytes: negative if they are unknown.
        growth: in bytes per second; None with too few samples.
        samples: the number of samples that count.
    """
    if free_bytes < 0:
        return unknown("the free space is unknown")
    if growth is None:
        return unknown(f"too few samples ({samples} of {FEWEST_POINTS})")
    expected, earliest, latest = (
        free_bytes / each if each > 0 else None for each in (growth.slope, growth.high, growth.low)
    )
    filling = Filling.FILLING if growth.slope > 0 else Filling.NOT_FILLING
    return TimeToFull(filling, "", growth, expected, earliest, latest)
