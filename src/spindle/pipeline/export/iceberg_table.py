"""The Iceberg table of an export: the offsets that it holds, and the commit that adds files.

The properties of the table keep its coverage and the number of its last commit; the summary of each
snapshot has the number, too. Both change in one commit of the catalog. pyiceberg repeats a commit
that came second on top of the first one, which would add rows twice. So its repetition is turned
off: the commit compares the snapshot, and only if the coverage is still that of the plan is the
commit made again.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow

from spindle.common.uuids import Uuid
from spindle.pipeline.export.coverage_text import (
    coverage_json,
    parse_coverage,
    parse_topics,
    topics_json,
)
from spindle.pipeline.export.file_compaction import join_small_files
from spindle.pipeline.export.iceberg_catalog import IcebergPlace, data_directory
from spindle.pipeline.export.model import Coverage, ExportRefused, PartitionIdentity
from spindle.pipeline.export.table import (
    CommitBatch,
    TableLayout,
    check_columns,
    check_partitioning,
    conflict,
    coverage_after,
    names_fault,
    prepare_beside_others,
    refuse_other_key,
)
from spindle.pipeline.schemas.field_names import shared_path, shown_name

if TYPE_CHECKING:
    from pyiceberg.table import CreateTableTransaction, Table, Transaction

_COVERAGE: Final = "spindle.coverage"
_TOPICS: Final = "spindle.topics"
_COMMIT: Final = "spindle.commit"
_MERGE_KEY: Final = "spindle.merge-key"
_RETRY: Final = "spindle.retry"
_RETRIES: Final = "commit.retry.num-retries"
_MAX_ATTEMPTS: Final = 20


class IcebergExportTable:
    """A snapshot of the table at a place, which may not exist yet."""

    has_partition_columns_in_files = True
    limits_times = True

    def __init__(self, place: IcebergPlace) -> None:
        self.path = place.name
        self._place = place
        self._coverage: dict[PartitionIdentity, Coverage] = {}
        self._topics: dict[str, Uuid] = {}
        self._new_location = place.location
        self.refresh()

    @property
    def data_directory(self) -> Path:
        location = self._new_location if self._table is None else self._table.location()
        assert location is not None, "the table is prepared"
        return data_directory(self.path, location)

    @property
    def version(self) -> int | None:
        """The id of the snapshot, None while there is none."""
        snapshot = None if self._table is None else self._table.current_snapshot()
        return None if snapshot is None else int(snapshot.snapshot_id)

    @property
    def committed_ms(self) -> int | None:
        return None if self._table is None else int(self._table.metadata.last_updated_ms)

    @property
    def retry_mark(self) -> int | None:
        number = None if self._table is None else self._table.properties.get(_RETRY)
        return None if number is None else int(number)

    def refresh(self) -> None:
        self._use(self._place.load())

    def columns(self) -> pa.Schema | None:
        return None if self._table is None else plain_schema(self._table)

    def columns_fault(self, columns: pa.Schema) -> str | None:
        path = shared_path(columns)
        if path is None:
            return names_fault(columns)
        return (
            f"two fields have the path {shown_name(path)}: Iceberg joins the names of nested "
            "fields with dots"
        )

    def check_layout(self, layout: TableLayout) -> None:
        if self._table is None:
            return
        check_columns(self.path, plain_schema(self._table), layout)
        check_partitioning(self.path, self._partition_columns(), layout)

    def check_merge_key(self, merge_key: str | None) -> None:
        if self._table is not None:
            refuse_other_key(self.path, self._table.properties.get(_MERGE_KEY), merge_key)

    def prepare(self, layout: TableLayout) -> None:
        if self._table is None:
            # The first commit makes the table, so that a run that fails before leaves none.
            self._new_location = self._new_table(layout).table_metadata.location
        else:
            prepare_beside_others(self, layout, self._add_columns)
        self.data_directory.mkdir(parents=True, exist_ok=True)

    def _add_columns(self, layout: TableLayout) -> bool:
        table = self._table
        if table is None or set(layout.schema.names) <= set(table.schema().column_names):
            return True
        try:
            with table.update_schema() as update:
                update.union_by_name(layout.schema)
        except CommitFailedException:
            return False
        return True

    def is_other_topic(self, topic: str, topic_id: Uuid) -> bool:
        known = self._topics.get(topic)
        return known is not None and known != topic_id

    def coverage(self, key: PartitionIdentity) -> Coverage | None:
        return self._coverage.get(key)

    def known_files(self) -> set[str]:
        """Return the data files of all snapshots that have not expired."""
        table = self._table
        if table is None or not any(snapshot.manifests(table.io) for snapshot in table.snapshots()):
            return set()
        paths = table.inspect.all_files().column("file_path").to_pylist()
        return {self._name(path) for path in paths}

    def live_files(self) -> list[Path]:
        if self._table is None:
            return []
        paths = [task.file.file_path for task in self._table.scan().plan_files()]
        return [Path(path.removeprefix("file://")) for path in paths]

    def commit(self, portion: CommitBatch) -> int:
        for _ in range(_MAX_ATTEMPTS):
            coverage = {**self._coverage, **coverage_after(self, portion)}
            directory, is_new = self.data_directory, self._table is None
            snapshot_id = self._try_to_commit(portion, coverage)
            self.refresh()
            if snapshot_id is not None:
                return snapshot_id
            if portion.merge_key is not None:
                raise conflict(self.path, "its rows have changed")
            if is_new:
                self.check_layout(portion.layout)
                self.prepare(portion.layout)
            if self.data_directory != directory:
                raise conflict(self.path, "it was made meanwhile, in another directory")
        raise conflict(self.path, f"lost {_MAX_ATTEMPTS} commit races in a row")

    def _try_to_commit(
        self, portion: CommitBatch, coverage: dict[PartitionIdentity, Coverage]
    ) -> int | None:
        """Commit onto this snapshot; return the id of the new one, None if this is not the newest.

        The properties are read by pyiceberg from this copy of the table; they are not written back.
        """
        table = self._table
        number = str(self._commit_number() + 1)
        transaction = self._new_table(portion.layout) if table is None else table.transaction()
        mapping = transaction.table_metadata.schema().name_mapping
        transaction.set_properties(
            {
                _COVERAGE: json.dumps(coverage_json(coverage)),
                _TOPICS: json.dumps(topics_json({**self._topics, **portion.topics})),
                _COMMIT: number,
                "schema.name-mapping.default": mapping.model_dump_json(),
            }
        )
        if portion.merge_key is not None:
            transaction.set_properties({_MERGE_KEY: portion.merge_key})
        if portion.retry is not None:
            transaction.set_properties({_RETRY: str(portion.retry.after)})
        grown = {key: coverage[key] for key in portion.growth}
        summary = {_COMMIT: number, _COVERAGE: json.dumps(coverage_json(grown))}
        self._stage_files(transaction, portion, summary)
        if table is not None:
            table.metadata.properties[_RETRIES] = "0"
        try:
            snapshot = transaction.commit_transaction().current_snapshot()
        except (CommitFailedException, TableAlreadyExistsError):
            return None
        assert snapshot is not None
        return int(snapshot.snapshot_id)

    def _stage_files(
        self, transaction: "Transaction", portion: CommitBatch, summary: dict[str, str]
    ) -> None:
        if portion.replaced:
            self._stage_joined(transaction, portion, summary)
            return
        directory = self.data_directory
        paths = [f"file://{directory / file.name}" for file in portion.files]
        transaction.add_files(paths, summary, check_duplicate_files=False)

    def _stage_joined(
        self, transaction: "Transaction", portion: CommitBatch, summary: dict[str, str]
    ) -> None:
        """Replace files by others with the same rows."""
        assert self._table is not None
        live = {
            self._name(task.file.file_path): task.file for task in self._table.scan().plan_files()
        }
        if not portion.replaced <= live.keys():
            raise conflict(self.path, "another compaction has replaced the same files")
        with transaction.update_snapshot(snapshot_properties=summary).overwrite() as update:
            for name in sorted(portion.replaced):
                update.delete_data_file(live[name])
            for file in portion.files:
                path = f"file://{self.data_directory / file.name}"
                io, metadata = self._table.io, transaction.table_metadata
                update.append_data_file(parquet_file_to_data_file(io, metadata, path))

    def layout(self) -> TableLayout:
        """Return the columns of the table."""
        assert self._table is not None
        return TableLayout(plain_schema(self._table), self._partition_columns())

    def files_by_name(self) -> dict[str, Path]:
        """Return where the files of the snapshot are, by name."""
        if self._table is None:
            return {}
        names = [self._name(task.file.file_path) for task in self._table.scan().plan_files()]
        return {name: self.data_directory / name for name in names}

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Join small files."""
        return join_small_files(self, target_bytes)

    def delete_removed(self, hours: float) -> int:
        """Forget snapshots that are older, and leave the files to the removal of orphans."""
        assert self._table is not None
        oldest = datetime.now(UTC) - timedelta(hours=hours)
        self._table.maintenance.expire_snapshots().older_than(oldest).commit()
        self.refresh()
        return 0

    def _name(self, file_path: str) -> str:
        """Return the name of a data file, relative to the data directory."""
        return file_path.removeprefix("file://").removeprefix(f"{self.data_directory}/")

    def _partition_columns(self) -> tuple[str, ...]:
        assert self._table is not None
        schema, fields = self._table.schema(), self._table.spec().fields
        if any(str(field.transform) != "identity" for field in fields):
            return tuple(str(field) for field in fields)
        return tuple(schema.find_field(field.source_id).name for field in fields)

    def _new_table(self, layout: TableLayout) -> "CreateTableTransaction":
        return self._place.new_table(layout, self._new_location)

    def _commit_number(self) -> int:
        return 0 if self._table is None else int(self._table.properties.get(_COMMIT, "0"))

    def _use(self, table: "Table | None") -> None:
        self._table = table
        # A table that was dropped during a run holds nothing: made again, it would lack the
        # portions before.
        properties = {} if table is None else table.properties
        self._coverage = parse_coverage(json.loads(properties.get(_COVERAGE, "{}")))
        self._topics = parse_topics(json.loads(properties.get(_TOPICS, "{}")))
        newest = None if table is None else _newest_number(table)
        if newest is not None and newest != self._commit_number():
            raise ExportRefused(
                f"the table {self.path} was rolled back: its last export is number "
                f"{self._commit_number()}, its current snapshot has number {newest}. Use another "
                "table, or roll forward"
            )


def _newest_number(table: "Table") -> int | None:
    """Return the number of the last export in the current snapshot; None if that has expired."""
    snapshot: Any = table.current_snapshot()
    while snapshot is not None:
        number = (snapshot.summary or {}).get(_COMMIT)
        if number is not None:
            return int(number)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None


def plain_schema(table: "Table") -> pa.Schema:
    """Return the columns of a table with the Arrow types that an export uses."""
    from deltalake import Schema

    arrow = schema_to_pyarrow(table.schema(), include_field_ids=False)
    # The way through Delta's types turns large strings and binaries into plain ones.
    return pa.schema(Schema.from_arrow(arrow).to_arrow())
