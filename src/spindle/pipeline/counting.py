"""Count records by their batches."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def count_records(spark: "SparkSession", options: Mapping[str, str]) -> int:
    """Return how many records a read with these options returns, without decoding them.

    The count is exact: control batches and, with `isolationLevel=read_committed`, aborted
    transactions do not count, and of a compacted batch only the records that are left. Batches are
    decoded only where offsets or times of the options cut them.

    Args:
        options: Options of `spindle-segments`; those that only shape rows must be absent.

    Raises:
        ValueError: an option is wrong.
    """
    frame = (
        spark.read.format("spindle-batches").options(**{**options, "columns": "rowCount"}).load()
    )
    (row,) = frame.groupBy().sum("rowCount").collect()
    return int(row[0] or 0)
