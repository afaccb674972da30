"""Forecasts as text and as documents: when directories are full, and how fast they grow."""

from collections.abc import Mapping
from typing import Any, Final

from spindle.common.text import size_text, span_text
from spindle.planner.forecast.time_to_full import Filling, TimeToFull

_DAY_S: Final = 86_400.0


def time_to_full_text(found: TimeToFull) -> str:
    """Return a forecast for people: `in 5.2 d (4.1 d to 8.0 d)`, `not within 10.0 h`."""
    if found.filling is Filling.UNKNOWN:
        return f"unknown: {found.reason}"
    earliest = span_text(found.earliest_s) if found.earliest_s is not None else "never"
    if found.expected_s is None:
        is_possible = found.earliest_s is not None
        return f"not filling (at the earliest in {earliest})" if is_possible else "not filling"
    if found.filling is Filling.FAR:
        text = f"not within {span_text(found.max_horizon_s)}"
        is_near = found.earliest_s is not None and found.earliest_s <= found.max_horizon_s
        return f"{text} (at the earliest in {earliest})" if is_near else text
    latest = span_text(found.latest_s) if found.latest_s is not None else "never"
    return f"in {span_text(found.expected_s)} ({earliest} to {latest})"


def short_time_to_full_text(found: TimeToFull) -> str:
    """Return a forecast without its interval and reason: `in 5.2 d`, `unknown`."""
    if found.filling is Filling.FILLING and found.expected_s is not None:
        return f"in {span_text(found.expected_s)}"
    if found.filling is Filling.FAR:
        return f"not within {span_text(found.max_horizon_s)}"
    return found.filling.value


def growth_text(found: TimeToFull) -> str:
    """Return the growth per day, with its sign; `-` if it is unknown."""
    return "-" if found.growth is None else growth_bytes_text(found.growth.slope)


def growth_bytes_text(bytes_per_second: float) -> str:
    """Return a growth per day, with its sign."""
    per_day = round(bytes_per_second * _DAY_S)
    return f"{'-' if per_day < 0 else '+'}{size_text(abs(per_day))}/d"


def forecast_document(found: TimeToFull) -> dict[str, Any]:
    """Return a forecast for programs. Rates are in bytes per second, times in seconds from now."""
    growth = found.growth
    interval: Mapping[str, float | None] = {
        "growthBytesPerSecond": growth.slope if growth else None,
        "lowestGrowthBytesPerSecond": growth.low if growth else None,
        "highestGrowthBytesPerSecond": growth.high if growth else None,
    }
    return {
        "filling": found.filling.value,
        "reason": found.reason or None,
        **interval,
        "sightSeconds": found.max_horizon_s,
        "fullInSeconds": found.expected_s,
        "fullInSecondsAtTheEarliest": found.earliest_s,
        "fullInSecondsAtTheLatest": found.latest_s,
    }


def forecast_of(document: Mapping[str, Any]) -> TimeToFull:
    """Return the forecast of a document, without its growth."""
    return TimeToFull(
        Filling(document["filling"]),
        document["reason"] or "",
        max_horizon_s=document["sightSeconds"],
        expected_s=document["fullInSeconds"],
        earliest_s=document["fullInSecondsAtTheEarliest"],
        latest_s=document["fullInSecondsAtTheLatest"],
    )
