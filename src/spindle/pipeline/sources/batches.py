"""The Spark data source `spindle-batches`: one row per record batch, from the batch headers.

    spark.read.format("spindle-batches").option("logDirs", "/disk*/kafka").option("subscribe", "t")

It decodes no records, so counts, volumes over time and lists of producers cost a small part of a
read of the records. Columns: see `spindle.columnar.batch_columns`. Options: those of
`spindle-segments`, without `includeHeaders` and `maxRecordsPerPartition`; `checkCrcs` is off by
default and fills the column `crcOk`. With `kafka.bootstrap.servers`, and without log directories on
this machine, the brokers send the batches, and the columns of their place are null.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spindle.columnar.batch_columns import BATCH_TYPES
from spindle.columnar.columns import spark_ddl
from spindle.pipeline.brokers.headers import read_header_range
from spindle.pipeline.brokers.options import SOURCE_OPTIONS, broker_read_options
from spindle.pipeline.brokers.planning import plan_tasks
from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.brokers.segments_fallback import batches_through_brokers
from spindle.pipeline.options.unknown import warn_of_unknown_options
from spindle.pipeline.segments.broker_state import NoLocalDirectories
from spindle.pipeline.segments.options import DIRECTORY_OPTIONS, parse_batch_options
from spindle.pipeline.segments.plan import SegmentsPlan
from spindle.pipeline.sources.broker import RangesPartition
from spindle.pipeline.sources.unsupported import BatchReadOnly
from spindle.pipeline.spark.parallelism import executor_cores, with_cores
from spindle.pipeline.user_errors import PlainErrors

NAME = "spindle-batches"
_OF_BATCHES = frozenset(("columns", "checkcrcs", "taskbytes", "minpartitions"))
_OF_DIRECTORIES = frozenset(("end", "topicids", "replica"))
"""Options, in lower case, that have no meaning for brokers."""


class BatchesReader(PlainErrors, DataSourceReader):
    """Plans on the driver, walks over headers in the tasks.

    It reads log directories if any are named or the brokers' ones are on this machine, else it has
    the brokers send the batches.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._plan: SegmentsPlan | BrokerBatchesPlan
        try:
            self._plan = SegmentsPlan(parse_batch_options(options), batches_through_brokers)
        except NoLocalDirectories:
            if not _OF_DIRECTORIES.isdisjoint(name.lower() for name in options):
                raise
            self._plan = BrokerBatchesPlan(options)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; a single one without ranges if there is nothing to read."""
        return [*self._plan.partitions()]

    def read(self, partition: Any) -> Iterator[Any]:
        """Return the Arrow batches of a task."""
        if isinstance(self._plan, BrokerBatchesPlan):
            return self._plan.read(partition.ranges)
        # Import the kernel in tasks only.
        from spindle.pipeline.segments.batch_reader import read_batch_ranges

        return read_batch_ranges(partition.ranges, self._plan.narrowed_settings())


class BrokerBatchesPlan:
    """The plan of a read of batches from brokers: a task for each partition."""

    def __init__(self, given: Mapping[str, str]) -> None:
        parsed = parse_batch_options(given)
        self._columns, self._check_crcs = parsed.columns, parsed.check_crcs
        shared = {name: text for name, text in given.items() if name.lower() not in _OF_BATCHES}
        # A batch must not be in two tasks, and offsets do not tell where batches begin.
        self._options = broker_read_options({**shared, "minPartitions": "1"})

    def partitions(self) -> list[RangesPartition]:
        """Return the tasks; a single one without ranges if there is nothing to read."""
        return [RangesPartition(ranges) for ranges in plan_tasks(self._options) or [()]]

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[Any]:
        """Return the batches of ranges."""
        for offset_range in ranges:
            yield from read_header_range(
                self._options, offset_range, self._columns, check_crcs=self._check_crcs
            )


class BatchesDataSource(BatchReadOnly):
    """`format("spindle-batches")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Check all options; return the wanted columns."""
        warn_of_unknown_options(self.options, (*SOURCE_OPTIONS, *DIRECTORY_OPTIONS))
        return spark_ddl(parse_batch_options(self.options).columns, BATCH_TYPES)

    def reader(self, schema: StructType) -> BatchesReader:
        return BatchesReader(self.options)


def register(spark: SparkSession) -> None:
    """Register `spindle-batches` in a session."""
    spark.dataSource.register(with_cores(BatchesDataSource, executor_cores(spark)))
