"""A checksum of rows that does not depend on their order, to prove that a copy is complete.

It is the sum over all rows of a 64-bit hash of key, value and timestamp, modulo 2**64, together
with the number of rows. Spark SQL over a DataFrame and Python over Arrow batches compute the same
value, so input, topic, log directories and exported table can be compared with each other.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

CHECKSUM_COLUMNS: Final = ("key", "value", "timestamp")
_MODULUS: Final = 2**64


class RowChecksum(NamedTuple):
    """The number of rows, and the sum of their hashes modulo 2**64."""

    rows: int
    value: int

    def combined(self, other: "RowChecksum") -> "RowChecksum":
        """Return the checksum of both sets of rows together."""
        return RowChecksum(self.rows + other.rows, (self.value + other.value) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.value:016x} over {self.rows} rows"


NO_ROWS: Final = RowChecksum(0, 0)


def checksum_of_batches(batches: "Iterable[pa.RecordBatch]") -> RowChecksum:
    """Return the checksum of Arrow batches with the columns key, value and timestamp.

    Raises:
        KeyError: a column is missing.
    """
    from row_hashing import row_hashes

    total = NO_ROWS
    for batch in batches:
        if batch.num_rows:
            hashes = row_hashes([batch.column(name) for name in CHECKSUM_COLUMNS])
            # The sum of uint64 wraps around, which is the modulus.
            total = total.combined(RowChecksum(batch.num_rows, int(hashes.sum())))
    return total


def checksum_of_table(path: str | Path) -> RowChecksum:
    """Return the checksum of a Delta table, read by delta-rs without Spark."""
    from deltalake import DeltaTable

    dataset = DeltaTable(str(path)).to_pyarrow_dataset()
    return checksum_of_batches(dataset.to_batches(columns=list(CHECKSUM_COLUMNS)))


def checksum_of_frame(frame: "DataFrame") -> RowChecksum:
    """Return the checksum of a DataFrame with the columns key, value and timestamp.

    This runs one Spark job.
    """
    from pyspark.sql import functions as sql

    hashed = frame.select(sql.xxhash64(*CHECKSUM_COLUMNS).alias("hash"))
    # Sum the halves of the hashes, because a sum of whole hashes would overflow.
    row: Any = hashed.agg(
        sql.count("hash").alias("rows"),
        sql.sum(sql.col("hash").bitwiseAND(0xFFFFFFFF)).alias("low"),
        sql.sum(sql.shiftrightunsigned("hash", 32)).alias("high"),
    ).first()
    value = ((row["high"] or 0) << 32) + (row["low"] or 0)
    return RowChecksum(row["rows"], value % _MODULUS)
