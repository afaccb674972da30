"""An export into a table of any format, which is run once or follows the topics."""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from spindle.pipeline.export.continuation import key_of, remaining_ranges
from spindle.pipeline.export.dead_letters import dead_letters_of
from spindle.pipeline.export.exporter import nothing_new, plan_export, run_export
from spindle.pipeline.export.iceberg_catalog import iceberg_place
from spindle.pipeline.export.model import ExportResult
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.settings import ExportOptions, raw_source, source_and_settings
from spindle.pipeline.export.table import ExportTable
from spindle.pipeline.extra import ICEBERG, require
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

    def run(self, spark: "SparkSession") -> ExportResult:
        """Export what the topics have now and the table lacks; see `export_delta`."""
        options = for_executors(spark, self.options)
        table = open_table(self.table_format, self.table, self.catalog)
        source, settings = source_and_settings(options, self.settings, table)
        letters = None
        if settings.has_dead_letters:
            place = str(self.table) if self.catalog else str(local_directory(self.table))
            letters = open_table(self.table_format, dead_letters_of(place), self.catalog)
        return run_export(spark, source, table, settings, self.settings.get("progress"), letters)

    def idle_result(self) -> ExportResult | None:
        """Return the result of a run that has nothing to do, None if there is something to do.

        It needs no Spark session, so a topic that does not exist is reported before Spark starts.

        Raises:
            ExportRefused, ExportConflict, DataLoss, ValueError: as `export_delta`.
            ApiError, ClientError: a topic does not exist, or brokers cannot be reached.
        """
        table = open_table(self.table_format, self.table, self.catalog)
        source, settings = source_and_settings(self.options, self.settings, table)
        plan = plan_export(source, table, settings)
        return None if plan.remaining else nothing_new(table)

    def pending_bytes(self) -> int | None:
        """Return the bytes in the log that the table lacks, as estimated; None if it lacks none."""
        table = open_table(self.table_format, self.table, self.catalog)
        source = raw_source(self.options, self.settings)
        planned = source.ranges()
        held = {key_of(piece): table.coverage(key_of(piece)) for piece in planned}
        covered = {key: each for key, each in held.items() if each is not None}
        remaining = remaining_ranges(source, planned, covered)
        return source.log_bytes(remaining) if remaining else None


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """When a continuous export commits: at `target_bytes` of new log, or after `max_delay_ms`.

    Raises:
        ValueError: a limit below 1.
    """

    target_bytes: int = 128 * 1024 * 1024
    max_delay_ms: int = 60_000
    poll_ms: int = 1000

    def __post_init__(self) -> None:
        for name in ("target_bytes", "max_delay_ms", "poll_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: want 1 or more")


def follow_export(
    spark: "SparkSession",
    job: ExportJob,
    settings: FollowSettings | None = None,
    stopped: threading.Event | None = None,
) -> Iterator[ExportResult]:
    """Export what is there, then what arrives; yield the result of every run that added rows.

        for result in follow_export(spark, ExportJob("delta", "/data/flights", options)):
            print(result.rows)

    Each run is an export as any other: it may be killed at any point, and the next one continues.

    Args:
        stopped: Ends the iteration when it is set. The current run is finished first.
    """
    chosen, ended = settings or FollowSettings(), stopped or threading.Event()
    while not ended.is_set():
        result = job.run(spark)
        # A topic that is created while the export follows is exported from its first record.
        job = replace(job, settings={**job.settings, "begin": "earliest"})
        if not result.is_empty:
            yield result
        _wait(job, chosen, ended)


def _wait(job: ExportJob, settings: FollowSettings, ended: threading.Event) -> None:
    """Wait until there is enough to export, or something waited for long enough."""
    first_seen: float | None = None
    while not ended.wait(settings.poll_ms / 1000):
        pending_bytes = job.pending_bytes()
        if pending_bytes is None:
            continue
        now = time.monotonic()
        first_seen = now if first_seen is None else first_seen
        if pending_bytes >= settings.target_bytes:
            return
        if (now - first_seen) * 1000 >= settings.max_delay_ms:
            return
