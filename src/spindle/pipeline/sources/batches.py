"""The Spark data source `spindle-batches`: one row per record batch, from the batch headers.

    spark.read.format("spindle-batches").option("logDirs", "/disk*/kafka").option("subscribe", "t")

It decodes no records, so counts, volumes over time and lists of producers cost a small part of a
read of the records. Columns: see `spindle.pipeline.records.batch_columns`. Options: those of
`spindle-segments`, without `includeHeaders` and `maxRecordsPerPartition`; `checkCrcs` is off by
default and fills the column `crcOk`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spindle.pipeline.records.batch_columns import BATCH_TYPES
from spindle.pipeline.records.columns import spark_ddl
from spindle.pipeline.segments.options import parse_batch_options
from spindle.pipeline.sources.not_yet import BatchReadOnly
from spindle.pipeline.sources.segments import SegmentsPlan

NAME = "spindle-batches"


class BatchesReader(DataSourceReader):
    """Plans on the driver, walks over headers in the tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._plan = SegmentsPlan(parse_batch_options(options), lambda _: None)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; a single one without ranges if there is nothing to read."""
        return [*self._plan.partitions()]

    def read(self, partition: Any) -> Iterator[Any]:
        """Return the Arrow batches of a task."""
        # Import the kernel in tasks only.
        from spindle.pipeline.segments.batch_reader import read_batch_ranges

        return read_batch_ranges(partition.ranges, self._plan.narrowed_settings())


class BatchesDataSource(BatchReadOnly):
    """`format("spindle-batches")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Check all options; return the wanted columns."""
        return spark_ddl(parse_batch_options(self.options).columns, BATCH_TYPES)

    def reader(self, schema: StructType) -> BatchesReader:
        return BatchesReader(self.options)


def register(spark: SparkSession) -> None:
    """Register `spindle-batches` in a session."""
    spark.dataSource.register(BatchesDataSource)
