"""Options of the `spindle` source: names, rules and defaults of Spark's built-in `kafka` source.

A job that reads with `format("kafka")` reads with `format("spindle")` unchanged. This source adds
`columns`, `minTimestamp` and `maxTimestamp` (only rows with a time in these bounds, in ms, both
inclusive), `batchBytes`, `fetchMaxBytes`, `isolationLevel`, `corruptBatches` (see
`spindle.columnar.corruption`), `parallelism` (the cores of the executors, which a session's
registration sets; see `spindle.pipeline.spark.parallelism`), and options that decode keys and
values (see `spindle.pipeline.schemas.options`). Options that only concern streams (see
`spindle.pipeline.streaming.options`) or consumer groups are accepted and have no effect, as in a
batch read of the `kafka` source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spindle.client.blocking.settings import ClientSettings
from spindle.columnar.corruption import CorruptBatches
from spindle.pipeline.options.client import missing_servers, source_client
from spindle.pipeline.options.common import common_options
from spindle.pipeline.options.limits import (
    STRATEGY_OPTION,
    End,
    NoMatch,
    OffsetLimit,
    check_order,
    offset_limit,
)
from spindle.pipeline.options.topics import SELECTIONS, Selection
from spindle.pipeline.options.values import MAX_INT, lower_names, number
from spindle.pipeline.schemas.options import DECODING_OPTIONS
from spindle.pipeline.schemas.rows import RAW_ROWS, RowDecoding
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.protocol.sentinels import READ_COMMITTED, READ_UNCOMMITTED

SOURCE_OPTIONS: Final = (
    *SELECTIONS,
    *End.START.value,
    *End.STOP.value,
    STRATEGY_OPTION,
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
    "groupIdPrefix",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minBytesPerTrigger",
    "maxTriggerDelay",
    "commitOffsetsTo",
    "taskBytes",
)
"""The options of `spindle`, as a batch and as a stream, without the properties of the client."""
_MIB: Final = 1024 * 1024
_MAX_BATCH_BYTES: Final = 1024 * _MIB
STALL_TIMEOUT_MS: Final = 120_000
"""The time for which a task waits for a broker that sends nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTaskOptions:
    """The part of a read that its tasks need. Sizes in bytes, times in ms."""

    client: ClientSettings
    columns: tuple[str, ...]
    row_bounds: PushedFilters
    fail_on_data_loss: bool
    is_read_committed: bool
    batch_bytes: int
    fetch_max_bytes: int
    stall_timeout_ms: int = STALL_TIMEOUT_MS
    decoding: RowDecoding = RAW_ROWS
    corrupt_batches: CorruptBatches = CorruptBatches.FAIL

    @property
    def isolation_level(self) -> int:
        """The isolation level as the protocol has it."""
        return READ_COMMITTED if self.is_read_committed else READ_UNCOMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReadOptions(BrokerTaskOptions):
    """A validated read: what to plan, and what its tasks need. None for options not given."""

    selection: Selection
    start: OffsetLimit
    stop: OffsetLimit
    no_match: NoMatch
    min_partitions: int | None
    max_records_per_partition: int | None
    parallelism: int | None
    offset_retries: int
    offset_retry_interval_ms: int


def broker_read_options(given: Mapping[str, str]) -> BrokerReadOptions:
    """Check the options of a batch read and return them.

    Args:
        given: as Spark passes them; upper and lower case of keys do not matter.

    Raises:
        ValueError: an option is missing, contradicts another, or has no usable value.
    """
    options = lower_names(given)
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
    client = source_client(options)
    if client is None:
        raise missing_servers()
    return BrokerReadOptions(
        **common_options(options, start, stop),
        client=client,
        batch_bytes=number(options, "batchBytes", _MIB, 1, _MAX_BATCH_BYTES),
        fetch_max_bytes=number(
            options, "fetchMaxBytes", client.fetch_max_bytes, 1024, _MAX_BATCH_BYTES
        ),
        stall_timeout_ms=number(
            options, "kafkaConsumer.pollTimeoutMs", STALL_TIMEOUT_MS, 0, MAX_INT
        ),
        offset_retries=number(options, "fetchOffset.numRetries", 3, 0, MAX_INT),
        offset_retry_interval_ms=number(options, "fetchOffset.retryIntervalMs", 1000, 0, MAX_INT),
    )
