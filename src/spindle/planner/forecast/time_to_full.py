"""Forecast the time when a directory will be full, from its history."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spindle.planner.forecast.growth import DirectoryGrowth
from spindle.planner.forecast.trend import MIN_POINTS, MIN_SPAN_S, Trend

MAX_SPANS_AHEAD: Final = 10
"""Do not forecast beyond 10 times the span of the history."""


class Filling(StrEnum):
    """The verdict of a history about a directory."""

    FILLING = "filling"
    FAR = "far"
    """It fills, but later than the maximum forecast horizon."""
    NOT_FILLING = "not filling"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TimeToFull:
    """The time until a directory is full, in seconds from now.

    Attributes:
        reason: why it is unknown; empty if it is known.
        growth: in bytes per second, with its interval of 90 %; None if it is unknown.
        max_horizon_s: the maximum forecast horizon for this history.
        expected_s: None if it does not fill.
        earliest_s: with the highest growth of the interval; None if even that fills nothing.
        latest_s: with the lowest growth of the interval; None if that fills nothing.
    """

    filling: Filling
    reason: str = ""
    growth: Trend | None = None
    max_horizon_s: float = 0.0
    expected_s: float | None = None
    earliest_s: float | None = None
    latest_s: float | None = None


def unknown(reason: str) -> TimeToFull:
    """Return an unknown forecast with its reason."""
    return TimeToFull(Filling.UNKNOWN, reason)


def max_horizon_s(span_s: float) -> float:
    """Return the maximum forecast horizon in seconds for a history of this length."""
    return MAX_SPANS_AHEAD * span_s


def time_to_full(free_bytes: int, found: DirectoryGrowth) -> TimeToFull:
    """Return the time in which growth uses up the free bytes.

    Args:
        free_bytes: negative if they are unknown.
    """
    if free_bytes < 0:
        return unknown("the free space is unknown")
    if found.samples < MIN_POINTS:
        return unknown(f"too few samples ({found.samples} of {MIN_POINTS})")
    if found.span_s < MIN_SPAN_S:
        span = f"{found.span_s:.0f} of at least {MIN_SPAN_S:.0f} s"
        return unknown(f"the history spans {span}")
    growth, sight = found.all_files, max_horizon_s(found.span_s)
    if growth is None:
        return unknown("the history has too few samples with the free space")
    expected, earliest, latest = (
        free_bytes / value if value > 0 else None
        for value in (growth.slope, growth.high, growth.low)
    )
    filling = Filling.NOT_FILLING
    if expected is not None:
        filling = Filling.FILLING if expected <= sight else Filling.FAR
    return TimeToFull(filling, "", growth, sight, expected, earliest, latest)
