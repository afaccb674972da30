"""`export_delta`: append topics to a Delta table, every offset once, in portions."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from spindle.pipeline.export.dead_letters import dead_letters_of
from spindle.pipeline.export.exporter import run_export
from spindle.pipeline.export.model import ExportResult
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.settings import ExportOptions, source_and_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_delta(
    spark: "SparkSession",
    path: str | Path,
    options: Mapping[str, str],
    **settings: Unpack[ExportOptions],
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

    The next run continues where the table ends. Of two runs at the same time, one is refused. A run
    that fails or is killed leaves the portions that it committed, and the next run removes its
    files that are not part of the table.

    Args:
        spark: The session whose tasks decode and write; the tasks must reach `path` and the source.
        path: A directory of the local (or a shared) file system. It is made if it is missing.
        options: Options of the data source. `columns` chooses the columns of the table and their
            order. Later runs continue where the table ends. A starting offset or time before the
            table's first offset also fills in the older offsets.
        settings: see ExportOptions.

    Raises:
        ExportRefused: the run would leave a gap, mix topics or change the columns.
        ExportConflict: another run committed first. Portions that were committed stay.
        DataLoss: offsets that had to come next are no longer in the log.
        ValueError: wrong options, a path that is no local path, or an unknown encoding. A key or
            value that is not UTF-8 but has to be text fails the Spark job with this error in it.
    """
    from spindle.pipeline.export.delta_table import DeltaExportTable

    directory = str(local_directory(path))
    table = DeltaExportTable(directory)
    source, chosen = source_and_settings(options, settings, table)
    letters = DeltaExportTable(dead_letters_of(directory)) if chosen.has_dead_letters else None
    return run_export(spark, source, table, chosen, settings.get("progress"), letters)
