"""Retry dead letters: decode them again, and move those that are good now into the table.

A letter is in one of the two tables, never in both and never in none, wherever a retry is killed:

1. A plan file beside the dead letters names the letters that move. It has a random number.
2. One commit adds their rows to the table, together with the number of the plan.
3. One commit removes the letters, together with the same number.

If the numbers of the two tables differ, a retry was killed between the commits. The next one reads
the plan of the table's number and removes these letters first. Of two retries at the same time only
one can commit, because the number must still be the one from before.

Only letters whose offsets the table holds are retried. Others belong to a portion that a killed
export has decided and not yet exported.
"""

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from spindle.columnar.columns import ALL_COLUMNS, arrow_schema
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.pipeline.export.dead_letter_rule import DEAD_LETTER_ROWS, RAW_COLUMNS
from spindle.pipeline.export.dead_letters import DEAD_LETTER_LAYOUT, key_in_name
from spindle.pipeline.export.exporter import file_settings
from spindle.pipeline.export.jobs import ExportJob
from spindle.pipeline.export.model import (
    ExportConflict,
    ExportRefused,
    PartitionIdentity,
    PlannedRange,
    WrittenFile,
)
from spindle.pipeline.export.parquet_files import (
    FileSettings,
    table_rows,
    write_rows,
)
from spindle.pipeline.export.paths import sync_directory
from spindle.pipeline.export.settings import ExportSettings, source_and_settings
from spindle.pipeline.export.table import CommitBatch, ExportTable, RetryMark
from spindle.pipeline.schemas.decoding import merged_errors
from spindle.pipeline.schemas.rows import DEAD_LETTERS

_PLANS: Final = "_retry"
_EMPTY_PLAN: Final = '{"moved": []}'
_MAX_ATTEMPTS: Final = 5
LetterId: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset."""
_Moved: TypeAlias = tuple[str, int, int, str]
"""A letter in a plan: its id, and the id of its topic in hexadecimal digits, empty if its file has
lost it. An earlier topic of the same name has letters with the same offsets."""


class DeadLetter(NamedTuple):
    """A record that could not be decoded or stored, and why."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int | None
    key: bytes | None
    value: bytes | None
    reason: str

    @property
    def id(self) -> LetterId:
        return self.topic, self.partition, self.offset


class Mended(NamedTuple):
    """The key and value with which a letter is decoded again."""

    key: bytes | None
    value: bytes | None


class RetryResult(NamedTuple):
    """The outcome of a retry: letters that are rows now, and those that stay, with new reasons.

    `waiting` is the number of letters of a portion that a killed export has yet to finish.
    """

    version: int | None
    retried: int
    remaining: list[DeadLetter]
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class _Range:
    """The offsets of the letters of a file, in the form in which files are named."""

    partition: TopicPartition
    topic_id: Uuid
    start_offset: int
    end_offset: int


def retry_export(job: ExportJob, mended: Mapping[LetterId, Mended] | None = None) -> RetryResult:
    """Decode the dead letters of an export again, and move those that are good into its table.

    It needs no Spark. Columns of records that dead letters do not keep (headers, timestampType) are
    null in the new rows.

    Args:
        job: The export. Its schema may be another one than that of the letters, with the same
            columns.
        mended: Keys and values in the place of those of letters.

    Raises:
        ExportRefused: there is no such table, it has other columns or is merged by a key, or the
            plan file of a killed retry is missing.
        ExportConflict: another retry was first.
        ValueError: as `export_delta`.
    """
    options = {name: text for name, text in job.options.items() if name.lower() != "badrecords"}
    options["badRecords"] = DEAD_LETTERS
    table, letters = _open_tables(job)
    source, settings = source_and_settings(options, job.settings, table)
    if table.version is None or letters.version is None:
        return RetryResult(table.version, 0, [])
    topic_ids: dict[TopicPartition, Uuid] = {}
    if any(key_in_name(path) is None for path in letters.live_files()):
        topic_ids = {piece.partition: piece.topic_id for piece in source.ranges()}
    return retry_dead_letters(table, letters, settings, topic_ids, mended)


def listed_letters(job: ExportJob) -> Iterator[DeadLetter]:
    """Yield the dead letters of an export, file by file.

    Raises:
        ExportRefused: there is neither the table nor one of its dead letters.
    """
    _, letters = _open_tables(job)
    for path in letters.live_files():
        for batch in _batches(path):
            yield from _letters_of(batch)


def _open_tables(job: ExportJob) -> tuple[ExportTable, ExportTable]:
    """Return the table and that of its dead letters, of which one may not exist."""
    table, letters = job.open_table(), job.open_dead_letters()
    if table.version is None and letters.version is None:
        raise ExportRefused(
            f"there is no {job.table_format} table {job.table}, nor one of its dead letters"
        )
    return table, letters


