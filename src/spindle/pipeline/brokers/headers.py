"""The rows of `spindle-batches` from brokers, which send whole batches; only headers are read."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fetcher import FetchedRun
from spindle.columnar.batch_columns import ROW_COUNT_COLUMN
from spindle.common.errors import CorruptRecords
from spindle.pipeline.brokers.options import BrokerTaskOptions
from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.brokers.reading import BrokerRangeReader

_UNKNOWN: Final = dict.fromkeys(("broker", "directory", "segment", "position"))


def read_header_range(
    options: BrokerTaskOptions, wanted: OffsetRange, columns: tuple[str, ...], *, check_crcs: bool
) -> Iterator[pa.RecordBatch]:
    """Return a row for each batch that holds offsets of a range.

    Raises:
        DataLoss, ApiError, ClientError, CorruptRecords: as `reading.read_ranges`.
    """
    with WireClient(options.client) as client:
        reader = _HeaderReader(client, options, wanted, options.row_bounds)
        reader.columns = columns
        reader.check_crcs = check_crcs
        yield from reader.rows()


class _HeaderReader(BrokerRangeReader):
    """Fetches one range and reads the batch headers."""

    columns: tuple[str, ...] = ()
    check_crcs = False

    def decode(self, run: FetchedRun) -> Iterator[pa.RecordBatch]:
        """Return a row for each batch."""
        from spindle.columnar.batch_rows import batch_rows
        from spindle.columnar.headers import HeaderWalk
        from spindle.columnar.row_counts import RowCounter

        view = memoryview(run.batches.records)
        start = max(run.start_offset, self.wanted.start_offset)
        walk = HeaderWalk(start, self.wanted.end_offset, check_crcs=self.check_crcs)
        partition = self.wanted.partition
        wanted = self.row_filter._replace(start_offset=start)
        aborted = run.batches.aborted if self.options.is_read_committed else ()
        counter = RowCounter(partition, wanted, aborted)
        place: dict[str, Any] = {
            **_UNKNOWN,
            "topic": partition.topic,
            "partition": partition.partition,
        }
        before = -1
        while before < walk.position < len(view) and not walk.is_finished:
            before = walk.position
            fields = walk.fields(view[before:], before, len(view))
            if walk.finding:
                raise CorruptRecords(
                    f"{partition}: batch behind offset {walk.next_offset - 1}: {walk.finding}"
                )
            if not fields.shape[1]:
                return
            counts = (
                counter.counts(fields, lambda at, size: view[at : at + size])
                if ROW_COUNT_COLUMN in self.columns
                else None
            )
            yield batch_rows(self.columns, fields, place, counts, has_computed_crcs=self.check_crcs)
