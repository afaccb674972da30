"""Options of the `spindle` source: names, rules and defaults of Spark's built-in `kafka` source.

A job that reads with `format("kafka")` reads with `format("spindle")` unchanged. This source adds
`columns`, `minTimestamp` and `maxTimestamp` (only rows with a time in these bounds, in ms, both
inclusive), `batchBytes`, `fetchMaxBytes`, `isolationLevel`, `corruptBatches` (see
`spindle.pipeline.records.corruption`) and `parallelism` (the cores of the executors, which a
session's registration sets; see `spindle.pipeline.parallelism`). Options that only concern streams
(see `spindle.pipeline.streaming.options`) or consumer groups are accepted and have no effect, as in
a batch read of the `kafka` source.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from spindle.client.offsets import READ_COMMITTED
from spindle.client.wire.settings import ClientSettings
from spindle.common.ids import TopicPartition
from spindle.pipeline.kafka_properties import KAFKA_PREFIX, broker_client, kafka_properties
from spindle.pipeline.records.columns import select_columns
from spindle.pipeline.records.corruption import CorruptBatches, corrupt_batches
from spindle.pipeline.schemas.options import DECODING_OPTIONS, row_decoding
from spindle.pipeline.schemas.rows import RAW_ROWS, RowDecoding
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.pipeline.sources.broker_limits import (
    End,
    NoMatch,
    OffsetLimit,
    check_order,
    no_match_strategy,
    offset_limit,
)

_SELECTIONS: Final = ("assign", "subscribe", "subscribePattern")
_MIB: Final = 1024 * 1024
_MAX_BATCH_BYTES: Final = 1024 * _MIB
_MAX_INT: Final = 2**31 - 1
_MAX_LONG: Final = 2**63 - 1
_WITHOUT_EFFECT: Final = ("groupIdPrefix",)
_OF_STREAMS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minBytesPerTrigger",
    "maxTriggerDelay",
    "commitOffsetsTo",
)
_KNOWN: Final = (
    *_SELECTIONS,
    *End.START.value,
    *End.STOP.value,
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "columns",
    "minTimestamp",
    "maxTimestamp",
    "batchBytes",
    "fetchMaxBytes",
    "isolationLevel",
    "parallelism",
    "corruptBatches",
    *DECODING_OPTIONS,
    *_WITHOUT_EFFECT,
    *_OF_STREAMS,
)
_REFUSED_PROPERTIES: Final = {
    "auto.offset.reset": "use the options startingOffsets and failOnDataLoss",
    "key.deserializer": "keys are returned as bytes; decode them with DataFrame functions",
    "value.deserializer": "values are returned as bytes; decode them with DataFrame functions",
    "enable.auto.commit": "a batch read commits no offsets",
    "interceptor.classes": "interceptors could change the records",
}


@dataclass(frozen=True, slots=True)
class Assign:
    """A selection of single partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A selection of topics with all their partitions."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """A selection of all topics in whose name the pattern is found, without internal topics."""

    pattern: str


Selection: TypeAlias = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class BrokerReadOptions:
    """A validated read. Sizes in bytes, times in ms; None for options not given."""

    client: ClientSettings
    selection: Selection
    start: OffsetLimit
    stop: OffsetLimit
    no_match: NoMatch
    columns: tuple[str, ...]
    row_bounds: PushedFilters
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    parallelism: int | None
    batch_bytes: int
    fetch_max_bytes: int
    isolation_level: int
    stall_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int
    decoding: RowDecoding = RAW_ROWS
    corrupt_batches: CorruptBatches = CorruptBatches.FAIL

    @property
    def reads_committed(self) -> bool:
        """True if aborted transactions are left out and open ones are not read."""
        return self.isolation_level == READ_COMMITTED


def broker_read_options(given: Mapping[str, str]) -> BrokerReadOptions:
    """Check the options of a batch read and return them.

    Args:
        given: as Spark passes them; upper and lower case of keys do not matter.

    Raises:
        ValueError: an option is missing, contradicts another, or has no usable value.
    """
    options = {key.lower(): value for key, value in given.items()}
    start = offset_limit(options, End.START)
    stop = offset_limit(options, End.STOP)
    check_order(start, stop)
    return read_options(options, start, stop)


def read_options(
    options: Mapping[str, str], start: OffsetLimit, stop: OffsetLimit
) -> BrokerReadOptions:
    """Check what batches and streams have in common; return it with these limits.

    Args:
        options: with keys in lower case.

    Raises:
        ValueError: an option is missing, contradicts another, or has no usable value.
    """
    client = _client(options)
    corrupt = corrupt_batches(options)
    return BrokerReadOptions(
        client=client,
        selection=_selection(options),
        start=start,
        stop=stop,
        no_match=no_match_strategy(options),
        columns=select_columns(
            options.get("columns"),
            _flag(options, "includeHeaders", False),
            include_corruption=corrupt is CorruptBatches.PERMISSIVE,
        ),
        row_bounds=PushedFilters(
            min_timestamp_ms=optional_number(options, "minTimestamp", 0, _MAX_LONG),
            max_timestamp_ms=optional_number(options, "maxTimestamp", 0, _MAX_LONG),
        ),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        min_partitions=optional_number(options, "minPartitions", 1, _MAX_INT),
        max_records_per_partition=optional_number(options, "maxRecordsPerPartition", 1, _MAX_LONG),
        parallelism=optional_number(options, "parallelism", 1, _MAX_INT),
        batch_bytes=_number(options, "batchBytes", _MIB, 1, _MAX_BATCH_BYTES),
        fetch_max_bytes=_number(
            options, "fetchMaxBytes", client.fetch_max_bytes, 1024, _MAX_BATCH_BYTES
        ),
        isolation_level=client.isolation_level,
        stall_timeout_ms=_number(options, "kafkaConsumer.pollTimeoutMs", 120_000, 0, _MAX_INT),
        offset_retries=_number(options, "fetchOffset.numRetries", 3, 0, _MAX_INT),
        offset_retry_interval_ms=_number(options, "fetchOffset.retryIntervalMs", 1000, 0, _MAX_INT),
        decoding=row_decoding(options),
        corrupt_batches=corrupt,
    )


def misspelt_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the unknown options that resemble a known one, each with that one."""
    known = {name.lower(): name for name in _KNOWN}
    found = {}
    for key in given:
        name = key.lower()
        if name in known or name.startswith(KAFKA_PREFIX):
            continue
        for nearest in difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            found[key] = known[nearest]
    return found


