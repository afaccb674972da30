"""`export_delta`: append topics to a Delta table, every offset once, with one commit per portion.

The next run continues where the table ends. Of two runs at the same time, one is refused. A run
that fails or is killed leaves the portions that it committed: files without a commit are not part
of the table.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spindle.pipeline.export.exporter import (
    ExportSettings,
    RecreatedTopic,
    run_export,
)
from spindle.pipeline.export.model import ExportResult, ProgressCallback
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.portions import DEFAULT_PORTION, PortionSize
from spindle.pipeline.export.row_format import Encoding, row_format
from spindle.pipeline.export.sources import export_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_delta(
    spark: "SparkSession",
    path: str | Path,
    options: Mapping[str, str],
    *,
    source: str = "spindle-segments",
    key: Encoding = "binary",
    value: Encoding = "binary",
    compression: str = "snappy",
    recreated_topic: RecreatedTopic = "refuse",
    portion: PortionSize = DEFAULT_PORTION,
    progress: ProgressCallback | None = None,
) -> ExportResult:
    """Append the records of the selected topics that the Delta table at `path` lacks.

        result = export_delta(
            spark,
            "/data/flights",
            {
                "kafka.bootstrap.servers": "localhost:9092",
                "subscribe": "flights",
                "columns": "key,value,partition,offset,timestamp",
            },
            source="spindle",
            value="string",
        )
        print(result.rows, "rows in version", result.version)

    Args:
        spark: The session whose tasks decode and write; the tasks must reach `path` and the source.
        path: A directory of the local (or a shared) file system. It is made if it is missing.
        options: Options of the data source. `columns` chooses the columns of the table and their
            order. Later runs continue where the table ends. A starting offset or time before the
            table's first offset also fills in the older offsets.
        source: `spindle-segments` or `spindle`.
        key: How the table stores keys: `binary`, or `string` for keys that are UTF-8.
        value: How the table stores values: `binary`, or `string` for values that are UTF-8 (JSON).
        compression: The codec of the Parquet files, one of COMPRESSIONS.
        recreated_topic: the reaction to rows in the table of a topic that was since deleted and
            created again: `refuse`, or `append` the rows of the new topic to the old ones.
        portion: How much one commit adds at most. A run that is killed loses one portion.
        progress: Called about five times a second on the calling thread, and once at the end.

    Raises:
        ExportRefused: the run would leave a gap, mix topics or change the columns.
        ExportConflict: another run committed first. Portions that were committed stay.
        DataLoss: offsets that had to come next are no longer in the log.
        ValueError: wrong options, a path that is no local path, or an unknown encoding. A key or
            value that is not UTF-8 but has to be text fails the Spark job with this error in it.
    """
    from spindle.pipeline.export.delta_table import DeltaExportTable

    directory = local_directory(path)
    rows_from = export_source(source, options)
    rows = row_format(rows_from.columns, key, value)
    settings = ExportSettings(rows, compression, recreated_topic, portion)
    return run_export(spark, rows_from, DeltaExportTable(str(directory)), settings, progress)
