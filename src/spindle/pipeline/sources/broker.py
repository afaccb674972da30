"""The Spark data source `spindle`: reads topics through the brokers, as a batch or as a stream.

    spark.read.format("spindle").option("kafka.bootstrap.servers", "...").option("subscribe", "t")
    spark.readStream.format("spindle").option(...)

Options and rows are those of Spark's built-in `kafka` source (see `brokers.options` and
`spindle.pipeline.streaming.options`), without its jars. It works on any Kafka cluster. In a batch
read, Spark plans a Python source once for each DataFrame: call `load()` again after partitions were
added to a topic, or a topic was created again.

Filters are pushed down only if the session has `spark.sql.python.filterPushdown.enabled` on. Leave
it off, for the reason in `spindle.pipeline.sources.segments`; the options narrow a read as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from spindle.pipeline.brokers.options import (
    SOURCE_OPTIONS,
    BrokerReadOptions,
    broker_read_options,
)
from spindle.pipeline.brokers.planning import plan_tasks
from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.brokers.reading import read_ranges, settled
from spindle.pipeline.options.unknown import warn_of_unknown_options
from spindle.pipeline.segments.pushdown import narrow
from spindle.pipeline.sources.unsupported import BatchReadOnly
from spindle.pipeline.spark.parallelism import executor_cores, with_cores
from spindle.pipeline.streaming.options import stream_read_options
from spindle.pipeline.streaming.reader import BrokerStreamReader
from spindle.pipeline.user_errors import PlainErrors

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"


@dataclass
class RangesPartition(InputPartition):
    """The offset ranges that one task reads."""

    ranges: tuple[OffsetRange, ...]


class BrokerReader(PlainErrors, DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: BrokerReadOptions) -> None:
        self._options = options
        self._filters = options.row_bounds

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; a single one without ranges if there is nothing to read."""
        return [
            RangesPartition(ranges)
            for ranges in plan_tasks(self._options, self._filters, keep_empty_ends=True) or [()]
        ]

    def read(self, partition: Any) -> Iterator[Any]:
        """Return the Arrow batches of a task."""
        return read_ranges(self._options, settled(self._options, partition.ranges), self._filters)


class FilteringBrokerReader(BrokerReader):
    """A BrokerReader that takes filters: they narrow partitions, offsets and timestamps."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note the filters and return all of them, so that Spark checks the rows as well."""
        self._filters = narrow(self._filters, filters, self._options.columns)
        return filters


class BrokerDataSource(BatchReadOnly):
    """`format("spindle")` for any session."""

    @classmethod
    def name(cls) -> str:
        return "spindle"

    def schema(self) -> str:
        """Check all options; return the row of the `kafka` source, or the wanted columns."""
        warn_of_unknown_options(self.options, SOURCE_OPTIONS)
        options = _common_options(self.options)
        return options.decoding.spark_columns(options.columns)

    def reader(self, schema: StructType) -> BrokerReader:
        return BrokerReader(broker_read_options(self.options))

    def streamReader(self, schema: StructType) -> BrokerStreamReader:
        return BrokerStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from spindle.pipeline.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from spindle.pipeline.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)


class FilteringBrokerDataSource(BrokerDataSource):
    """`format("spindle")` for a session with filter pushdown."""

    def reader(self, schema: StructType) -> BrokerReader:
        return FilteringBrokerReader(broker_read_options(self.options))


def _common_options(given: Mapping[str, str]) -> BrokerReadOptions:
    """Check options that may be those of a batch or of a stream; Spark does not say which."""
    try:
        return broker_read_options(given)
    except ValueError:
        try:
            return stream_read_options(given).read
        except ValueError:
            pass
        raise


def register(spark: SparkSession) -> None:
    """Register `spindle` in a session, with filter pushdown if the session has it on."""
    has_pushdown = str(spark.conf.get(PUSHDOWN_CONF, "false")).lower() == "true"
    source = FilteringBrokerDataSource if has_pushdown else BrokerDataSource
    spark.dataSource.register(with_cores(source, executor_cores(spark)))
