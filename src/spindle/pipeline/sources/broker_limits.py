"""Where a read starts and ends: the offset options of Spark's `kafka` source.

Each end has three options, and the first that is present counts: one timestamp for all partitions
(`startingTimestamp`), a timestamp per partition (`startingOffsetsByTimestamp`), or offsets
(`startingOffsets`: `earliest`, `latest` or an offset per partition, where -2 is earliest and -1
latest). A starting timestamp after the last record is an error unless the strategy is `latest`; an
ending timestamp after the last record means latest.

A batch starts at `earliest` by default, and `latest` makes no sense there. A stream starts at
`latest` by default, and has no end.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from spindle.client.offsets import EARLIEST, LATEST
from spindle.common.ids import TopicPartition

_MAX_LONG: Final = 2**63 - 1
_STRATEGY_OPTION: Final = "startingOffsetsByTimestampStrategy"


class End(Enum):
    """The two ends of a range, with their options in order of precedence."""

    START = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    STOP = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")


class NoMatch(Enum):
    """The two meanings of a starting timestamp after the last record."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtPosition:
    """The earliest or the latest offset of every partition."""

    position: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset per partition; LATEST and EARLIEST are possible."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of every partition that is not older than a time."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record of each partition that is not older than the time of this partition."""

    timestamps_ms: Mapping[TopicPartition, int]


OffsetLimit: TypeAlias = AtPosition | AtOffsets | AtTime | AtTimes


def offset_limit(options: Mapping[str, str], end: End) -> OffsetLimit:
    """Return the limit that the options give for one end of a batch read.

    Args:
        options: with keys in lower case.

    Raises:
        ValueError: an option that cannot be understood, or makes no sense for a batch.
    """
    forbidden, word, default = _FORBIDDEN[end]
    limit = _given_limit(options, end, default)
    offsets_option = end.value[-1]
    match limit:
        case AtPosition(position) if position == forbidden:
            raise ValueError(f"option {offsets_option}: {word!r} makes no sense for a batch read")
        case AtOffsets(offsets):
            for partition, offset in offsets.items():
                if offset == forbidden:
                    raise ValueError(
                        f"option {offsets_option}: {partition} has {offset} ({word}), "
                        "which makes no sense for a batch read"
                    )
    return limit


def stream_start(options: Mapping[str, str]) -> OffsetLimit:
    """Return where a stream starts whose checkpoint is new.

    Args:
        options: with keys in lower case.

    Raises:
        ValueError: an option that cannot be understood, or an option for the end of a read.
    """
    for option in End.STOP.value:
        if option.lower() in options:
            raise ValueError(f"option {option}: a stream has no end; remove it, or read a batch")
    return _given_limit(options, End.START, "latest")


def _given_limit(options: Mapping[str, str], end: End, default: str) -> OffsetLimit:
    time_option, times_option, offsets_option = end.value
    if (text := options.get(time_option.lower())) is not None:
        return AtTime(_long(time_option, text))
    if (text := options.get(times_option.lower())) is not None:
        example = '{"topicA": {"0": 1704067200000}}'
        return AtTimes(_longs_per_partition(times_option, text, example))
    text = options.get(offsets_option.lower(), default).strip()
    if text.lower() in _POSITIONS:
        return AtPosition(_POSITIONS[text.lower()])
    offsets = _longs_per_partition(offsets_option, text, '{"topicA": {"0": 23, "1": -1}}')
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise ValueError(
                f"option {offsets_option}: {partition} has offset {offset}, want at least 0, "
                "or -1 for latest, -2 for earliest"
            )
    return AtOffsets(offsets)


def without_limits(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without those for the two ends of a read."""
    limits = {option.lower() for end in End for option in end.value}
    return {name: text for name, text in options.items() if name.lower() not in limits}


def no_match_strategy(options: Mapping[str, str]) -> NoMatch:
    """Return the value of `startingOffsetsByTimestampStrategy`.

    Raises:
        ValueError: it is neither `error` nor `latest`.
    """
    text = options.get(_STRATEGY_OPTION.lower(), NoMatch.ERROR.value)
    try:
        return NoMatch(text.strip().lower())
    except ValueError:
        raise ValueError(f"option {_STRATEGY_OPTION}: {text!r}, want error or latest") from None


def check_order(start: OffsetLimit, stop: OffsetLimit) -> None:
    """Refuse limits that are wrong whatever the brokers hold.

    Raises:
        ValueError: limits per partition that name different partitions, or a start after its end.
    """
    match start, stop:
        case (AtOffsets(first), AtOffsets(last)) | (AtTimes(first), AtTimes(last)):
            _check_partitions(first, last)
        case AtTime(first_ms), AtTime(last_ms) if first_ms > last_ms:
            raise ValueError(f"startingTimestamp {first_ms} is after endingTimestamp {last_ms}")


def _check_partitions(
    first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int]
) -> None:
    if first.keys() != last.keys():
        only_first = ", ".join(map(str, sorted(first.keys() - last.keys()))) or "none"
        only_last = ", ".join(map(str, sorted(last.keys() - first.keys()))) or "none"
        raise ValueError(
            "starting and ending limits must name the same partitions; "
            f"only in the start: {only_first}; only in the end: {only_last}"
        )
    for partition, start in first.items():
        if 0 <= last[partition] < start:
            raise ValueError(f"{partition} starts at {start}, after its end {last[partition]}")


def _longs_per_partition(option: str, text: str, example: str) -> dict[TopicPartition, int]:
    complaint = f"option {option}: want JSON like {example}, got {text!r}"
    try:
        parsed = json.loads(text)
        return {
            TopicPartition(topic, _index(number)): _exact_integer(value)
            for topic, partitions in parsed.items()
            for number, value in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise ValueError(complaint) from None


def _index(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _exact_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_LONG:
        raise ValueError(value)
    return value


def _long(option: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError(
            f"option {option}: {text!r}, want milliseconds since 1970 as one integer"
        ) from None


_POSITIONS: Final = {"earliest": EARLIEST, "latest": LATEST}
_FORBIDDEN: Final = {
    End.START: (LATEST, "latest", "earliest"),
    End.STOP: (EARLIEST, "earliest", "latest"),
}
"""Per end: the position that a batch read refuses, its word, and the default."""
