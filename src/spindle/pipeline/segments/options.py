"""The options of `spindle-segments`: names, forms and precedence of Spark's `kafka` source.

Topics: exactly one of `assign`, `subscribe` and `subscribePattern`. Start: `startingTimestamp`,
else `startingOffsetsByTimestamp`, else `startingOffsets`; the end has the same three options. As in
the `kafka` source are `startingOffsetsByTimestampStrategy`, `failOnDataLoss`, `includeHeaders`,
`minPartitions` and `maxRecordsPerPartition`.

Options that the `kafka` source does not have:
    logDirs         comma list of log directories or globs
    kafka.bootstrap.servers      optional: brokers to ask for current ends, topic ids and, without
                    logDirs, for their directories (see `broker_state`); further kafka.* options
                    secure the connection
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

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from spindle.client.blocking.settings import ClientSettings
from spindle.columnar.batch_columns import BATCH_COLUMNS
from spindle.columnar.columns import chosen_columns
from spindle.columnar.corruption import CorruptBatches
from spindle.common.uuids import Uuid, parse_uuid
from spindle.pipeline.options.client import source_client
from spindle.pipeline.options.common import common_options
from spindle.pipeline.options.limits import (
    End,
    NoMatch,
    OffsetLimit,
    check_order,
    offset_limit,
    start_is_explicit,
)
from spindle.pipeline.options.topics import Selection
from spindle.pipeline.options.values import (
    MAX_LONG,
    choice,
    flag,
    json_object,
    lower_names,
    optional_number,
)
from spindle.pipeline.schemas.options import DECODING_OPTIONS
from spindle.pipeline.schemas.rows import RAW_ROWS, RowDecoding
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.pipeline.segments.replica_choice import ReplicaChoice, replica_choice

EndRule = Literal["auto", "checkpoint", "logEnd"]
_END_RULES: Final[dict[str, EndRule]] = {
    "auto": "auto",
    "checkpoint": "checkpoint",
    "logEnd": "logEnd",
}
_OF_RECORDS: Final = (
    "includeHeaders",
    "includeLineage",
    "maxRecordsPerPartition",
    "corruptBatches",
)
DIRECTORY_OPTIONS: Final = (
    "logDirs",
    "path",
    "end",
    "topicIds",
    "checkCrcs",
    "includeLineage",
    "replica",
)
"""The options that a read from directories has beside those of one through brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """All options of a read from log directories, checked. None for options not given."""

    log_directories: str
    """As given; may be empty if brokers are named."""
    selection: Selection
    start: OffsetLimit
    stop: OffsetLimit
    start_is_explicit: bool
    no_match: NoMatch
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    is_read_committed: bool
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
    given = lower_names(options)
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
    given = lower_names(options)
    directories = given.get("logdirs") or given.get("path") or ""
    brokers = source_client(given)
    if not directories and brokers is None:
        raise ValueError(
            "option logDirs is missing: a comma list of log directories, or a glob "
            "(or kafka.bootstrap.servers, to ask a broker for them)"
        )
    start, stop = offset_limit(given, End.START), offset_limit(given, End.STOP)
    check_order(start, stop)
    return SegmentOptions(
        **common_options(given, start, stop, include_lineage=flag(given, "includeLineage", False)),
        log_directories=directories,
        start_is_explicit=start_is_explicit(given),
        end_rule=choice(given, "end", _END_RULES, "auto"),
        topic_ids=_topic_ids(given.get("topicids")),
        task_bytes=optional_number(given, "taskBytes", 1, MAX_LONG),
        check_crcs=flag(given, "checkCrcs", True),
        replica=_replica(given.get("replica"), brokers),
        brokers=brokers,
    )


def _topic_ids(text: str | None) -> dict[str, Uuid]:
    if text is None:
        return {}
    ids = json_object("topicIds", text, '{"topicA": "5Fe2PLNgTpmOqnjBbpOQ1A"}')
    try:
        return {topic: parse_uuid(value) for topic, value in ids.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"option topicIds: {error}") from error


def _replica(text: str | None, brokers: ClientSettings | None) -> ReplicaChoice | None:
    choice = None if text is None else replica_choice(text)
    if choice is not None and choice.is_leader and brokers is None:
        raise ValueError("option replica: 'leader' needs kafka.bootstrap.servers, to ask who leads")
    return choice
