"""The Spark data source `spindle`: a batch read of topics through the brokers.

    spark.read.format("spindle").option("kafka.bootstrap.servers", "...").option("subscribe", "t")

Options and rows are those of Spark's built-in `kafka` source (see `broker_options`), without its
jars. It works on any Kafka cluster.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spindle.pipeline.records.columns import spark_ddl
from spindle.pipeline.sources.broker_options import BrokerReadOptions, broker_read_options
from spindle.pipeline.sources.broker_planning import plan_tasks
from spindle.pipeline.sources.broker_ranges import OffsetRange
from spindle.pipeline.sources.broker_reading import read_ranges


@dataclass
class RangesPartition(InputPartition):
    """What one task reads."""

    ranges: tuple[OffsetRange, ...]


class BrokerReader(DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: BrokerReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The tasks; a single one without ranges where there is nothing to read."""
        return [RangesPartition(ranges) for ranges in plan_tasks(self._options) or [()]]

    def read(self, partition: Any) -> Iterator[Any]:
        """The Arrow batches of a task."""
        return read_ranges(self._options, partition.ranges)


class BrokerDataSource(DataSource):
    """`format("spindle")`."""

    @classmethod
    def name(cls) -> str:
        return "spindle"

    def schema(self) -> str:
        """The row of Spark's `kafka` source, or the columns asked for. Checks all options."""
        return spark_ddl(broker_read_options(self.options).columns)

    def reader(self, schema: StructType) -> BrokerReader:
        return BrokerReader(broker_read_options(self.options))
