"""The options of `spindle-segments`: names, forms and precedence of Spark's `kafka` source.

Topics: exactly one of `assign`, `subscribe` and `subscribePattern`. Start: `startingTimestamp`,
else `startingOffsetsByTimestamp`, else `startingOffsets`; the end has the same three options. As in
the `kafka` source are `startingOffsetsByTimestampStrategy`, `failOnDataLoss`, `includeHeaders`,
`minPartitions` and `maxRecordsPerPartition`.

Options of this source alone:
    logDirs         comma list of log directories or globs
    kafka.bootstrap.servers      optional: brokers to ask for current ends, topic ids and, without
                    logDirs, for their directories (see `live`); further kafka.* options secure
                    the connection
    columns         comma list of the columns to return
    minTimestamp, maxTimestamp   only rows with a time in these bounds, in ms, both inclusive
    isolationLevel  read_uncommitted (default) or read_committed
    end             where a partition ends: auto (the high watermark's checkpoint while a broker
                    uses the directory, else the log end), checkpoint, or logEnd
    topicIds        JSON map of topic to topic id, for directories with several ids of a topic
    taskBytes, parallelism       size of a task, or the cores to cut tasks for
    checkCrcs       verify checksums (default true)
    valueFormat and others       decode keys and values, see `schemas.options`
    corruptBatches  fail (default), skip or permissive: see `records.corruption`
    includeLineage  add the columns broker, directory, segment, position and crc of the batch of
                    each record (or name some of them in columns)
    replica         leader, a broker's id or a log directory: the replica to read. By default the
                    one with the highest end, and with brokers the leader's if it is here
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from spindle.client.wire.settings import ClientSettings
from spindle.common.ids import INTERNAL_TOPICS, METADATA_TOPIC, TopicPartition
from spindle.common.uuids import Uuid, parse_uuid
from spindle.pipeline.kafka_properties import broker_client, kafka_properties
from spindle.pipeline.records.batch_columns import BATCH_COLUMNS
from spindle.pipeline.records.columns import chosen_columns, select_columns
from spindle.pipeline.records.corruption import CorruptBatches, corrupt_batches
from spindle.pipeline.schemas.options import DECODING_OPTIONS, row_decoding
from spindle.pipeline.schemas.rows import RAW_ROWS, RowDecoding
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.pipeline.segments.replica_choice import ReplicaChoice, replica_choice

EARLIEST: Final = -2
LATEST: Final = -1
_NOT_BY_PATTERN: Final = INTERNAL_TOPICS | {METADATA_TOPIC}

EndRule = Literal["auto", "checkpoint", "logEnd"]
_END_RULES: Final[dict[str, EndRule]] = {
    "auto": "auto",
    "checkpoint": "checkpoint",
    "logend": "logEnd",
}
_ISOLATION_LEVELS: Final = {"read_uncommitted": False, "read_committed": True}
_OF_RECORDS: Final = (
    "includeHeaders",
    "includeLineage",
    "maxRecordsPerPartition",
    "corruptBatches",
)
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The partitions a reader wants. Exactly one of the fields is set.

    As in the `kafka` source, a pattern selects all topics in whose name it is found, without
    internal topics. The metadata log is no topic to a client, so a pattern does not select it.
    """

    assigned: Mapping[str, tuple[int, ...]] | None = None
    subscribed: tuple[str, ...] | None = None
    pattern: str | None = None

    def wants(self, partition: TopicPartition) -> bool:
        if self.assigned is not None:
            return partition.partition in self.assigned.get(partition.topic, ())
        if self.subscribed is not None:
            return partition.topic in self.subscribed
        assert self.pattern is not None
        if partition.topic in _NOT_BY_PATTERN:
            return False
        return re.search(self.pattern, partition.topic) is not None


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where a read starts or ends.

    `offsets` and `timestamps` are by partition (offset -2 is earliest, -1 latest; timestamps in
    ms). `timestamp_ms` holds for all partitions. Without any of them, `everywhere` (EARLIEST or
    LATEST) holds.
    """

    everywhere: int
    offsets: Mapping[TopicPartition, int] | None = None
    timestamps: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None

    @property
    def named_partitions(self) -> Mapping[TopicPartition, int] | None:
        return self.offsets if self.offsets is not None else self.timestamps

    def timestamp_of(self, partition: TopicPartition) -> int | None:
        if self.timestamp_ms is not None:
            return self.timestamp_ms
        return None if self.timestamps is None else self.timestamps[partition]

    def offset_of(self, partition: TopicPartition) -> int:
        """Return an offset, EARLIEST or LATEST; for bounds without a timestamp."""
        return self.everywhere if self.offsets is None else self.offsets[partition]


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """All options of a read from log directories, checked."""

    log_directories: str
    """As given; may be empty if brokers are named."""
    topics: TopicSelection
    start: OffsetBound = OffsetBound(EARLIEST)
    end: OffsetBound = OffsetBound(LATEST)
    start_is_explicit: bool = False
    timestamp_fallback_latest: bool = False
    columns: tuple[str, ...] = ()
    fail_on_data_loss: bool = True
    is_read_committed: bool = False
    end_rule: EndRule = "auto"
    row_bounds: PushedFilters = field(default_factory=PushedFilters)
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    parallelism: int | None = None
    task_bytes: int | None = None
    check_crcs: bool = True
    corrupt_batches: CorruptBatches = CorruptBatches.FAIL
    replica: ReplicaChoice | None = None
    decoding: RowDecoding = RAW_ROWS
    brokers: ClientSettings | None = None
    """The client that asks a running cluster; None if no brokers are named."""


def parse_batch_options(options: Mapping[str, str]) -> SegmentOptions:
    """Check the options of `spindle-batches`: those of records, with its own columns.

    Checksums are not checked by default, because that reads all bytes.

    Raises:
        ValueError: as `parse_segment_options`, or an option that has no meaning for batches.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in (*_OF_RECORDS, *DECODING_OPTIONS):
        if name.lower() in given:
            raise ValueError(f"option {name} is for records; spindle-batches returns batches")
    columns = chosen_columns(given.pop("columns", None), BATCH_COLUMNS, BATCH_COLUMNS)
    return replace(parse_segment_options({"checkcrcs": "false", **given}), columns=columns)


def parse_segment_options(options: Mapping[str, str]) -> SegmentOptions:
    """Check the options of `spindle-segments` and return them; names are case-insensitive.

    Raises:
        ValueError: an option is missing, unknown in value, or contradicts another one.
    """
    given = {name.lower(): value for name, value in options.items()}
    directories = given.get("logdirs") or given.get("path") or ""
    properties = kafka_properties(given)
    brokers = broker_client(properties) if "bootstrap.servers" in properties else None
    if not directories and brokers is None:
        raise ValueError(
            "option logDirs is missing: a comma list of log directories, or a glob "
            "(or kafka.bootstrap.servers, to ask a broker for them)"
        )
    start = _bound(given, "starting", EARLIEST)
    end = _bound(given, "ending", LATEST)
    _check_bounds(start, end)
    corrupt = corrupt_batches(given)
    return SegmentOptions(
        log_directories=directories,
        topics=parse_topic_selection(given),
        start=start,
        end=end,
        start_is_explicit=any(name.startswith("starting") for name in given),
        timestamp_fallback_latest=_choice(
            given, "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, False
        ),
        columns=select_columns(
            given.get("columns"),
            _choice(given, "includeHeaders", _BOOLEANS, False),
            include_lineage=_choice(given, "includeLineage", _BOOLEANS, False),
            include_corruption=corrupt is CorruptBatches.PERMISSIVE,
        ),
        fail_on_data_loss=_choice(given, "failOnDataLoss", _BOOLEANS, True),
        is_read_committed=_isolation(given),
        end_rule=_choice(given, "end", _END_RULES, "auto"),
        row_bounds=PushedFilters(
            min_timestamp_ms=_milliseconds(given, "minTimestamp"),
            max_timestamp_ms=_milliseconds(given, "maxTimestamp"),
        ),
        topic_ids=_topic_ids(given.get("topicids")),
        min_partitions=_positive(given, "minPartitions"),
        max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
        parallelism=_positive(given, "parallelism"),
        task_bytes=_positive(given, "taskBytes"),
        check_crcs=_choice(given, "checkCrcs", _BOOLEANS, True),
        corrupt_batches=corrupt,
        replica=_replica(given.get("replica"), brokers),
        decoding=row_decoding(given),
        brokers=brokers,
    )


def parse_topic_selection(given: Mapping[str, str]) -> TopicSelection:
    """Return the topic selection; `options` has names in lower case."""
    named = [name for name in ("assign", "subscribe", "subscribepattern") if name in given]
    if len(named) != 1:
        raise ValueError(
            "want exactly one of the options assign, subscribe and subscribePattern; "
            f"given: {', '.join(named) or 'none'}"
        )
    text = given[named[0]].strip()
    if named[0] == "assign":
        return TopicSelection(assigned=_parse_assign(text))
    if named[0] == "subscribe":
        topics = tuple(part.strip() for part in text.split(",") if part.strip())
        if not topics:
            raise ValueError("option subscribe names no topic")
        return TopicSelection(subscribed=topics)
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(
            f"option subscribePattern: {text!r} is not a regular expression: {error}"
        ) from error
    if not text:
        raise ValueError("option subscribePattern is empty")
    return TopicSelection(pattern=text)


def _parse_assign(text: str) -> dict[str, tuple[int, ...]]:
    content = _json_object("assign", text)
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in content.items():
        if not isinstance(partitions, list) or not all(_is_index(part) for part in partitions):
            raise ValueError(f'option assign: want {{"topic":[0,1]}}, found {text!r}')
        assigned[topic] = tuple(sorted(partitions))
    if not any(assigned.values()):
        raise ValueError("option assign names no partition")
    return assigned


def _bound(given: Mapping[str, str], edge: str, default: int) -> OffsetBound:
    one_timestamp = _milliseconds(given, f"{edge}Timestamp")
    if one_timestamp is not None:
        return OffsetBound(default, timestamp_ms=one_timestamp)
    by_timestamp = given.get(f"{edge}offsetsbytimestamp")
    if by_timestamp is not None:
        name = f"{edge}OffsetsByTimestamp"
        return OffsetBound(default, timestamps=_by_partition(name, by_timestamp, 0))
    text = given.get(f"{edge}offsets", "").strip()
    if text.lower() in ("", "earliest", "latest"):
        places = {"": default, "earliest": EARLIEST, "latest": LATEST}
        return OffsetBound(places[text.lower()])
    return OffsetBound(default, offsets=_by_partition(f"{edge}Offsets", text, EARLIEST))


def _check_bounds(start: OffsetBound, end: OffsetBound) -> None:
    if start.everywhere == LATEST or LATEST in (start.offsets or {}).values():
        raise ValueError("option startingOffsets: 'latest' (-1) cannot start a batch read")
    if end.everywhere == EARLIEST or EARLIEST in (end.offsets or {}).values():
        raise ValueError("option endingOffsets: 'earliest' (-2) cannot end a batch read")
    first_ms, last_ms = start.timestamp_ms, end.timestamp_ms
    if first_ms is not None and last_ms is not None and first_ms > last_ms:
        raise ValueError(f"startingTimestamp {first_ms} is after endingTimestamp {last_ms}")
    starts, ends = start.timestamps, end.timestamps
    if starts is not None and ends is not None and set(starts) != set(ends):
        raise ValueError(
            "startingOffsetsByTimestamp and endingOffsetsByTimestamp name different partitions"
        )
    if start.offsets is not None and end.offsets is not None:
        if set(start.offsets) != set(end.offsets):
            raise ValueError("startingOffsets and endingOffsets name different partitions")
        for partition, first in start.offsets.items():
            last = end.offsets[partition]
            if first >= 0 and 0 <= last < first:
                raise ValueError(f"{partition}: starting offset {first} is above ending {last}")


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, dict):
            raise ValueError(f'option {name}: want {{"topic":{{"0":23}}}}, found {text!r}')
        for partition, value in partitions.items():
            if not partition.isdecimal() or type(value) is not int or value < least:
                raise ValueError(f"option {name}: {topic}: wrong entry {partition!r}: {value!r}")
            found[TopicPartition(topic, int(partition))] = value
    return found


def _topic_ids(text: str | None) -> dict[str, Uuid]:
    if text is None:
        return {}
    try:
        return {topic: parse_uuid(value) for topic, value in _json_object("topicIds", text).items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"option topicIds: {error}") from error


def _replica(text: str | None, brokers: ClientSettings | None) -> ReplicaChoice | None:
    choice = None if text is None else replica_choice(text)
    if choice is not None and choice.is_leader and brokers is None:
        raise ValueError("option replica: 'leader' needs kafka.bootstrap.servers, to ask who leads")
    return choice


def _isolation(given: Mapping[str, str]) -> bool:
    name = "kafka.isolation.level" if "kafka.isolation.level" in given else "isolationLevel"
    is_committed: bool = _choice(given, name, _ISOLATION_LEVELS, False)
    return is_committed


def _choice(given: Mapping[str, str], name: str, choices: Mapping[str, Any], default: Any) -> Any:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in choices:
        raise ValueError(f"option {name}: {text!r} is none of {', '.join(choices)}")
    return choices[text.strip().lower()]


def _milliseconds(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise ValueError(f"option {name}: {text!r} is not a time in ms since 1970")
    return int(text)


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise ValueError(f"option {name}: {text!r} is not a number above 0")
    return int(text)


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"option {name}: {text!r} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"option {name}: want a JSON object, found {text!r}")
    return content


def _is_index(value: object) -> bool:
    return type(value) is int and value >= 0
