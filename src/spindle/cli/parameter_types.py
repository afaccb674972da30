"""Values of options and arguments: numbers, sizes, durations, partitions and settings."""

import re
from collections.abc import Iterable
from math import isfinite
from typing import Final, cast

import click

from spindle.common.ids import TopicPartition


class WholeRange(click.IntRange):
    """A whole number in a range; `N` in helps, unless an option gives another metavar."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"


class FiniteRange(click.FloatRange):
    """A number in a range, but neither `nan`, which is in no range, nor an infinity."""

    name = "number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(cast("float", value), param, ctx))
        if not isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


_SIZE: Final = re.compile(r"(\d+)\s*(?:([KMGT])i?)?B?", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Return the bytes that an option names; the callback of a click option.

    Raises:
        click.BadParameter: the text is not a size above 0.
    """
    return None if text is None else size_of(text, parameter)


def size_of(text: str, parameter: click.Parameter | None = None) -> int:
    """Return the bytes that a text such as `512MiB` or `1G` names.

    Args:
        parameter: the one that an error names.

    Raises:
        click.BadParameter: the text is not a size above 0.
    """
    match = _SIZE.fullmatch(text.strip())
    size_bytes = 0
    if match is not None:
        power: int = _POWERS[(match[2] or "").upper()]
        size_bytes = int(match[1]) * 1024**power
    if size_bytes < 1:
        raise click.BadParameter(
            f"{text!r} is not a size above 0, such as 512MiB or 1G", param=parameter
        )
    return size_bytes


def size_option_text(size_bytes: int) -> str:
    """Return a size as it is written on a command line, such as `512MiB`: exact, not rounded."""
    letter = next(
        (letter for letter in "TGMK" if size_bytes % 1024 ** _POWERS[letter] == 0 < size_bytes), ""
    )
    return f"{size_bytes // 1024 ** _POWERS[letter]}{letter}{'iB' if letter else ''}"


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


class _Partition(click.ParamType[TopicPartition]):
    """A partition as TOPIC-PARTITION."""

    name = "TOPIC-PARTITION"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicPartition:
        if isinstance(value, TopicPartition):
            return value
        topic, _, partition = str(value).rpartition("-")
        if not topic or not partition.isdecimal():
            self.fail(f"{value!r} is not TOPIC-PARTITION, such as orders-3", param, ctx)
        return TopicPartition(topic, int(partition))


PARTITION = _Partition()


def parse_key_values(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return settings from texts of the form NAME=VALUE.

    Args:
        option: the option or argument that an error names.

    Raises:
        click.UsageError: a text has no equals sign or no name.
    """
    settings = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} {text}: a setting has the form NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings
