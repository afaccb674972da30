"""Durations for people: `1d12h` as an option, `2:05:09` and `7.5 h` as text."""

import re
from typing import Final

import click

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_MAX_S: Final = 3650 * _DAY_S
_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_DURATION: Final = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")


class DurationMs(click.ParamType[int]):
    """A duration of at least one second, as an option that gives milliseconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(str(value))
        parts = match.groups() if match else ()
        duration_ms = sum(
            int(part) * unit_ms
            for part, unit_ms in zip(parts, _UNITS_MS.values(), strict=False)
            if part
        )
        if duration_ms < 1:
            self.fail(
                f"'{value}' is not a duration of at least 1s, such as 90s, 30m, 2h or 1d12h",
                param,
                ctx,
            )
        return duration_ms


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
