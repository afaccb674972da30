"""Forecasts from a history: when directories are full."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from spindle.cli.durations import span_text
from spindle.cli.sampling.history_folder import RecordedHistory
from spindle.common.sizes import size_text
from spindle.common.text import count_noun
from spindle.planner.growth import DirectoryGrowth, directory_growths
from spindle.planner.time_to_full import Filling, TimeToFull, time_to_full, unknown

_DAY_S: Final = 86_400.0

HISTORY: Final = click.option(
    "--history",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    is_eager=True,  # --horizon looks at it
    help="A folder of spindle history record: how fast directories and partitions grow.",
)

DirectoryKey = tuple[int, str]
"""A broker id and a path."""


class Forecasts:
    """The times in which directories fill, by the history of their cluster."""

    def __init__(self, history: RecordedHistory) -> None:
        self._growths = directory_growths(history.samples)

    def of(self, key: DirectoryKey, free_bytes: int, *, is_online: bool = True) -> TimeToFull:
        """Return the time until a directory is full.

        Args:
            free_bytes: negative if they are unknown.
        """
        if not is_online:
            return unknown("it is offline")
        growth = self._growths.get(key, DirectoryGrowth(0, 0.0, None, None, None))
        return time_to_full(free_bytes, growth)


def history_remarks(history: RecordedHistory) -> list[str]:
    """Return what a reader of forecasts should know about the history."""
    first, last = history.samples[0], history.samples[-1]
    span = span_text((last.time_ms - first.time_ms) / 1000)
    remarks = [f"forecasts are from {count_noun(len(history.samples), 'sample')} over {span}"]
    if history.bad_lines:
        lines = count_noun(history.bad_lines, "line")
        remarks.append(f"{lines} of the history are broken, and were passed over")
    if history.future_samples:
        samples = count_noun(history.future_samples, "sample")
        remarks.append(f"passed over {samples} of the history from the future")
    return remarks


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
