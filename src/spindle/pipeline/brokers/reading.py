"""The work of a task: Fetch its ranges, decode them with the record kernel, give Arrow batches."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fetcher import FetchedRun, PartitionFetcher, TopicReplaced
from spindle.client.fetching import FetchLimits
from spindle.client.isolation import AbortedTransactions
from spindle.columnar.corruption import corruption_log
from spindle.columnar.decoder import BatchDecoder, RowFilter
from spindle.common.errors import ApiError, ErrorCode
from spindle.pipeline.brokers.options import BrokerTaskOptions
from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.protocol.sentinels import EARLIEST, LATEST


def read_ranges(
    options: BrokerTaskOptions,
    ranges: tuple[OffsetRange, ...],
    filters: PushedFilters | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of the ranges that can pass the filters, range after range, by offset.

    Args:
        filters: Bounds on the timestamps; None means those of the options.

    Raises:
        DataLoss: records are gone and the options say that this is an error.
        ApiError, ClientError: the brokers refuse, or cannot be reached.
        CorruptRecords: a batch fails its checksum or does not parse.
        BadRecord: a key or value cannot be decoded, and the options say that this is an error.
    """
    with WireClient(options.client) as client:
        for offset_range in ranges:
            rows = BrokerRangeReader(
                client, options, offset_range, filters or options.row_bounds
            ).rows()
            yield from options.decoding.decoded(rows, offset_range.partition)


def settled(options: BrokerTaskOptions, ranges: tuple[OffsetRange, ...]) -> tuple[OffsetRange, ...]:
    """Return the ranges with their open ends as they are now.

    Raises:
        ApiError, ClientError: the brokers refuse, or cannot be reached.
    """
    earliest = {
        offset_range.partition: EARLIEST for offset_range in ranges if offset_range.from_earliest
    }
    latest = {offset_range.partition: LATEST for offset_range in ranges if offset_range.to_latest}
    if not earliest and not latest:
        return ranges
    with WireClient(options.client) as client:
        first = client.list_offsets(earliest) if earliest else {}
        end = client.list_offsets(latest) if latest else {}
    return tuple(
        replace(
            offset_range,
            start_offset=max(offset_range.start_offset, first[offset_range.partition].offset)
            if offset_range.from_earliest
            else offset_range.start_offset,
            end_offset=end[offset_range.partition].offset
            if offset_range.to_latest
            else offset_range.end_offset,
        )
        for offset_range in ranges
    )


class BrokerRangeReader:
    """Fetches one range and decodes what arrives."""

    def __init__(
        self,
        client: WireClient,
        options: BrokerTaskOptions,
        wanted: OffsetRange,
        filters: PushedFilters,
    ) -> None:
        self._client = client
        self.options = options
        self.wanted = wanted
        self.row_filter = _row_filter(wanted, filters)
        self._fetcher = PartitionFetcher(
            client,
            wanted.partition,
            wanted.topic_id,
            isolation_level=options.isolation_level,
            limits=FetchLimits(
                options.fetch_max_bytes,
                options.client.fetch_min_bytes,
                options.client.fetch_max_wait_ms,
            ),
            stall_timeout_ms=options.stall_timeout_ms,
        )

    def rows(self) -> Iterator[pa.RecordBatch]:
        start: int | None = self.wanted.start_offset
        refused = -1
        while start is not None:
            reached = start
            try:
                for run in self._fetcher.runs(start, self.wanted.end_offset):
                    self._check_start(run)
                    yield from self.decode(run)
                    reached = run.next_offset
                return
            except ApiError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                refused_before, refused = refused, reached
                start = self._after_loss(reached)
                if start == refused_before:
                    # The leader reported this offset as available and refused it a second time.
                    raise
            except TopicReplaced as error:
                self._lost(reached, self.wanted.end_offset, str(error))
                return

    def decode(self, run: FetchedRun) -> Iterator[pa.RecordBatch]:
        """Return the rows of whole batches."""
        aborted = None
        if self.options.is_read_committed:
            aborted = AbortedTransactions(run.batches.aborted)
        decoder = BatchDecoder(
            self.wanted.partition,
            self.options.columns,
            self.row_filter._replace(start_offset=max(run.start_offset, self.wanted.start_offset)),
            aborted=aborted,
            chunk_bytes=self.options.batch_bytes,
            corruption=corruption_log(
                self.options.corrupt_batches, self.wanted.partition, self.options.columns
            ),
        )
        return decoder.decode(run.batches.records)

    def _check_start(self, run: FetchedRun) -> None:
        """Report data loss if the broker read on at a log start beyond the position."""
        first_left = run.batches.log_start_offset
        if first_left > run.start_offset:
            end = min(first_left, self.wanted.end_offset)
            self._lost(run.start_offset, end, f"the log now starts at offset {first_left}")

    def _after_loss(self, reached: int) -> int | None:
        """Return the offset to continue at after OFFSET_OUT_OF_RANGE, None if nothing is left."""
        partition, end = self.wanted.partition, self.wanted.end_offset
        first_left = self._client.list_offsets({partition: EARLIEST})[partition].offset
        log_end = self._client.list_offsets({partition: LATEST})[partition].offset
        reason = f"the log now holds offsets {first_left} to {log_end - 1}"
        if reached >= log_end or first_left >= end:
            self._lost(reached, end, reason)
            return None
        if first_left > reached:
            self._lost(reached, first_left, reason)
        return max(first_left, reached)

    def _lost(self, first: int, end: int, reason: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLoss(
                f"offsets {first} to {end - 1} of {self.wanted.partition} cannot be read: "
                f"{reason}. They were removed by retention, deleted, or lost with their topic. Set "
                "the option failOnDataLoss=false to read what is left"
            )


def _row_filter(wanted: OffsetRange, filters: PushedFilters) -> RowFilter:
    everything = RowFilter()
    least, greatest = filters.min_timestamp_ms, filters.max_timestamp_ms
    return RowFilter(
        wanted.start_offset,
        wanted.end_offset,
        everything.min_timestamp_ms if least is None else least,
        everything.max_timestamp_ms if greatest is None else greatest,
    )
