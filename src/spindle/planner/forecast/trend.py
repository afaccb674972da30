"""A robust trend: the slope of Theil and Sen with its confidence interval.

Steps (a replica that arrived, a deleted topic) and single wrong values barely change the median of
the slopes between all pairs of points. The interval is Sen's, by the variance of Kendall's tau. It
assumes independent errors, but errors of log sizes are correlated: a value above the trend is
mostly followed by another one above it. So the variance is raised by the autocorrelation of the
residuals, as Yue and Wang do for the test of Mann and Kendall.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Final

MIN_POINTS: Final = 6
"""Minimum number of points of a trend."""
MIN_SPAN_S: Final = 600.0
"""Minimum time span of a trend: within a shorter time, bursts of producers look like growth."""
_Z: Final = 1.645
"""Quantile of the normal distribution for an interval of 90 %."""
_MAX_CORRELATED: Final = 0.9

Point = tuple[float, float]
"""A time in seconds and a value."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A slope per second with its 90 % confidence interval."""

    slope: float
    low: float
    high: float


def span_of(points: Sequence[Point]) -> float:
    """Return the seconds between the first and the last point."""
    return points[-1][0] - points[0][0] if points else 0.0


def fit_trend(points: Sequence[Point]) -> Trend | None:
    """Return the trend of points in order of time; None with too few or too short a time span.

    Time and memory are quadratic in the number of points.
    """
    if len(points) < MIN_POINTS or span_of(points) < MIN_SPAN_S:
        return None
    slopes = sorted(
        (value - before) / (time - earlier)
        for number, (time, value) in enumerate(points)
        for earlier, before in points[:number]
        if time > earlier
    )
    slope = median(slopes)
    count = len(points)
    variance = count * (count - 1) * (2 * count + 5) / 18 * _inflation(points, slope)
    half = _Z * sqrt(variance) / 2
    low = max(0, round(len(slopes) / 2 - half) - 1)
    high = min(len(slopes) - 1, round(len(slopes) / 2 + half))
    return Trend(slope, slopes[low], slopes[high])


def _inflation(points: Sequence[Point], slope: float) -> float:
    """Return the factor by which correlated errors raise the variance."""
    begin_s = points[0][0]
    rests = [value - slope * (time - begin_s) for time, value in points]
    middle = median(rests)
    rests = [value - middle for value in rests]
    total = sum(value * value for value in rests)
    if total <= 0:
        return 1.0
    shared = sum(a * b for a, b in pairwise(rests)) / total
    correlation = min(max(shared, 0.0), _MAX_CORRELATED)
    return (1 + correlation) / (1 - correlation)
