"""The port of a table: what an export needs of Delta, Iceberg or plain Parquet.

An `ExportTable` is a snapshot. It knows which offsets the table holds, and its `commit` adds the
files of one portion only if no other writer has changed that knowledge since: this comparison is
what makes an export exact, whoever else writes and wherever a run is killed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from spindle.common.uuids import Uuid
from spindle.pipeline.export.model import (
    Coverage,
    CoverageChange,
    ExportConflict,
    ExportRefused,
    PartitionIdentity,
    WrittenFile,
)
from spindle.pipeline.schemas.field_names import same_but_for_case, shown_name

_MAX_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The columns of an export, and those of them by whose values the table is partitioned.

    `may_add_columns`: the table may lack some of the columns, and the commit adds them; it may also
    have columns that the export lacks. `without_statistics`: columns of these names are no columns
    of records but fields of values, or have values that make no statistics.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    may_add_columns: bool = False
    without_statistics: frozenset[str] = frozenset()


class RetryMark(NamedTuple):
    """The number of the last retry of dead letters before and after a commit."""

    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """The files and offsets that become part of a table with one commit.

    `growth` has every partition that the portion extends. `topics` has the ids of all topics of the
    run. `replaced` names files of the table whose rows `files` have, too (a compaction).
    `forgotten` names files that left the table before and are deleted (a vacuum).
    `may_mix_topics`: the table may hold rows of an earlier topic with the name of one of `topics`.
    `merge_key` names the columns of the key with commas between them in a table that has one row
    for each key; such a portion only fits on the snapshot from which it was made. `retry` is for a
    commit that moves dead letters.
    """

    layout: TableLayout
    files: Sequence[WrittenFile]
    growth: Mapping[PartitionIdentity, CoverageChange] = field(default_factory=dict)
    topics: Mapping[str, Uuid] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()
    forgotten: frozenset[str] = frozenset()
    may_mix_topics: bool = False
    merge_key: str | None = None
    retry: RetryMark | None = None


class ExportTable(Protocol):
    """A snapshot of a table, which may not exist yet. `path` names the table in messages.

    `has_partition_columns_in_files`: files hold the columns that the names of their directories
    tell as well. `limits_times`: times that have statistics must be in the years 1 to 9999.
    """

    path: str
    has_partition_columns_in_files: bool
    limits_times: bool

    @property
    def data_directory(self) -> Path:
        """The directory into which tasks write the files of the next portion."""
        ...

    @property
    def version(self) -> int | None:
        """The version of the snapshot, None while there is no table."""
        ...

    @property
    def committed_ms(self) -> int | None:
        """The time of the last commit in ms since 1970, None while there is no table."""
        ...

    @property
    def retry_mark(self) -> int | None:
        """The number of the last retry of dead letters, None if there was none."""
        ...

    def refresh(self) -> None:
        """Become the newest snapshot."""
        ...

    def columns(self) -> pa.Schema | None:
        """Return the columns of the table, None while there is no table."""
        ...

    def columns_fault(self, columns: pa.Schema) -> str | None:
        """Return why a table of this format cannot have these columns, None if it can."""
        ...

    def check_layout(self, layout: TableLayout) -> None:
        """Refuse an export whose columns or partition columns are not those of the table.

        Raises:
            ExportRefused: names, order or types differ.
        """
        ...

    def check_merge_key(self, merge_key: str | None) -> None:
        """Refuse to append to a table that is merged by a key, or to merge by another key.

        Args:
            merge_key: As in CommitBatch; None for an export that appends.

        Raises:
            ExportRefused: the table was made in the other way.
        """
        ...

    def prepare(self, layout: TableLayout) -> None:
        """Make the data directory, and add the columns that the table lacks.

        Raises:
            ExportConflict: another export added columns that differ.
        """
        ...

    def is_other_topic(self, topic: str, topic_id: Uuid) -> bool:
        """Return True if the table holds rows of a topic with this name and another id."""
        ...

    def coverage(self, key: PartitionIdentity) -> Coverage | None:
        """Return the offsets of a partition that the table holds, None if it holds none."""
        ...

    def known_files(self) -> set[str]:
        """Return the names of all files that the table, or a version that it keeps, refers to."""
        ...

    def live_files(self) -> Sequence[Path]:
        """Return the paths of the files that have the rows of the snapshot."""
        ...

    def files_by_name(self) -> Mapping[str, Path]:
        """Return where the files of the snapshot are, by name."""
        ...

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Make files of about `target_bytes` of smaller ones; return how many became how many.

        Raises:
            ExportConflict: another compaction replaced the same files first.
        """
        ...

    def delete_removed(self, hours: float) -> int:
        """Delete files that left the table at least `hours` ago; return their number.

        Iceberg tables forget their old snapshots, and the removal of orphans deletes the files.
        """
        ...

    def commit(self, portion: CommitBatch) -> int:
        """Add a portion, become the snapshot that has it, and return its version.

        Raises:
            ExportConflict: another writer committed for one of these partitions.
        """
        ...


