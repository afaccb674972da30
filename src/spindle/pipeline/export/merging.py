"""Merge the changes of a portion into a table that has one row for each key.

The tasks have written the changes into files that are not part of the table. The driver reads the
keys of these changes and finds the last change of each key. Then it reads the keys of those files
of the table that may have one of them, writes the files again without the rows that are replaced or
deleted, and adds the new rows. One commit puts the new files in the place of the old ones, together
with the offsets of the portion. So memory holds the keys of one portion, and rows batch by batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.pipeline.export.changes import DELETED, IS_DELETE, OFFSET, TIME, ChangeRule
from spindle.pipeline.export.model import ExportRefused, PlannedRange, WrittenFile
from spindle.pipeline.export.parquet_files import FileSettings, write_rows
from spindle.pipeline.export.stored_values import NULL_NAME
from spindle.pipeline.export.table import ExportTable

_KEYS_ROWS: Final = 1 << 20
"""The rows whose keys are compared at once; each time costs a pass over the changes."""
_CHANGE: Final = "__spindle_change"
_ROW: Final = "__spindle_row"
_PARTITION: Final = "__spindle_partition"
_FILE: Final = "__spindle_file"


class Merge(NamedTuple):
    """The files that replace those with the names `replaced`, and how many rows are new or gone."""

    files: list[WrittenFile]
    replaced: frozenset[str]
    written: int
    deleted: int


def merge_changes(
    table: ExportTable,
    staged: Sequence[WrittenFile],
    portion: Sequence[PlannedRange],
    settings: FileSettings,
) -> Merge:
    """Write the files of the table that have the changes of a portion.

    Args:
        table: The snapshot into which the portion is committed.
        staged: The files of changes, as `write_range` has written them.
        settings: Those of the files of the table, with the rule of the changes.

    Raises:
        ExportRefused: another writer has left rows that cannot be merged.
        OSError: a file cannot be read or written.
    """
    rule = settings.changes
    assert rule is not None
    directory = Path(settings.directory)
    changes = last_changes(directory, staged, rule)
    schema = _schema_of(table, settings)
    live = _LiveFiles(table, schema, rule)
    matches = live.matches(changes)
    stale = {change for match in matches for change in match.stale}
    # Rows of the table that are newer than their changes stay.
    kept = changes.filter(_none_of(changes.column(_CHANGE), stale))
    written = kept if rule.order_by else kept.filter(pc.invert(kept.column(IS_DELETE)))

    def rows() -> Iterator[Any]:
        for match in matches:
            if match.rows:
                yield from live.rows_without(match)
        yield from _changed_rows(directory, staged, written, settings, schema)

    files = write_rows(rows(), portion[0], settings)
    replaced = frozenset(match.name for match in matches if match.rows)
    new_rows = len(kept) - (deletes := int(pc.sum(kept.column(IS_DELETE)).as_py() or 0))
    return Merge(files, replaced, new_rows, deletes)


def last_changes(directory: Path, staged: Sequence[WrittenFile], rule: ChangeRule) -> Any:
    """Return the last change of each key: its columns, and the file and row in which it is.

    In a partition the greatest offset is the last one; of changes in several partitions it is the
    one with the greatest timestamp. With `order_by` the greatest values of these columns are last,
    and then the greatest timestamp.
    """
    names = list(dict.fromkeys((*rule.key_columns, *rule.order_by, IS_DELETE, OFFSET, TIME)))
    parts = []
    # Those of several topics, or of an earlier topic of the same name, have offsets of their own.
    partitions = sorted({_partition_of(file) for file in staged})
    for number, file in enumerate(staged):
        columns = pq.read_table(directory / file.name, columns=names)
        count = len(columns)
        place = partitions.index(_partition_of(file))
        for name, value in ((_FILE, number), (_PARTITION, place)):
            columns = columns.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), count))
        parts.append(columns.append_column(_ROW, pa.array(range(count), pa.int64())))
    if not parts:
        return pa.table({_CHANGE: pa.array([], pa.int64()), IS_DELETE: pa.array([], pa.bool_())})
    changes = pa.concat_tables(parts)
    keys = list(rule.key_columns)
    if rule.order_by:
        order = [*rule.order_by, TIME, _PARTITION, OFFSET]
    else:
        changes = _last(changes, [OFFSET], [*keys, _PARTITION])
        order = [TIME, _PARTITION]
    changes = _last(changes, order, keys)
    return changes.append_column(_CHANGE, pa.array(range(len(changes)), pa.int64()))


def _partition_of(file: WrittenFile) -> tuple[TopicPartition, Uuid]:
    return file.partition, file.topic_id


def _last(rows: Any, order: Sequence[str], keys: Sequence[str]) -> Any:
    """Return the greatest row of each key."""
    rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in order]))
    numbered = rows.select(keys).append_column(_CHANGE, pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(keys, use_threads=False).aggregate([(_CHANGE, "max")])
    return rows.take(last.column(f"{_CHANGE}_max").sort())


class _Match(NamedTuple):
    """A file of the table with rows that have changed: the numbers of those that go away.

    `stale` are the numbers of changes that are older than the row of the table.
    """

    name: str
    path: Path
    rows: frozenset[int]
    stale: frozenset[int]


class _LiveFiles:
    """The files of a snapshot, whose rows are read with all columns of the table."""

    def __init__(self, table: ExportTable, schema: pa.Schema, rule: ChangeRule) -> None:
        self._table = table
        self._schema = schema
        self._rule = rule

    def matches(self, changes: Any) -> list[_Match]:
        """Return the files that have rows with the keys of changes."""
        if len(changes) == 0:
            return []
        keys = list(self._rule.key_columns)
        wanted = changes.select(list(dict.fromkeys([*keys, *self._rule.order_by, _CHANGE])))
        bounds = (
            pc.min_max(wanted.column(keys[0])).as_py() if _has_bounds(wanted, keys[0]) else None
        )
        matches = []
        for name, path in sorted(self._table.files_by_name().items()):
            with pq.ParquetFile(path) as file:
                if bounds is not None and _is_outside(file, keys[0], bounds["min"], bounds["max"]):
                    continue
                match = self._match(name, path, file, wanted)
            if match.rows or match.stale:
                matches.append(match)
        return matches

    def _match(self, name: str, path: Path, file: Any, wanted: Any) -> _Match:
        keys, order = list(self._rule.key_columns), list(self._rule.order_by)
        columns = list(dict.fromkeys([*keys, *order]))
        gone: set[int] = set()
        stale: set[int] = set()
        for first, batch in self._batches(name, file, columns, _KEYS_ROWS):
            rows = pa.Table.from_batches([batch])
            numbers = pa.array(range(first, first + len(rows)), pa.int64())
            rows = rows.append_column(_ROW, numbers)
            pairs = rows.select([*keys, _ROW]).join(
                wanted.select([*keys, _CHANGE]), keys, join_type="inner"
            )
            row_numbers = pairs.column(_ROW).to_pylist()
            change_numbers = pairs.column(_CHANGE).to_pylist()
            if not order:
                gone.update(row_numbers)
                continue
            held = rows.select(order).take(pc.subtract(pairs.column(_ROW), first)).to_pylist()
            new = wanted.select(order).take(pairs.column(_CHANGE)).to_pylist()
            for row, change, old_order, new_order in zip(
                row_numbers, change_numbers, held, new, strict=True
            ):
                is_stale = _order_key(old_order) > _order_key(new_order)
                (stale if is_stale else gone).add(change if is_stale else row)
        return _Match(name, path, frozenset(gone), frozenset(stale))

    def rows_without(self, match: _Match) -> Iterator[Any]:
        """Yield the rows of a file that stay."""
        with pq.ParquetFile(match.path) as file:
            for first, batch in self._batches(match.name, file, self._schema.names):
                numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
                stays = batch.filter(_none_of(numbers, match.rows))
                if stays.num_rows:
                    yield stays

    def _batches(
        self, name: str, file: Any, columns: Sequence[str], batch_rows: int = 65_536
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first row and a batch, for each batch of a file."""
        values = _partition_values(name)
        held = [column for column in columns if column in file.schema_arrow.names]
        first = 0
        for batch in file.iter_batches(batch_rows, columns=held):
            arrays = [
                _column(batch, self._schema.field(column), values.get(column)) for column in columns
            ]
            fields = [self._schema.field(column) for column in columns]
            yield first, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
            first += batch.num_rows


