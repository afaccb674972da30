"""`read_delta`: a DataFrame over a Delta table that `export_delta` wrote, without a Delta jar.

delta-rs reads the table's log and names the Parquet files of one version; Spark then reads these
files itself. So only file names pass through the driver, and Spark skips columns and row groups
as it does for any Parquet file.
"""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from spindle.pipeline.export.paths import delta_location, local_directory
from spindle.pipeline.export.reading import frame_of_files

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


def read_delta(
    spark: "SparkSession", path: str | Path, *, version: int | None = None
) -> "DataFrame":
    """Return the rows of a Delta table as it is now, or as it was at a version.

        flights = read_delta(spark, "/data/flights").where("partition = 0")

    The DataFrame keeps to that version: rows that later exports append need a new call. It fails
    when a vacuum has removed files of its version in the meantime.

    Args:
        spark: Any session; it needs no Delta jar.
        path: A directory of the local (or a shared) file system that the tasks can reach.
        version: 0 or more; None means the newest.

    Raises:
        FileNotFoundError: there is no Delta table at `path`.
        ValueError: a version that the table does not have, a path that is no local path, or a
            table of another writer with deletion vectors or renamed columns.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    directory = local_directory(path)
    location = delta_location(directory)
    if not DeltaTable.is_deltatable(location):
        raise FileNotFoundError(f"{directory} holds no Delta table")
    try:
        table = DeltaTable(location, version=version)
    except DeltaError as error:
        raise ValueError(f"version {version} of the table {directory}: {error}") from error
    _refuse_unknown_features(table, directory)
    base = str(directory) if table.metadata().partition_columns else None
    schema = pa.schema(table.schema().to_arrow())
    return frame_of_files(spark, schema, _live_files(table, directory), base)


def _refuse_unknown_features(table: "DeltaTable", directory: Path) -> None:
    """Refuse tables whose rows are more, or others, than those of their Parquet files."""
    protocol = table.protocol()
    if protocol.min_reader_version > 1:
        features = ", ".join(protocol.reader_features or ()) or "column mapping"
        raise ValueError(
            f"the table {directory} wants a reader of version {protocol.min_reader_version} "
            f"({features}); read_delta reads version 1, which export_delta writes"
        )


def _live_files(table: "DeltaTable", directory: Path) -> list[Path]:
    """Return the paths of the data files of the table's version."""
    names = pa.table(table.get_add_actions()).column("path").to_pylist()
    return [directory / unquote(name) for name in names]
