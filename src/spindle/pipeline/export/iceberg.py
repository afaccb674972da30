"""`export_iceberg` and `read_iceberg`: Iceberg tables without an Iceberg jar, through pyiceberg."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa
from pyiceberg.exceptions import ValidationError

from spindle.common.optional_dependencies import ICEBERG, require
from spindle.pipeline.export.following import Follow, run_or_follow
from spindle.pipeline.export.iceberg_catalog import IcebergPlace, iceberg_place
from spindle.pipeline.export.iceberg_table import plain_schema
from spindle.pipeline.export.jobs import ExportJob
from spindle.pipeline.export.model import ExportResult
from spindle.pipeline.export.reading import frame_of_files
from spindle.pipeline.export.settings import ExportOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def export_iceberg(
    spark: "SparkSession",
    table: str | Path,
    options: Mapping[str, str],
    *,
    catalog: Mapping[str, str] | None = None,
    follow: Follow = False,
    **settings: Unpack[ExportOptions],
) -> ExportResult:
    """Append the records of the selected topics that an Iceberg table lacks.

        export_iceberg(spark, "/data/warehouse/flights", {"logDirs": "/k", "subscribe": "flights"})

    Other arguments and errors are those of `export_delta`; the version of a table is the id of its
    snapshot.

    Args:
        table: Without `catalog` a directory, whose parent is the warehouse. It has the catalog, an
            SQLite file `iceberg_catalog.db`, in which the table is `default.NAME`. With `catalog`:
            NAMESPACE.NAME; the table must lie in a local or shared file system.
        catalog: Properties of any catalog of pyiceberg.

    Raises:
        ImportError: the extra `iceberg` is not installed.
    """
    job = ExportJob("iceberg", table, options, settings, catalog)
    return run_or_follow(spark, job, follow)


def read_iceberg(
    spark: "SparkSession",
    table: str | Path,
    *,
    catalog: Mapping[str, str] | None = None,
    snapshot_id: int | None = None,
) -> "DataFrame":
    """Return the rows of an Iceberg table as it is now, or as it was at a snapshot.

    Args:
        table: A directory, or NAMESPACE.NAME with `catalog`; see `export_iceberg`.

    Raises:
        FileNotFoundError: there is no such table.
        ImportError: the extra `iceberg` is not installed.
        ValueError: a snapshot that the table does not have, or a table of another writer with
            delete files or renamed columns.
    """
    require(ICEBERG, "iceberg")

    schema, paths = files_of_snapshot(iceberg_place(table, catalog), snapshot_id)
    return frame_of_files(spark, schema, paths, None)


def files_of_snapshot(place: IcebergPlace, snapshot_id: int | None) -> tuple[pa.Schema, list[str]]:
    """Return the columns of the table, and the paths of the files of a snapshot.

    Raises:
        FileNotFoundError: there is no such table.
        ValueError: there is no such snapshot, or Spark cannot read its rows from the files alone.
    """
    table = place.load()
    if table is None:
        raise FileNotFoundError(f"{place.name}: no such Iceberg table")
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise ValueError(f"the table {place.name} has no snapshot {snapshot_id}")
    try:
        tasks = list(table.scan(snapshot_id=snapshot_id).plan_files())
    except ValidationError as error:
        raise ValueError(f"the table {place.name}: {error}") from error
    if any(task.delete_files for task in tasks):
        raise ValueError(
            f"the table {place.name} has delete files of another writer; read_iceberg reads tables "
            "as export_iceberg writes them"
        )
    return plain_schema(table), [task.file.file_path.removeprefix("file://") for task in tasks]
