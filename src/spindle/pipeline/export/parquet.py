"""`export_parquet`: append topics to a directory of Parquet files, every offset once."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from spindle.pipeline.export import manifest_log
from spindle.pipeline.export.following import Follow, run_or_follow
from spindle.pipeline.export.jobs import ExportJob
from spindle.pipeline.export.model import ExportResult
from spindle.pipeline.export.parquet_table import ParquetExportTable, live_paths
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.reading import frame_of_files
from spindle.pipeline.export.settings import ExportOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def export_parquet(
    spark: "SparkSession",
    path: str | Path,
    options: Mapping[str, str],
    *,
    follow: Follow = False,
    **settings: Unpack[ExportOptions],
) -> ExportResult:
    """Append the records of the selected topics that the Parquet table at `path` lacks.

    `spark.read.parquet(path)` and any other reader of directories sees committed rows only, file by
    file as they appear; `read_parquet` sees a version as a whole. Arguments and errors are those of
    `export_delta`; a file system without hard links fails with OSError at the first commit.
    """
    return run_or_follow(spark, ExportJob("parquet", path, options, settings), follow)


def read_parquet(
    spark: "SparkSession", path: str | Path, *, version: int | None = None
) -> "DataFrame":
    """Return the rows of a table of `export_parquet` as it is now, or as it was at a version.

    Raises:
        FileNotFoundError: there is no such table, or a vacuum has deleted files of the version.
        ValueError: a version that the table does not have.
    """
    directory = local_directory(path)
    newest = manifest_log.read_state(directory)
    if newest is None:
        raise FileNotFoundError(f"{directory} holds no table of export_parquet")
    state = newest if version is None else manifest_log.read_state(directory, version)
    if state is None:
        raise ValueError(f"version {version} of the table {directory}: want 0 to {newest.version}")
    base = str(directory) if state.partition_by else None
    ParquetExportTable(str(directory))
    return frame_of_files(spark, state.schema, live_paths(directory, state), base)