def _client(options: Mapping[str, str]) -> ClientSettings:
    properties = kafka_properties(options)
    for name, advice in _REFUSED_PROPERTIES.items():
        if name in properties:
            raise ValueError(f"option kafka.{name} is not supported: {advice}")
    if "bootstrap.servers" not in properties:
        raise ValueError("option kafka.bootstrap.servers is missing, want host:port[,host:port...]")
    if (level := options.get("isolationlevel")) is not None:
        properties["isolation.level"] = level
    return broker_client(properties)


def _selection(options: Mapping[str, str]) -> Selection:
    present = [name for name in _SELECTIONS if name.lower() in options]
    if len(present) != 1:
        found = " and ".join(present) or "none"
        raise ValueError(f"want exactly one of the options {', '.join(_SELECTIONS)}; got {found}")
    name = present[0]
    text = options[name.lower()]
    match name:
        case "assign":
            return Assign(_assigned(text))
        case "subscribe":
            topics = tuple(dict.fromkeys(t.strip() for t in text.split(",") if t.strip()))
            if not topics:
                raise ValueError(f"option subscribe: no topic in {text!r}")
            return Subscribe(topics)
        case _:
            return SubscribePattern(_pattern(text.strip()))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    complaint = f'option assign: want JSON like {{"topicA": [0, 1]}}, got {text!r}'
    try:
        partitions = {
            TopicPartition(topic, number)
            for topic, numbers in json.loads(text).items()
            for number in numbers
        }
    except (ValueError, AttributeError, TypeError):
        raise ValueError(complaint) from None
    numbers_are_indexes = all(type(p.partition) is int and p.partition >= 0 for p in partitions)
    if not partitions or not numbers_are_indexes:
        raise ValueError(complaint)
    return tuple(sorted(partitions))


def _pattern(text: str) -> str:
    if not text:
        raise ValueError("option subscribePattern is empty, want a regular expression")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(
            f"option subscribePattern: {text!r} is no regular expression: {error}"
        ) from None
    return text


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"option {name}: {text!r}, want true or false")
    return text.strip().lower() == "true"


def optional_number(
    options: Mapping[str, str], name: str, at_least: int, at_most: int
) -> int | None:
    """Return the integer of an option, None if it is not given.

    Args:
        options: with keys in lower case.

    Raises:
        ValueError: it is no integer between the bounds, both inclusive.
    """
    if name.lower() not in options:
        return None
    return _number(options, name, at_least, at_least, at_most)


def _number(
    options: Mapping[str, str], name: str, default: int, at_least: int, at_most: int
) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        value = int(text.strip())
    except ValueError:
        raise ValueError(f"option {name}: {text!r}, want an integer") from None
    if not at_least <= value <= at_most:
        raise ValueError(f"option {name}: {value}, want {at_least} to {at_most}")
    return value
