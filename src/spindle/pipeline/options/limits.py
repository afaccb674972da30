"""Where a read starts and ends: the offset options of Spark's `kafka` source.

Each end has three options, and the first that is present counts: one timestamp for all partitions
(`startingTimestamp`), a timestamp per partition (`startingOffsetsByTimestamp`), or offsets
(`startingOffsets`: `earliest`, `latest` or an offset per partition, where -2 is earliest and -1
latest). A starting timestamp after the last record is an error unless the strategy is `latest`; an
ending timestamp after the last record means latest.

A batch starts at `earliest` by default, and `latest` makes no sense there. A stream starts at
`latest` by default, and has no end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from spindle.common.ids import TopicPartition
from spindle.pipeline.options.values import MAX_INT, MAX_LONG, choice, integer, json_object
from spindle.protocol.sentinels import EARLIEST, LATEST

STRATEGY_OPTION: Final = "startingOffsetsByTimestampStrategy"


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

    def of(self, _: TopicPartition) -> int:
        """Return EARLIEST or LATEST."""
        return self.position


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset per partition; LATEST and EARLIEST are possible."""

    offsets: Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> int:
        """Return an offset, EARLIEST or LATEST."""
        return self.offsets[partition]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of every partition that is not older than a time."""

    timestamp_ms: int

    def of(self, _: TopicPartition) -> int:
        """Return a time in ms."""
        return self.timestamp_ms


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record of each partition that is not older than the time of this partition."""

    timestamps_ms: Mapping[TopicPartition, int]

    def of(self, partition: TopicPartition) -> int:
        """Return a time in ms."""
        return self.timestamps_ms[partition]


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
        number = integer(text.strip())
        return AtTime(_time(time_option, text if number is None else number))
    if (text := options.get(times_option.lower())) is not None:
        times = _per_partition(times_option, text, '{"topicA": {"0": 1704067200000}}')
        return AtTimes({at: _time(f"{times_option}: {at}", given) for at, given in times})
    text = options.get(offsets_option.lower(), default).strip()
    if text.lower() in _POSITIONS:
        return AtPosition(_POSITIONS[text.lower()])
    offsets = _per_partition(offsets_option, text, _EXAMPLE)
    return AtOffsets({at: _offset(offsets_option, at, given) for at, given in offsets})


def start_is_explicit(options: Mapping[str, str]) -> bool:
    """Return True if an option says where the read starts; names are in any case."""
    names = {name.lower() for name in options}
    return any(option.lower() in names for option in End.START.value)


def check_complete(limit: OffsetLimit, end: End, partitions: Iterable[TopicPartition]) -> None:
    """Refuse a limit per partition that does not name exactly the partitions of a read.

    Raises:
        ValueError: it names others, or lacks some.
    """
    _, times_option, offsets_option = end.value
    match limit:
        case AtOffsets(given):
            option = offsets_option
        case AtTimes(given):
            option = times_option
        case _:
            return
    read = set(partitions)
    missing, extra = read - given.keys(), given.keys() - read
    if missing or extra:
        raise ValueError(
            f"option {option} must name exactly the partitions that are read; "
            f"missing: {_listed(missing)}; not read: {_listed(extra)}"
        )


def without_limits(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without those for the two ends of a read."""
    limits = {option.lower() for end in End for option in end.value}
    return {name: text for name, text in options.items() if name.lower() not in limits}


def no_match_strategy(options: Mapping[str, str]) -> NoMatch:
    """Return the value of `startingOffsetsByTimestampStrategy`.

    Raises:
        ValueError: it is neither `error` nor `latest`.
    """
    words = {strategy.value: strategy for strategy in NoMatch}
    return choice(options, STRATEGY_OPTION, words, NoMatch.ERROR)


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
        raise ValueError(
            "starting and ending limits must name the same partitions; "
            f"only in the start: {_listed(first.keys() - last.keys())}; "
            f"only in the end: {_listed(last.keys() - first.keys())}"
        )
    for partition, start in first.items():
        if 0 <= last[partition] < start:
            raise ValueError(f"{partition} starts at {start}, after its end {last[partition]}")


def _per_partition(option: str, text: str, example: str) -> list[tuple[TopicPartition, Any]]:
    """Return the value that JSON has for each partition; no partition is there twice."""
    values: dict[TopicPartition, Any] = {}
    for topic, partitions in json_object(option, text, example).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"option {option}: want JSON like {example}, got {text!r}")
        for written, value in partitions.items():
            number = integer(written)
            if number is None or not 0 <= number <= MAX_INT:
                raise ValueError(
                    f"option {option}: {topic} has partition {written!r}, want an integer from 0 "
                    f"to {MAX_INT}"
                )
            partition = TopicPartition(topic, number)
            if partition in values:
                raise ValueError(f"option {option}: {partition} is there twice in {text!r}")
            values[partition] = value
    return list(values.items())


def _offset(option: str, partition: TopicPartition, value: Any) -> int:
    if type(value) is int and EARLIEST <= value <= MAX_LONG:
        return value
    raise ValueError(
        f"option {option}: {partition} has {value!r}, want an offset from 0 to {MAX_LONG}, -1 for "
        "latest or -2 for earliest"
    )


def _time(name: str, value: Any) -> int:
    if type(value) is int and 0 <= value <= MAX_LONG:
        return value
    raise ValueError(
        f"option {name}: {value!r}, want milliseconds since 1970 as an integer from 0 to {MAX_LONG}"
    )


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


_EXAMPLE: Final = '{"topicA": {"0": 23, "1": -1}}'
_POSITIONS: Final = {"earliest": EARLIEST, "latest": LATEST}
_FORBIDDEN: Final = {
    End.START: (LATEST, "latest", "earliest"),
    End.STOP: (EARLIEST, "earliest", "latest"),
}
"""Per end: the position that a batch read refuses, its word, and the default."""
