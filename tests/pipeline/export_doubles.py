"""A source of made-up rows, and exports of it into every table format, without Spark."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from log_directory_files import TOPIC_ID

from spindle.columnar.columns import KAFKA_COLUMNS, arrow_schema
from spindle.common.ids import TopicPartition
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.export import exporter
from spindle.pipeline.export.delta_table import DeltaExportTable
from spindle.pipeline.export.iceberg_catalog import iceberg_place
from spindle.pipeline.export.iceberg_table import IcebergExportTable
from spindle.pipeline.export.jobs import TableFormat
from spindle.pipeline.export.model import ExportResult, PlannedRange, WrittenFile
from spindle.pipeline.export.parquet_files import FileSettings, write_range
from spindle.pipeline.export.parquet_table import ParquetExportTable
from spindle.pipeline.export.partitioning import parse_partition_by
from spindle.pipeline.export.portions import PortionSize
from spindle.pipeline.export.row_format import row_format
from spindle.pipeline.export.settings import Begin, ExportSettings
from spindle.pipeline.export.spark_tasks import TaskProgress
from spindle.pipeline.export.table import ExportTable

SCHEMA = arrow_schema(KAFKA_COLUMNS)
FORMATS: tuple[TableFormat, ...] = ("delta", "iceberg", "parquet")
NO_SPARK: Any = None
"""The session of an export whose tasks run in this process."""
HOUR_MICROSECONDS = 3_600_000_000


@dataclass(frozen=True)
class Piece:
    partition: TopicPartition
    topic_id: bytes
    start_offset: int
    end_offset: int


@dataclass
class FakeSource:
    """A source with one row for each offset of its ranges; it fails at `fails_at`.

    A row's timestamp is its offset in ms, or in hours with `hourly`.
    """

    columns: tuple[str, ...] = KAFKA_COLUMNS
    start_is_explicit: bool = False
    ends_at_log_end: bool = False
    fail_on_data_loss: bool = True
    fails_at: int | None = None
    key: bytes | None = None
    planned: tuple[Piece, ...] = ()
    hourly: bool = False

    def ranges(self) -> Sequence[PlannedRange]:
        return self.planned

    def log_bytes(self, ranges: Sequence[PlannedRange]) -> int:
        return sum(offset_range.end_offset - offset_range.start_offset for offset_range in ranges)

    def tasks(self, ranges: Sequence[PlannedRange]) -> list[tuple[PlannedRange, ...]]:
        return [tuple(ranges)]

    def read(self, piece: PlannedRange) -> Iterator[Any]:
        if self.fails_at is not None and piece.start_offset <= self.fails_at < piece.end_offset:
            yield self._rows(piece, piece.start_offset, self.fails_at)
            raise DataLoss("gone")
        if piece.start_offset < piece.end_offset:
            yield self._rows(piece, piece.start_offset, piece.end_offset)

    def _rows(self, piece: PlannedRange, start: int, end: int) -> Any:
        step = HOUR_MICROSECONDS if self.hourly else 1000
        count = end - start
        columns = {
            "key": [self.key] * count,
            "topic": [piece.partition.topic] * count,
            "partition": [piece.partition.partition] * count,
            "offset": list(range(start, end)),
            "timestamp": [offset * step for offset in range(start, end)],
        }
        arrays = [
            pa.array(columns.get(field.name, [None] * count)).cast(field.type) for field in SCHEMA
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def piece(
    start: int, end: int, topic_id: bytes = TOPIC_ID, partition: int = 0, topic: str = "topic"
) -> Piece:
    return Piece(TopicPartition(topic, partition), topic_id, start, end)


def table_of(table_format: str, path: Path) -> ExportTable:
    if table_format == "delta":
        return DeltaExportTable(str(path))
    if table_format == "iceberg":
        return IcebergExportTable(iceberg_place(path, None))
    return ParquetExportTable(str(path))


def export(
    table: ExportTable,
    *pieces: Piece,
    offsets: int | None = None,
    partition_by: str | None = None,
    begin: Begin = "earliest",
    meanwhile: Callable[[], object] = lambda: None,
    **source: Any,
) -> ExportResult:
    """Run an export in this process. `meanwhile` is called after each portion's files are written.

    `offsets` is the size of a portion.
    """

    def write_files(
        spark: Any,
        rows: FakeSource,
        portion: Sequence[PlannedRange],
        settings: FileSettings,
        report: Callable[[TaskProgress], None],
    ) -> list[WrittenFile]:
        files = [file for planned in portion for file in write_range(rows, planned, settings, 0)]
        meanwhile()
        return files

    settings = ExportSettings(
        row_format(KAFKA_COLUMNS, "binary", "binary"),
        portion=PortionSize(offsets=offsets),
        partitioning=parse_partition_by(partition_by),
        begin=begin,
    )
    run = FakeSource(planned=pieces, **source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporter, "write_files", write_files)
        return exporter.run_export(NO_SPARK, run, table, settings)


def rows_of(table_format: str, path: Path) -> Any:
    """Return all rows of a table as another reader than Spark sees them."""
    if table_format == "delta":
        return DeltaTable(path.as_uri()).to_pyarrow_table()
    if table_format == "iceberg":
        table = iceberg_place(path, None).load()
        assert table is not None
        return table.scan().to_arrow()
    return ds.dataset(path, partitioning="hive").to_table()


def offsets_of(table_format: str, path: Path, partition: int = 0) -> list[int]:
    rows = rows_of(table_format, path).select(["partition", "offset"]).to_pylist()
    return sorted(row["offset"] for row in rows if row["partition"] == partition)


def data_files(path: Path) -> set[str]:
    """Return the names of all Parquet files below a table, complete or not, hidden or not."""
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet*")}