def _column(batch: Any, field: Any, value: str | None) -> Any:
    """Return a column of a file; it may be in the name of its directory, or newer than the file."""
    if field.name in batch.schema.names:
        column = batch.column(field.name)
        return column if column.type == field.type else column.cast(field.type)
    if value is None:
        return pa.nulls(batch.num_rows, field.type)
    return pa.repeat(pa.scalar(value).cast(field.type), batch.num_rows)


def _partition_values(name: str) -> Mapping[str, str | None]:
    """Return the values in the directories of a file, as text."""
    pairs = [part.partition("=") for part in Path(name).parts[:-1] if "=" in part]
    return {
        unquote(column): None if text == NULL_NAME else unquote(text) for column, _, text in pairs
    }


def _changed_rows(
    directory: Path,
    staged: Sequence[WrittenFile],
    written: Any,
    settings: FileSettings,
    schema: pa.Schema,
) -> Iterator[Any]:
    """Yield the rows of the last changes with all columns of the table."""
    for number, staged_file in enumerate(staged):
        of_file = written.filter(pc.equal(written.column(_FILE), number))
        wanted = frozenset(of_file.column(_ROW).to_pylist())
        if not wanted:
            continue
        with pq.ParquetFile(directory / staged_file.name) as file:
            first = 0
            for batch in file.iter_batches():
                numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
                first += batch.num_rows
                rows = batch.filter(pc.invert(_none_of(numbers, wanted)))
                if rows.num_rows == 0:
                    continue
                rows = settings.partitioning.extended(rows)
                arrays = [_column(rows, field, None) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _none_of(numbers: Any, unwanted: frozenset[int] | set[int]) -> Any:
    return pc.invert(pc.is_in(numbers, pa.array(sorted(unwanted), pa.int64())))


def _schema_of(table: ExportTable, settings: FileSettings) -> pa.Schema:
    """Return the columns of the table, among them those that the export does not have.

    Raises:
        ExportRefused: the table lacks a column of the key or of the order.
    """
    wanted, known = settings.table_schema(), table.columns()
    schema = wanted
    if known is not None:
        new = [field for field in wanted if field.name not in known.names]
        schema = pa.schema([*known, *new])
    rule = settings.changes
    assert rule is not None
    for name in (*rule.key_columns, *rule.order_by, *((DELETED,) if rule.order_by else ())):
        if known is not None and name not in known.names:
            raise ExportRefused(
                f"the table {table.path} has no column {name}, by which it would be merged: use "
                "another table"
            )
    return schema


def _order_key(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return values in a form that compares nulls as the least, and NaN as the greatest number."""
    return tuple((value is not None, value != value, value) for value in values.values())


def _has_bounds(rows: Any, name: str) -> bool:
    kind = rows.schema.field(name).type
    types = pa.types
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_binary(kind))


def _is_outside(file: Any, name: str, least: Any, greatest: Any) -> bool:
    """Return True if the statistics say that no row of the file has a key between two values."""
    metadata = file.metadata
    places = [
        number
        for number in range(metadata.num_columns)
        if metadata.schema.column(number).path == name
    ]
    if not places:
        return False
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(places[0]).statistics
        if statistics is None or not statistics.has_min_max:
            return False
        if statistics.max >= least and statistics.min <= greatest:
            return False
    return True
