"""The Spark data source `spindle-segments`: reads straight from log directories, no broker.

    spark.read.format("spindle-segments").option("logDirs", "/disk*/kafka").option("subscribe", "t")

Options: see `spindle.pipeline.segments.options`. Rows are those of Spark's built-in `kafka` source.
A stream needs `kafka.bootstrap.servers`, because brokers say what is new; records still come from
the disks (see `spindle.pipeline.streaming.segments_reader`).

Spark pushes filters to a Python source only if `spark.sql.python.filterPushdown.enabled` is on, and
refuses a source that takes filters if it is off; so there are two classes, and `register` chooses.
Leave it off, as `get_spark` does, unless every DataFrame is used in one place of one query. Spark
4.1 to 4.3 keeps the plan that a pushed filter made and uses it for other queries of the same
DataFrame: a query without a filter after one with a filter, and a union of two filters, lose rows.
The options `minTimestamp`, `maxTimestamp`, `startingOffsets`, `assign` and others narrow a read
without that danger.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from spindle.pipeline.brokers.options import SOURCE_OPTIONS
from spindle.pipeline.options.limits import without_limits
from spindle.pipeline.options.unknown import warn_of_unknown_options
from spindle.pipeline.segments.options import (
    DIRECTORY_OPTIONS,
    SegmentOptions,
    parse_segment_options,
)
from spindle.pipeline.segments.plan import SegmentsPlan
from spindle.pipeline.segments.pushdown import narrow
from spindle.pipeline.segments.reader import read_ranges
from spindle.pipeline.sources.unsupported import BatchReadOnly
from spindle.pipeline.spark.parallelism import executor_cores, with_cores
from spindle.pipeline.streaming.options import stream_read_options
from spindle.pipeline.streaming.segments_reader import SegmentsStreamReader
from spindle.pipeline.user_errors import PlainErrors

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


class SegmentsReader(PlainErrors, DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: SegmentOptions) -> None:
        self._plan = SegmentsPlan(options)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; a single one without ranges if there is nothing to read."""
        return [*self._plan.partitions()]

    def read(self, partition: Any) -> Iterator[Any]:
        """Return the Arrow batches of a task."""
        return read_ranges(partition.ranges, self._plan.narrowed_settings())


class FilteringSegmentsReader(SegmentsReader):
    """A SegmentsReader that takes filters: they narrow partitions, offsets and timestamps."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note the filters and return all of them, so that Spark checks the rows as well."""
        self._plan.filters = narrow(self._plan.filters, filters, self._plan.settings.columns)
        return filters


class SegmentsDataSource(BatchReadOnly):
    """`format("spindle-segments")` for any session."""

    @classmethod
    def name(cls) -> str:
        return "spindle-segments"

    def schema(self) -> str:
        """Check all options; return the row of the `kafka` source, or the wanted columns."""
        warn_of_unknown_options(self.options, (*SOURCE_OPTIONS, *DIRECTORY_OPTIONS))
        options = _common_options(self.options)
        return options.decoding.spark_columns(options.columns)

    def reader(self, schema: StructType) -> SegmentsReader:
        return SegmentsReader(parse_segment_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return SegmentsStreamReader(self.options)


class FilteringSegmentsDataSource(SegmentsDataSource):
    """`format("spindle-segments")` for a session with filter pushdown."""

    def reader(self, schema: StructType) -> SegmentsReader:
        return FilteringSegmentsReader(parse_segment_options(self.options))


def _common_options(given: Mapping[str, str]) -> SegmentOptions:
    """Check options that may be those of a batch or of a stream; Spark does not say which."""
    try:
        return parse_segment_options(given)
    except ValueError:
        try:
            stream_read_options(given)
            return parse_segment_options(without_limits(given))
        except ValueError:
            pass
        raise


def register(spark: SparkSession) -> None:
    """Register `spindle-segments` in a session, with filter pushdown if the session has it on."""
    has_pushdown = str(spark.conf.get(PUSHDOWN_CONF, "false")).lower() == "true"
    source = FilteringSegmentsDataSource if has_pushdown else SegmentsDataSource
    spark.dataSource.register(with_cores(source, executor_cores(spark)))