def retry_dead_letters(
    table: ExportTable,
    letters: ExportTable,
    settings: ExportSettings,
    topic_ids: Mapping[TopicPartition, Uuid],
    mended: Mapping[LetterId, Mended] | None = None,
) -> RetryResult:
    """Decode the dead letters of a table again, and move those that are good into the table.

    Args:
        settings: Those of the export; its schema may be another one than that of the letters.
        topic_ids: The ids of the topics, for letters whose files have lost them by a compaction.
        mended: Keys and values in the place of those of letters.

    Raises:
        ExportRefused: the table is merged by a key, has other columns, or lacks a plan file.
        ExportConflict: another retry was first.
    """
    if settings.changes is not None:
        raise ExportRefused(
            f"the dead letters of {table.path} are changes of rows, and could replace newer ones: "
            "send the mended records to the topic again"
        )
    table.check_layout(settings.layout)
    table.check_merge_key(None)
    _finish(table, letters)
    table.prepare(settings.layout)
    run_id = secrets.token_hex(6)
    target = file_settings(table, settings, table.data_directory, run_id)
    retry = _Retry(table, letters, target, topic_ids, mended or {})
    written = retry.write()
    if not retry.moved:
        return RetryResult(table.version, 0, retry.remaining, retry.waiting)
    mark = RetryMark(table.retry_mark, secrets.randbits(62) + 1)
    _write_plan(letters, mark.after, retry.moved)
    layout = settings.layout
    try:
        version = table.commit(CommitBatch(layout, written, retry=mark))
    except ExportConflict:
        for file in written:
            (Path(target.directory) / file.name).unlink(missing_ok=True)
        raise
    _finish(table, letters)
    return RetryResult(version, len(retry.moved), retry.remaining, retry.waiting)


class _Retry:
    """Decodes letters again and writes the rows of the good ones."""

    def __init__(
        self,
        table: ExportTable,
        letters: ExportTable,
        target: FileSettings,
        topic_ids: Mapping[TopicPartition, Uuid],
        mended: Mapping[LetterId, Mended],
    ) -> None:
        self._table = table
        self._letters = letters
        self._target = target
        self._topic_ids = topic_ids
        self._mended = mended
        self.moved: set[_Moved] = set()
        self.remaining: list[DeadLetter] = []
        self.waiting = 0

    def write(self) -> list[WrittenFile]:
        written = []
        for number, path in enumerate(self._letters.live_files()):
            rows = [part for batch in _batches(path) for part in self._good(path, batch)]
            if rows:
                written += self._written(rows, number)
        return written

    def _good(self, path: Path, batch: Any) -> Iterator[tuple[_Range, Any]]:
        """Yield the rows of the letters that are good now, and where they are from."""
        by_partition: dict[TopicPartition, list[int]] = {}
        for row, letter in enumerate(_letters_of(batch)):
            partition = TopicPartition(letter.topic, letter.partition)
            by_partition.setdefault(partition, []).append(row)
        for partition, numbers in by_partition.items():
            key = self._key(path, partition)
            held = None if key is None else self._table.coverage(key)
            offsets = batch.column("offset")
            exported = [
                row
                for row in numbers
                if held is not None and held.start <= offsets[row].as_py() < held.end
            ]
            self.waiting += len(numbers) - len(exported)
            if not exported or key is None:
                continue
            letters = self._with_mended(batch.take(pa.array(exported, pa.int64())))
            rows, _, undecoded, unstored = table_rows(_records(letters), self._target)
            reasons = merged_errors(undecoded, unstored)
            if reasons is not None:
                position = letters.schema.get_field_index("reason")
                bad = reasons.is_valid()
                stays = letters.set_column(position, "reason", reasons).filter(bad)
                self.remaining += _letters_of(stays)
                good = pa.compute.invert(bad)
                letters, rows = letters.filter(good), rows.filter(good)
            if rows.num_rows == 0:
                continue
            topic_id = _topic_id_in_name(path)
            self.moved |= {(*letter.id, topic_id) for letter in _letters_of(letters)}
            least_and_greatest = pa.compute.min_max(letters.column("offset")).as_py()
            start, end = least_and_greatest["min"], least_and_greatest["max"] + 1
            yield _Range(partition, key.topic_id, start, end), rows

    def _written(self, parts: Sequence[tuple[_Range, Any]], number: int) -> list[WrittenFile]:
        written = []
        for index, (piece, rows) in enumerate(parts):
            run_id = f"{self._target.run_id}{number:04x}{index:04x}"
            written += write_rows(
                [rows], piece, self._target._replace(run_id=run_id), compacted=True
            )
        return written

    def _key(self, path: Path, partition: TopicPartition) -> PartitionIdentity | None:
        named = key_in_name(path)
        if named is not None:
            return named
        topic_id = self._topic_ids.get(partition)
        return None if topic_id is None else PartitionIdentity(topic_id, partition.partition)

    def _with_mended(self, batch: Any) -> Any:
        if not self._mended:
            return batch
        for name in ("key", "value"):
            cells = [
                getattr(self._mended.get(letter.id, letter), name) for letter in _letters_of(batch)
            ]
            position = batch.schema.get_field_index(name)
            batch = batch.set_column(position, name, pa.array(cells, pa.binary()))
        return batch


