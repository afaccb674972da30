"""An export into a table of any format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from spindle.common.optional_dependencies import ICEBERG, require
from spindle.pipeline.export.continuation import coverage_of, remaining_ranges
from spindle.pipeline.export.dead_letters import dead_letters_of
from spindle.pipeline.export.exporter import nothing_new, plan_export, run_export
from spindle.pipeline.export.iceberg_catalog import iceberg_place
from spindle.pipeline.export.inference import NoRecordsYet
from spindle.pipeline.export.model import ExportResult
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.settings import ExportOptions, raw_source, source_and_settings
from spindle.pipeline.export.table import ExportTable
from spindle.pipeline.spark.parallelism import for_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TableFormat = Literal["delta", "iceberg", "parquet"]
TABLE_FORMATS: Final = ("delta", "iceberg", "parquet")


def open_table(
    table_format: TableFormat, table: str | Path, catalog: Mapping[str, str] | None = None
) -> ExportTable:
    """Return a snapshot of a table, which may not exist yet.

    Args:
        catalog: Properties of an Iceberg catalog; `table` is NAMESPACE.NAME then.

    Raises:
        ImportError: the extra `iceberg` is not installed.
        ValueError: an unknown format, or a path that cannot be used.
    """
    if table_format == "iceberg":
        require(ICEBERG, "iceberg")
        from spindle.pipeline.export.iceberg_table import IcebergExportTable

        return IcebergExportTable(iceberg_place(table, catalog))
    if catalog is not None:
        raise ValueError(f"a table of format {table_format} has no catalog")
    if table_format == "delta":
        from spindle.pipeline.export.delta_table import DeltaExportTable

        return DeltaExportTable(str(local_directory(table)))
    if table_format == "parquet":
        from spindle.pipeline.export.parquet_table import ParquetExportTable

        return ParquetExportTable(str(local_directory(table)))
    raise ValueError(f"format {table_format!r} is none of {', '.join(TABLE_FORMATS)}")


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Topics, a table, and how the first are written into the second.

    Args:
        options: Those of the data source.
        catalog: Properties of an Iceberg catalog; `table` is NAMESPACE.NAME then.
    """

    table_format: TableFormat
    table: str | Path
    options: Mapping[str, str]
    settings: ExportOptions = field(default_factory=ExportOptions)
    catalog: Mapping[str, str] | None = None

    def open_table(self) -> ExportTable:
        """Return the newest snapshot of the table, which may not exist yet."""
        return open_table(self.table_format, self.table, self.catalog)

    def open_dead_letters(self) -> ExportTable:
        """Return the newest snapshot of the table of dead letters, which may not exist."""
        place = str(self.table) if self.catalog else str(local_directory(self.table))
        return open_table(self.table_format, dead_letters_of(place), self.catalog)

    def run(self, spark: "SparkSession") -> ExportResult:
        """Export what the topics have now and the table lacks; see `export_delta`."""
        options = for_executors(spark, self.options)
        table = self.open_table()
        try:
            source, settings = source_and_settings(options, self.settings, table)
        except NoRecordsYet:
            return nothing_new(table)
        letters = self.open_dead_letters() if settings.has_dead_letters else None
        return run_export(spark, source, table, settings, self.settings.get("progress"), letters)

    def idle_result(self) -> ExportResult | None:
        """Return the result of a run that has nothing to do, None if there is something to do.

        It needs no Spark session, so a topic that does not exist is reported before Spark starts.

        Raises:
            ExportRefused, ExportConflict, DataLoss, ValueError: as `export_delta`.
            ApiError, ClientError: a topic does not exist, or brokers cannot be reached.
        """
        table = self.open_table()
        try:
            source, settings = source_and_settings(self.options, self.settings, table)
        except NoRecordsYet:
            return nothing_new(table)
        plan = plan_export(source, table, settings)
        return None if plan.remaining else nothing_new(table)

    def pending_bytes(self) -> int | None:
        """Return the bytes in the log that the table lacks, as estimated; None if it lacks none."""
        table = self.open_table()
        source = raw_source(self.options, self.settings)
        planned = source.ranges()
        remaining = remaining_ranges(source, planned, coverage_of(table, planned))
        return source.log_bytes(remaining) if remaining else None
