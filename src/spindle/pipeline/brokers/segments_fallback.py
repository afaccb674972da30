"""Read a range through the brokers, where its log directory is not at hand."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from spindle.client.blocking.settings import ClientSettings
from spindle.pipeline.brokers.headers import read_header_range
from spindle.pipeline.brokers.options import BrokerTaskOptions
from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.brokers.reading import read_ranges
from spindle.pipeline.segments.failover import ReadSettings
from spindle.pipeline.segments.options import SegmentOptions
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.pipeline.segments.ranges import SegmentRange


@dataclass(frozen=True, slots=True)
class RowsThroughBrokers:
    """Returns the rows of a range as a read from its directory does, but without lineage."""

    client: ClientSettings
    is_read_committed: bool = False

    def __call__(self, piece: SegmentRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
        options = _options(self.client, self.is_read_committed, settings)
        return read_ranges(options, (_wanted(piece),))


@dataclass(frozen=True, slots=True)
class BatchesThroughBrokers:
    """Gives the batches of a range as a walk over its segments would, without their place."""

    client: ClientSettings
    is_read_committed: bool = False

    def __call__(self, piece: SegmentRange, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
        options = _options(self.client, self.is_read_committed, settings)
        return read_header_range(
            options, _wanted(piece), settings.columns, check_crcs=settings.check_crcs
        )


def rows_through_brokers(options: SegmentOptions) -> RowsThroughBrokers | None:
    """Return the fallback through the brokers of the options, None if they name none."""
    if options.brokers is None:
        return None
    return RowsThroughBrokers(options.brokers, options.is_read_committed)


def batches_through_brokers(options: SegmentOptions) -> BatchesThroughBrokers | None:
    """Return the fallback through the brokers of the options, None if they name none."""
    if options.brokers is None:
        return None
    return BatchesThroughBrokers(options.brokers, options.is_read_committed)


def _wanted(piece: SegmentRange) -> OffsetRange:
    return OffsetRange(piece.partition, piece.topic_id, piece.start_offset, piece.end_offset)


def _options(
    client: ClientSettings, is_read_committed: bool, settings: ReadSettings
) -> BrokerTaskOptions:
    return BrokerTaskOptions(
        client=client,
        columns=settings.columns,
        row_bounds=PushedFilters(
            min_timestamp_ms=settings.min_timestamp_ms,
            max_timestamp_ms=settings.max_timestamp_ms,
        ),
        fail_on_data_loss=settings.fail_on_data_loss,
        is_read_committed=is_read_committed,
        batch_bytes=settings.chunk_bytes,
        fetch_max_bytes=client.fetch_max_bytes,
        corrupt_batches=settings.corrupt_batches,
    )
