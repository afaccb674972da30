"""The Parquet files of an export: a task writes the rows of one range into one file.

The file is durable when the task ends, and it appears under its name only when it is complete; the
commit of the run makes it part of the table. The name says what the file holds: partition, topic
id, offsets, and which run and task attempt wrote it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spindle.common.uuids import parse_uuid, uuid_text
from spindle.pipeline.export.model import (
    Coverage,
    ExportSource,
    PartitionIdentity,
    PlannedRange,
    WrittenFile,
)
from spindle.pipeline.export.row_format import RowFormat

_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_TOPIC_CHARACTERS: Final = 80
_NAME: Final = re.compile(
    r".*-(\d+)\.([A-Za-z0-9_-]{22})\.(\d{20})-(\d{20})\.[0-9a-f]+-\d+\.parquet"
)
_DELTA_ENCODED: Final = ("offset", "timestamp")
_STATISTICS: Final = ("partition", "offset", "timestamp")
_DICTIONARY: Final = ("topic", "partition", "timestampType")


class FileSettings(NamedTuple):
    """Where and how files are written. `run_id` is a hex string that is unique to the run."""

    directory: str
    run_id: str
    compression: str
    row_format: RowFormat


def file_name(piece: PlannedRange, run_id: str, attempt: int) -> str:
    """Return the name of the file of a range; at most 200 characters for any topic name."""
    return (
        f"{piece.partition.topic[:_TOPIC_CHARACTERS]}-{piece.partition.partition}."
        f"{uuid_text(piece.topic_id)}.{piece.start_offset:020d}-{piece.end_offset:020d}."
        f"{run_id}-{attempt}.parquet"
    )


def parse_file_name(name: str) -> tuple[PartitionIdentity, Coverage] | None:
    """Return the partition and offsets that a file name tells.

    Return None for a name of another form: Delta's compaction rewrites files under its own names.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    partition, topic_id, start, end = found.groups()
    key = PartitionIdentity(parse_uuid(topic_id), int(partition))
    return key, Coverage(int(start), int(end))


def write_range(
    source: ExportSource, piece: PlannedRange, settings: FileSettings, attempt: int
) -> WrittenFile | None:
    """Write the rows of a range into one file and return it, or None if the range has no rows.

    A range without rows holds only transaction markers, or all its records were compacted away.

    Raises:
        OSError: the file cannot be written; nothing is left of it.
        ValueError: a key or value that is to be stored as text is not UTF-8.
    """
    name = file_name(piece, settings.run_id, attempt)
    target = Path(settings.directory) / name
    temporary = target.with_name(f".{name}.tmp")
    try:
        rows, times = _write(source, piece, temporary, settings)
        if rows == 0:
            return None
        size_bytes = _sync(temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return WrittenFile(
        name,
        piece.partition,
        piece.topic_id,
        piece.start_offset,
        piece.end_offset,
        rows,
        size_bytes,
        *times.range_ms(),
    )


class _TimeRange:
    """The least and greatest timestamp of all batches that were added."""

    def __init__(self) -> None:
        self._least: int | None = None
        self._greatest: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        found = pc.min_max(batch.column("timestamp").cast(pa.int64()))
        least, greatest = found["min"].as_py(), found["max"].as_py()
        self._least = least if self._least is None else min(self._least, least)
        self._greatest = greatest if self._greatest is None else max(self._greatest, greatest)

    def range_ms(self) -> tuple[int | None, int | None]:
        if self._least is None or self._greatest is None:
            return None, None
        return self._least // 1000, self._greatest // 1000


def _write(
    source: ExportSource, piece: PlannedRange, path: Path, settings: FileSettings
) -> tuple[int, _TimeRange]:
    schema = settings.row_format.schema()
    times = _TimeRange()
    has_time = "timestamp" in source.columns
    rows = 0
    converted = (
        settings.row_format.converted(batch, piece.partition) for batch in source.read(piece)
    )
    with _parquet_writer(path, schema, settings.compression) as writer:
        for group in _row_groups(converted):
            for batch in group:
                rows += batch.num_rows
                if has_time:
                    times.add(batch)
            table = pa.Table.from_batches(group, schema)
            writer.write_table(table, row_group_size=max(1, table.num_rows))
    return rows, times


def _parquet_writer(path: Path, schema: pa.Schema, compression: str) -> Any:
    names = schema.names
    return pq.ParquetWriter(
        path,
        schema,
        compression=compression,
        use_dictionary=[name for name in _DICTIONARY if name in names],
        write_statistics=[name for name in _STATISTICS if name in names],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTA_ENCODED if name in names},
    )


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    group_bytes = 0
    for batch in batches:
        group.append(batch)
        group_bytes += batch.nbytes
        if group_bytes >= _ROW_GROUP_BYTES:
            yield group
            group, group_bytes = [], 0
    if group:
        yield group


def _sync(path: Path) -> int:
    """Flush a file to the disk and return its size."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size