def coverage_after(table: ExportTable, portion: CommitBatch) -> dict[PartitionIdentity, Coverage]:
    """Return the coverage of the portion's partitions when it is added to this snapshot.

    Raises:
        ExportConflict: another writer has extended one of them at the same side, has added rows of
            another topic with the same name, or has retried dead letters.
    """
    for topic, topic_id in portion.topics.items():
        if not portion.may_mix_topics and table.is_other_topic(topic, topic_id):
            raise conflict(table.path, f"it holds rows of another topic with the name {topic!r}")
    if portion.retry is not None and portion.retry.before != table.retry_mark:
        raise conflict(table.path, "another retry of its dead letters was first")
    grown: dict[PartitionIdentity, Coverage] = {}
    for key, growth in portion.growth.items():
        after = growth.apply_to(table.coverage(key))
        if after is None:
            raise conflict(table.path, f"partition {key.partition} has other offsets now")
        grown[key] = after
    return grown


def prepare_beside_others(
    table: ExportTable, layout: TableLayout, attempt: Callable[[TableLayout], bool]
) -> None:
    """Prepare a table while other exports may prepare it, too.

    Args:
        attempt: Returns False if another commit came first; it is called again on a new snapshot.

    Raises:
        ExportConflict: the other commits made columns that differ from these, or left no time.
    """
    for _ in range(_MAX_ATTEMPTS):
        if attempt(layout):
            return
        table.refresh()
        try:
            table.check_layout(layout)
        except ExportRefused as error:
            raise conflict(table.path, error) from None
    raise conflict(table.path, f"lost {_MAX_ATTEMPTS} commit races in a row")


def conflict(path: str, reason: object) -> ExportConflict:
    """Return the error of a commit that came second."""
    return ExportConflict(f"the table {path} was changed by another export: {reason}; run again")


def names_fault(columns: pa.Schema) -> str | None:
    """Return why no table can have columns with these names, None if some can.

    Readers of tables ignore the case of names, also inside structs.
    """
    name = same_but_for_case(pa.struct(list(columns)))
    if name is None:
        return None
    return f"the names of two fields differ in case only: {shown_name(name)}"


def check_columns(path: str, known: pa.Schema, layout: TableLayout) -> None:
    """Refuse columns that are not those of the table.

    Raises:
        ExportRefused: names, order or types differ, apart from columns that may be added.
    """
    wanted = layout.schema
    if layout.may_add_columns:
        both = [name for name in wanted.names if name in known.names]
        known, wanted = (
            pa.schema([schema.field(name) for name in both]) for schema in (known, wanted)
        )
    differences = _differences(known, wanted)
    if differences:
        raise ExportRefused(
            f"the columns of the table {path} cannot change: {'; '.join(differences)}. Use another "
            "table, or the options with which this one was made"
        )


def _differences(known: pa.Schema, wanted: pa.Schema) -> list[str]:
    """Return a text for each column that is not the same in the table and in the export."""
    differences = [
        f"{name} is {_kind(known.field(name))} in the table, {_kind(wanted.field(name))} in the "
        "export"
        for name in known.names
        if name in wanted.names and known.field(name) != wanted.field(name)
    ]
    for here, there, place in ((known, wanted, "table"), (wanted, known, "export")):
        only = [column for column in here if column.name not in there.names]
        if only:
            columns = ", ".join(f"{column.name} {_kind(column)}" for column in only)
            differences.append(f"only the {place} has {columns}")
    if not differences and known.names != wanted.names:
        pairs = zip(known.names, wanted.names, strict=True)
        number, (one, other) = next(
            (number, pair) for number, pair in enumerate(pairs, 1) if pair[0] != pair[1]
        )
        differences.append(f"column {number} is {one} in the table, {other} in the export")
    return differences


def _kind(column: Any) -> str:
    return f"{column.type}" if column.nullable else f"{column.type} not null"


def refuse_other_key(path: str, held: str | None, wanted: str | None) -> None:
    """Refuse a merge key that is not the one of an existing table; None means that it appends.

    Args:
        held: The key of the table, "" for one that the table does not name.

    Raises:
        ExportRefused: they differ.
    """
    if held == wanted:
        return
    if wanted is None:
        raise ExportRefused(
            f"the table {path} has one row for each key{f' ({held})' if held else ''}: use "
            "mode='upsert' with its key, or another table"
        )
    if held is None:
        raise ExportRefused(
            f"the table {path} has a row for each record (mode='append'); it cannot be merged by "
            f"{wanted}: use another table"
        )
    known = f"the key {held}" if held else "another key"
    raise ExportRefused(f"the table {path} is merged by {known}, not by {wanted}")


def check_partitioning(path: str, known: Sequence[str], layout: TableLayout) -> None:
    """Refuse another partitioning than that of the table.

    Raises:
        ExportRefused: the partition columns differ.
    """
    if tuple(known) != layout.partition_by:
        raise ExportRefused(
            f"the table {path} is partitioned by {', '.join(known) or 'nothing'}; the export by "
            f"{', '.join(layout.partition_by) or 'nothing'}"
        )
