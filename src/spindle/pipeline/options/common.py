"""The options of every read of records, through brokers or from log directories."""

from collections.abc import Mapping
from typing import TypedDict

from spindle.columnar.columns import select_columns
from spindle.columnar.corruption import OPTION, CorruptBatches
from spindle.pipeline.options.client import is_read_committed
from spindle.pipeline.options.limits import NoMatch, OffsetLimit, no_match_strategy
from spindle.pipeline.options.topics import Selection, topic_selection
from spindle.pipeline.options.values import MAX_INT, MAX_LONG, choice, flag, optional_number
from spindle.pipeline.schemas.options import row_decoding
from spindle.pipeline.schemas.rows import RowDecoding
from spindle.pipeline.segments.pushdown import PushedFilters


class CommonOptions(TypedDict):
    """The common part of `BrokerReadOptions` and `SegmentOptions`."""

    selection: Selection
    start: OffsetLimit
    stop: OffsetLimit
    no_match: NoMatch
    columns: tuple[str, ...]
    row_bounds: PushedFilters
    fail_on_data_loss: bool
    is_read_committed: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    parallelism: int | None
    decoding: RowDecoding
    corrupt_batches: CorruptBatches


def common_options(
    options: Mapping[str, str],
    start: OffsetLimit,
    stop: OffsetLimit,
    *,
    include_lineage: bool | None = None,
) -> CommonOptions:
    """Check what all reads have in common; return it with these limits.

    Args:
        options: with names in lower case.
        include_lineage: as in `select_columns`.

    Raises:
        ValueError: an option is missing, contradicts another, or has no usable value.
    """
    corrupt = _corrupt_batches(options)
    listed, decoding = row_decoding(options).choosing(options.get("columns"))
    return CommonOptions(
        selection=topic_selection(options),
        start=start,
        stop=stop,
        no_match=no_match_strategy(options),
        columns=select_columns(
            listed,
            flag(options, "includeHeaders", False),
            include_lineage=include_lineage,
            include_corruption=corrupt is CorruptBatches.PERMISSIVE,
        ),
        row_bounds=PushedFilters(
            min_timestamp_ms=optional_number(options, "minTimestamp", 0, MAX_LONG),
            max_timestamp_ms=optional_number(options, "maxTimestamp", 0, MAX_LONG),
        ),
        fail_on_data_loss=flag(options, "failOnDataLoss", True),
        is_read_committed=is_read_committed(options),
        min_partitions=optional_number(options, "minPartitions", 1, MAX_INT),
        max_records_per_partition=optional_number(options, "maxRecordsPerPartition", 1, MAX_LONG),
        parallelism=optional_number(options, "parallelism", 1, MAX_INT),
        decoding=decoding,
        corrupt_batches=corrupt,
    )


def _corrupt_batches(options: Mapping[str, str]) -> CorruptBatches:
    """Return the value of the option `corruptBatches`, by default FAIL.

    Raises:
        ValueError: an unknown value.
    """
    words = {way.value: way for way in CorruptBatches}
    return choice(options, OPTION, words, CorruptBatches.FAIL)
