"""A DataFrame over the Parquet files of one version of a table.

Only file names pass through the driver: Spark reads the files itself, and skips columns and row
groups as it does for any Parquet file.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from deltalake import Schema

from spindle.pipeline.schemas.ddl import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GLOB_CHARACTERS: Final = re.compile(r"([\\{}\[\]*?])")


def frame_of_files(
    spark: "SparkSession", schema: pa.Schema, paths: Iterable[str | Path], base_path: str | None
) -> "DataFrame":
    """Return the rows of the files.

    Args:
        base_path: The directory of the table if columns have their values in names of directories.
    """
    from pyspark.sql.types import StructType

    # Delta stores a schema in the JSON form of Spark.
    columns = StructType.fromJson(json.loads(Schema.from_arrow(schema).to_json()))
    files = [_literal(str(path)) for path in paths]
    if not files:
        return spark.createDataFrame([], columns)
    reader = spark.read.schema(columns)
    if base_path is not None:
        reader = reader.option("basePath", base_path)
    return reader.parquet(*files).select(*map(quoted_name, columns.names))


def _literal(path: str) -> str:
    """Escape what Spark would take for a pattern of file names."""
    return _GLOB_CHARACTERS.sub(r"\\\1", path)
