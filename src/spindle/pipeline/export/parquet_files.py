"""The Parquet files of an export: a task writes the rows of a range into one file, or into one for
each value of the columns by which the table is partitioned.

The file is durable when the task ends, and it appears under its name only when it is complete; the
commit of the run makes it part of the table. The name says what the file holds: partition, topic
id, offsets, and which run and task attempt wrote it.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spindle.common.uuids import parse_uuid, uuid_text
from spindle.pipeline.export.changes import DELETED, IS_DELETE, OFFSET, STAGED, TIME, ChangeRule
from spindle.pipeline.export.dead_letter_rule import (
    DEAD_LETTER_ROWS,
    WITHOUT_STATISTICS,
    DeadLetterRule,
)
from spindle.pipeline.export.model import (
    Coverage,
    ExportSource,
    PartitionIdentity,
    PlannedRange,
    WrittenFile,
)
from spindle.pipeline.export.partitioning import UNPARTITIONED, Partitioning, Values, directory_of
from spindle.pipeline.export.paths import sync_directory
from spindle.pipeline.export.row_format import RowFormat
from spindle.pipeline.export.stored_values import time_faults
from spindle.pipeline.schemas.decoding import merged_errors
from spindle.pipeline.schemas.rows import bad_record

_MERGED_FILE_BYTES: Final = 256 * 1024 * 1024
_MERGED_ATTEMPT: Final = 10**9
"""The first number of an attempt in names of merged files; those of tasks are far below."""
_ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
_MAX_OPEN_FILES: Final = 256
_SET_ASIDE: Final = (
    "The option badRecords=dead_letters (--dead-letters) puts bad records into a table beside this "
    "one, badRecords=permissive keeps those that cannot be decoded, with the reason"
)
_TOPIC_CHARACTERS: Final = 80
_NAME: Final = re.compile(
    r".*-(\d+)\.([A-Za-z0-9_-]{22})\.(\d{20})-(\d{20})\.[0-9a-f]+-\d+\.parquet"
)
STATISTICS: Final = ("partition", "offset", "timestamp")
_DELTA_ENCODED: Final = ("offset", "timestamp")
_COMPACTED_NAME: Final = re.compile(
    r".*-(\d+)\.([A-Za-z0-9_-]{22})\.(\d{20})-(\d{20})\.[0-9a-f]+-compacted\.parquet"
)
_CODECS: Final = {"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}
_DICTIONARY: Final = ("topic", "partition", "timestampType")


class DeadLetterSettings(NamedTuple):
    """Where the dead letters of an export are written, and which records become dead letters."""

    directory: str
    rule: DeadLetterRule


class FileSettings(NamedTuple):
    """Where and how files are written. `run_id` is a hex string that is unique to the run.

    `limits_times`: a time that has statistics must be in the years 1 to 9999.
    `without_statistics` is as in TableLayout. With `changes` the records are changes of rows.
    """

    directory: str
    run_id: str
    compression: str
    row_format: RowFormat
    partitioning: Partitioning = UNPARTITIONED
    has_partition_columns: bool = False
    dead_letters: DeadLetterSettings | None = None
    limits_times: bool = False
    without_statistics: frozenset[str] = frozenset()
    changes: ChangeRule | None = None

    def staged(self) -> "FileSettings":
        """Return the settings of files of changes, which are merged into the table later."""
        if self.changes is None:
            return self
        added = (*self.row_format.added, *(pa.field(*column) for column in STAGED.items()))
        row_format = replace(self.row_format, added=added)
        return self._replace(row_format=row_format, partitioning=UNPARTITIONED, changes=None)

    def table_schema(self) -> pa.Schema:
        """Return the columns of the table."""
        return self.partitioning.schema(self.row_format.schema())

    def file_schema(self) -> pa.Schema:
        """Return the columns of the files; other columns may be in the names of the directories."""
        schema = self.table_schema()
        if self.has_partition_columns:
            return schema
        return pa.schema([field for field in schema if field.name not in self.partitioning.columns])

    @property
    def statistics(self) -> tuple[str, ...]:
        """The columns of records that have statistics in the files."""
        names = self.row_format.schema().names
        return tuple(
            name for name in STATISTICS if name in names and name not in self.without_statistics
        )

    @property
    def key_statistics(self) -> tuple[str, ...]:
        """The columns of the key, by whose statistics a merge finds the files of a key."""
        names = self.statistics
        keys = () if self.changes is None else self.changes.key_columns
        return (*names, *(name for name in keys if name not in names))

    def faults(self, rows: pa.RecordBatch) -> Any | None:
        """Return why rows with all columns of the table cannot be stored in it; None if all can."""
        faults = self.partitioning.faults(rows)
        if not self.limits_times:
            return faults
        return merged_errors(faults, time_faults(rows, self.statistics))


def file_name(piece: PlannedRange, run_id: str, attempt: int) -> str:
    """Return the name of the file of a range; at most 200 characters for any topic name."""
    return (
        f"{piece.partition.topic[:_TOPIC_CHARACTERS]}-{piece.partition.partition}."
        f"{uuid_text(piece.topic_id)}.{piece.start_offset:020d}-{piece.end_offset:020d}."
        f"{run_id}-{attempt}.parquet"
    )


def parse_file_name(name: str) -> tuple[PartitionIdentity, Coverage] | None:
    """Return the partition and offsets that a file name states.

    Return None for a name of another form: Delta's compaction rewrites files under its own names.
    """
    return _parsed(_NAME.fullmatch(name))


def _parsed(found: re.Match[str] | None) -> tuple[PartitionIdentity, Coverage] | None:
    if found is None:
        return None
    partition, topic_id, start, end = found.groups()
    key = PartitionIdentity(parse_uuid(topic_id), int(partition))
    return key, Coverage(int(start), int(end))


def compacted_name(name: str, offsets: Coverage, run_id: str) -> str:
    """Return the name of a file that replaces files of these offsets, after one of their names."""
    match = _NAME.fullmatch(name) or _COMPACTED_NAME.fullmatch(name)
    assert match is not None, name
    prefix = name[: match.start(3)]
    return f"{prefix}{offsets.start:020d}-{offsets.end:020d}.{run_id}-compacted.parquet"


def parse_compacted_name(name: str) -> tuple[PartitionIdentity, Coverage] | None:
    """Return the partition and the range of offsets of a file that a compaction wrote."""
    return _parsed(_COMPACTED_NAME.fullmatch(name))


def join_files(paths: Sequence[Path], target: Path, partitioned_by: tuple[str, ...]) -> int:
    """Write the rows of files into one, durably, and return their number.

    The columns are those of all files; a file that lacks some has nulls there. Row groups stay.

    Raises:
        OSError: a file cannot be read or written; nothing is left of the new one.
    """
    files = [pq.ParquetFile(path) for path in paths]
    schema = pa.unify_schemas([file.schema_arrow for file in files])
    codec = files[0].metadata.row_group(0).column(0).compression
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    statistics = _common_statistics(files)
    codec = _CODECS.get(codec, codec.lower())
    joined = _OpenFile(temporary, schema, codec, partitioned_by, statistics)
    try:
        for file in files:
            for group in range(file.num_row_groups):
                for batch in file.read_row_group(group).to_batches():
                    joined.add(_with_columns(batch, schema))
                    if joined.buffered_bytes >= _ROW_GROUP_BYTES:
                        joined.flush()
        joined.close()
        os.replace(temporary, target)
    except BaseException:
        joined.abandon()
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)
    return joined.rows


def _common_statistics(files: Sequence[pq.ParquetFile]) -> tuple[str, ...]:
    """Return those of STATISTICS that every file has."""
    kept = set(STATISTICS)
    for file in files:
        group = file.metadata.row_group(0)
        chunks = [group.column(number) for number in range(group.num_columns)]
        kept &= {chunk.path_in_schema for chunk in chunks if chunk.is_stats_set}
    return tuple(name for name in STATISTICS if name in kept)


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_range(
    source: ExportSource, piece: PlannedRange, settings: FileSettings, attempt: int
) -> list[WrittenFile]:
    """Write the rows of a range and return the files: one for each value of the partition columns.

    A range without rows has no file. It holds only transaction markers, or all its records were
    compacted away.

    Raises:
        OSError: a file cannot be written; nothing is left of them.
        BadRecord: a record cannot be decoded or stored, and bad ones are not set aside.
        ValueError: the partition columns of the range have too many values.
    """
    name = file_name(piece, settings.run_id, attempt)
    files = _RangeFiles(Path(settings.directory), name, settings.staged())
    letters = _letter_files(name, settings)
    try:
        for batch in source.read(piece):
            rows, records, undecoded, unstored = table_rows(batch, settings)
            if settings.dead_letters is None:
                _refuse_bad(batch, undecoded, unstored, piece)
                files.add(rows)
                continue
            reasons = merged_errors(undecoded, unstored)
            is_exported, dead = settings.dead_letters.rule.split(batch, reasons, piece)
            if is_exported is not None:
                rows = rows.filter(is_exported if records is None else is_exported.take(records))
            files.add(rows)
            if dead is not None:
                letters.add(dead)
        return files.finish(piece) + [
            replace(file, is_dead_letter=True) for file in letters.finish(piece)
        ]
    except BaseException:
        files.remove()
        letters.remove()
        raise


def table_rows(
    batch: pa.RecordBatch, settings: FileSettings
) -> tuple[pa.RecordBatch, Any | None, Any | None, Any | None]:
    """Return the rows of a batch of records as the files have them.

    Returns:
        The rows; the numbers of their records, None if every record is one row; and the reasons of
        records that cannot be decoded, and of those that cannot be stored.
    """
    if settings.changes is None:
        rows, undecoded = settings.row_format.split(batch)
        rows = settings.partitioning.extended(rows)
        return rows, None, undecoded, settings.faults(rows)
    opened = settings.changes.opened(batch)
    rows, undecoded = settings.row_format.split(opened.rows)
    unstored = settings.faults(settings.partitioning.extended(rows))
    undecoded = merged_errors(opened.reasons, undecoded)
    undecoded = merged_errors(undecoded, settings.changes.key_faults(rows))
    if settings.changes.order_by:
        rows = rows.append_column(pa.field(DELETED, pa.bool_()), opened.is_delete)
    added = {
        IS_DELETE: opened.is_delete,
        OFFSET: opened.rows.column("offset"),
        TIME: opened.rows.column("timestamp"),
    }
    for name, column in added.items():
        rows = rows.append_column(pa.field(name, STAGED[name]), column.cast(STAGED[name]))
    records = batch.num_rows
    return (
        rows,
        opened.indices,
        opened.by_record(undecoded, records),
        opened.by_record(unstored, records),
    )


def write_rows(
    batches: Iterable[pa.RecordBatch],
    piece: PlannedRange,
    settings: FileSettings,
    *,
    compacted: bool = False,
) -> list[WrittenFile]:
    """Write rows of a merge or a retry into files of about 256 MiB of rows, and return the files.

    Args:
        batches: Rows with all columns of the table.
        piece: A range of the portion. The files have its offsets in their names, so that they are
            known as those of a killed run once the table holds these offsets.
        compacted: The table holds these offsets already. Then the files are named as those of a
            compaction, which nobody takes for files of a killed run while their run is alive.

    Raises:
        OSError: a file cannot be written; the complete files before it stay.
    """
    written: list[WrittenFile] = []
    files, size_bytes, attempt = None, 0, _MERGED_ATTEMPT
    try:
        for batch in batches:
            if files is None:
                name = file_name(piece, settings.run_id, attempt)
                if compacted:
                    offsets = Coverage(piece.start_offset, piece.end_offset)
                    name = compacted_name(name, offsets, f"{settings.run_id}{attempt:x}")
                files = _RangeFiles(Path(settings.directory), name, settings)
            files.add(batch)
            size_bytes += batch.nbytes
            if size_bytes >= _MERGED_FILE_BYTES:
                written += files.finish(piece)
                files, size_bytes, attempt = None, 0, attempt + 1
        if files is not None:
            written += files.finish(piece)
    except BaseException:
        if files is not None:
            files.remove()
        raise
    return written


def _refuse_bad(
    batch: pa.RecordBatch, undecoded: Any | None, unstored: Any | None, piece: PlannedRange
) -> None:
    if undecoded is not None:
        raise bad_record(batch, undecoded, piece.partition, _SET_ASIDE)
    if unstored is not None:
        raise bad_record(batch, unstored, piece.partition, _SET_ASIDE, "cannot be stored")


def _letter_files(name: str, settings: FileSettings) -> "_RangeFiles":
    """Return the files of dead letters; their times may be those that have no statistics."""
    directory = (
        settings.directory if settings.dead_letters is None else settings.dead_letters.directory
    )
    letters = FileSettings(
        directory,
        settings.run_id,
        settings.compression,
        DEAD_LETTER_ROWS,
        without_statistics=WITHOUT_STATISTICS,
    )
    return _RangeFiles(Path(directory), name, letters)


class _RangeFiles:
    """The open files of one range, by the values of the partition columns."""

    def __init__(self, directory: Path, name: str, settings: FileSettings) -> None:
        self._directory = directory
        self._name = name
        self._settings = settings
        self._schema = settings.file_schema()
        self._files: dict[Values, _OpenFile] = {}
        self._buffered_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        for values, rows in self._settings.partitioning.split(batch):
            if rows.num_rows == 0:
                continue
            file = self._files.get(values) or self._open(values)
            self._buffered_bytes += file.add(rows)
            if self._buffered_bytes >= _ROW_GROUP_BYTES:
                largest = max(self._files.values(), key=lambda each: each.buffered_bytes)
                self._buffered_bytes -= largest.flush()

    def finish(self, piece: PlannedRange) -> list[WrittenFile]:
        """Make the files durable under their names and return them."""
        written = []
        for values, file in self._files.items():
            size_bytes = file.close()
            name = f"{directory_of(values)}{self._name}"
            os.replace(file.path, self._directory / name)
            written.append(
                WrittenFile(
                    name,
                    piece.partition,
                    piece.topic_id,
                    piece.start_offset,
                    piece.end_offset,
                    file.rows,
                    size_bytes,
                    *file.times.range_ms(),
                    partition_values=values,
                )
            )
        for directory in {(self._directory / file.name).parent for file in written}:
            sync_directory(directory)
        return written

    def remove(self) -> None:
        for values, file in self._files.items():
            file.abandon()
            file.path.unlink(missing_ok=True)
            (self._directory / directory_of(values) / self._name).unlink(missing_ok=True)

    def _open(self, values: Values) -> "_OpenFile":
        if len(self._files) >= _MAX_OPEN_FILES:
            columns = ", ".join(self._settings.partitioning.columns)
            raise ValueError(
                f"partitioned by {columns}: one range of offsets has rows of more than "
                f"{_MAX_OPEN_FILES} partitions; choose columns with fewer values"
            )
        directory = self._directory / directory_of(values)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f".{self._name}.tmp"
        settings = self._settings
        file = _OpenFile(
            path,
            self._schema,
            settings.compression,
            settings.partitioning.columns,
            settings.key_statistics,
        )
        self._files[values] = file
        return file


class _OpenFile:
    """A Parquet file that is being written, and the rows of its next row group."""

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        compression: str,
        partitioned_by: tuple[str, ...],
        statistics: tuple[str, ...],
    ) -> None:
        self.path = path
        self.rows = 0
        self.times = _TimeRange()
        self.buffered_bytes = 0
        self._schema = schema
        self._has_times = "timestamp" in statistics and _is_time(schema.field("timestamp").type)
        self._group: list[pa.RecordBatch] = []
        self._writer = _parquet_writer(path, schema, compression, partitioned_by, statistics)

    def add(self, batch: pa.RecordBatch) -> int:
        """Buffer rows and return their bytes."""
        self.rows += batch.num_rows
        if self._has_times:
            self.times.add(batch)
        self._group.append(batch.select(self._schema.names))
        self.buffered_bytes += batch.nbytes
        return int(batch.nbytes)

    def flush(self) -> int:
        """Write the buffered rows as one row group and return their bytes."""
        flushed_bytes = self.buffered_bytes
        if self._group:
            table = pa.Table.from_batches(self._group, self._schema)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._group, self.buffered_bytes = [], 0
        return flushed_bytes

    def close(self) -> int:
        """Flush the file to the disk and return its size in bytes."""
        self.flush()
        self._writer.close()
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()


class _TimeRange:
    """The least and greatest timestamp of all batches that were added; none if one is null."""

    def __init__(self) -> None:
        self._least: int | None = None
        self._greatest: int | None = None
        self._has_null = False

    def add(self, batch: pa.RecordBatch) -> None:
        self._has_null |= batch.column("timestamp").null_count > 0
        result = pc.min_max(batch.column("timestamp").cast(pa.int64()))
        least, greatest = result["min"].as_py(), result["max"].as_py()
        if least is None or greatest is None:  # rows of corrupt batches have no time
            return
        self._least = least if self._least is None else min(self._least, least)
        self._greatest = greatest if self._greatest is None else max(self._greatest, greatest)

    def range_ms(self) -> tuple[int | None, int | None]:
        if self._least is None or self._greatest is None or self._has_null:
            return None, None
        return self._least // 1000, self._greatest // 1000


def _is_time(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _parquet_writer(
    path: Path,
    schema: pa.Schema,
    compression: str,
    partitioned_by: tuple[str, ...],
    statistics: tuple[str, ...],
) -> Any:
    """Open a writer. Iceberg takes the values of partition columns from the statistics.

    A field of a value may have the name of a column of records, and any type.
    """
    names = schema.names
    long = [field.name for field in schema if field.type == pa.int64() or _is_time(field.type)]
    return pq.ParquetWriter(
        path,
        schema,
        compression=compression,
        use_dictionary=[name for name in (*_DICTIONARY, *partitioned_by) if name in names],
        write_statistics=[name for name in (*statistics, *partitioned_by) if name in names],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTA_ENCODED if name in long},
    )