def _finish(table: ExportTable, letters: ExportTable) -> None:
    """Remove the letters that the last retry has moved, if it was killed before it did.

    Raises:
        ExportRefused: the plan file of this retry is missing.
    """
    for _ in range(_MAX_ATTEMPTS):
        table.refresh()
        letters.refresh()
        after = table.retry_mark
        if after is None or after == letters.retry_mark:
            return
        try:
            moved = _read_plan(letters, after)
        except ExportRefused:
            letters.refresh()
            if letters.retry_mark == after:
                return  # that retry was not killed, and has finished meanwhile
            raise
        try:
            _remove(letters, moved, RetryMark(letters.retry_mark, after))
        except ExportConflict:
            continue
        _plan_path(letters, after).unlink(missing_ok=True)
        return
    raise ExportConflict(
        f"the dead letters {letters.path} were changed {_MAX_ATTEMPTS} times; run again"
    )


def _remove(letters: ExportTable, moved: frozenset[_Moved], mark: RetryMark) -> None:
    """Write the files with moved letters again without these, and commit that."""
    directory, run_id = letters.data_directory, secrets.token_hex(6)
    target = FileSettings(
        str(directory),
        run_id,
        "snappy",
        DEAD_LETTER_ROWS,
        without_statistics=DEAD_LETTER_LAYOUT.without_statistics,
    )
    replaced, written = set(), []
    for number, (name, path) in enumerate(sorted(letters.files_by_name().items())):
        batches = list(_batches(path))
        kept = [batch.filter(_stays(batch, path, moved)) for batch in batches]
        if sum(batch.num_rows for batch in kept) == sum(batch.num_rows for batch in batches):
            continue
        replaced.add(name)
        rest = [batch for batch in kept if batch.num_rows]
        if rest:
            piece = _range_of_letters(path, rest)
            named = target._replace(run_id=f"{run_id}{number:04x}")
            written += write_rows(rest, piece, named, compacted=True)
    layout = DEAD_LETTER_LAYOUT
    try:
        letters.commit(CommitBatch(layout, written, replaced=frozenset(replaced), retry=mark))
    except ExportConflict:
        for file in written:
            (directory / file.name).unlink(missing_ok=True)
        raise


def _stays(batch: Any, path: Path, moved: frozenset[_Moved]) -> Any:
    topic_id = _topic_id_in_name(path)
    of_file = {letter[:3] for letter in moved if topic_id in ("", letter[3])}
    return pa.array([letter.id not in of_file for letter in _letters_of(batch)], pa.bool_())


def _range_of_letters(path: Path, batches: Sequence[Any]) -> PlannedRange:
    first = next(_letters_of(batches[0]))
    named = key_in_name(path)
    offsets = [letter.offset for batch in batches for letter in _letters_of(batch)]
    topic_id = ZERO_UUID if named is None else named.topic_id
    partition = TopicPartition(first.topic, first.partition)
    return _Range(partition, topic_id, min(offsets), max(offsets) + 1)


def _topic_id_in_name(path: Path) -> str:
    named = key_in_name(path)
    return "" if named is None else named.topic_id.hex()


def _batches(path: Path) -> Iterator[Any]:
    schema = DEAD_LETTER_ROWS.schema()
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=schema.names):
            yield pa.RecordBatch.from_arrays(
                [batch.column(field.name).cast(field.type) for field in schema], schema=schema
            )


def _letters_of(batch: Any) -> Iterator[DeadLetter]:
    times = batch.column("timestamp").cast(pa.int64())
    columns = [
        times if name == "timestamp" else batch.column(name) for name in (*RAW_COLUMNS, "reason")
    ]
    for cells in zip(*(column.to_pylist() for column in columns), strict=True):
        yield DeadLetter(*cells)


def _records(letters: Any) -> Any:
    """Return letters with all columns of records; those that letters do not keep are null."""
    schema = arrow_schema(ALL_COLUMNS)
    arrays = [
        letters.column(field.name).cast(field.type)
        if field.name in RAW_COLUMNS
        else pa.nulls(letters.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plan_path(letters: ExportTable, number: int) -> Path:
    return letters.data_directory / _PLANS / f"{number}.json"


def _write_plan(letters: ExportTable, number: int, moved: Iterable[_Moved]) -> None:
    path = _plan_path(letters, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        json.dump({"moved": sorted(moved)}, file)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
    sync_directory(path.parent.parent)


def _read_plan(letters: ExportTable, number: int) -> frozenset[_Moved]:
    path = _plan_path(letters, number)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return frozenset(
            (topic, partition, offset, topic_id)
            for topic, partition, offset, topic_id in content["moved"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportRefused(
            f"a retry of the dead letters {letters.path} was killed after it had added their rows, "
            f"and its plan {path} cannot be read ({error}): remove the letters that are in the "
            f"table by hand, then write {_EMPTY_PLAN} into this file"
        ) from error
