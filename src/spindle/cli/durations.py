"""Durations on a command line: `1d12h`."""

import re
from typing import Final

import click

_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_DURATION: Final = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")


def option_text(duration_ms: int) -> str:
    """Return a duration as it is written on a command line, such as `1d12h`."""
    parts = []
    for unit, unit_ms in _UNITS_MS.items():
        count, duration_ms = divmod(duration_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


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
