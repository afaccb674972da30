"""The plain Parquet table of an export: a directory of files, and a log of manifests.

    TABLE/topic-0.ID.FIRST-END.RUN-ATTEMPT.parquet   committed
    TABLE/_spindle/staging/                          written, not committed
    TABLE/_spindle/removed/                          removed by a compaction, deleted by a vacuum
    TABLE/_spindle/log/                              the manifests (see `manifest_log`)

The manifest is the commit. The files move to their visible names after it, so a reader of the
directory never sees rows that are not committed; a run that is killed in between leaves this step
to the next reader or writer.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from spindle.common.uuids import Uuid
from spindle.pipeline.export import manifest_log
from spindle.pipeline.export.file_compaction import join_small_files
from spindle.pipeline.export.manifest_log import HIDDEN, Manifest, TableState
from spindle.pipeline.export.model import Coverage, PartitionIdentity
from spindle.pipeline.export.paths import sync_directory
from spindle.pipeline.export.table import (
    CommitBatch,
    TableLayout,
    check_columns,
    check_partitioning,
    conflict,
    coverage_after,
    names_fault,
    refuse_other_key,
)


class ParquetExportTable:
    """A snapshot of the table at `path`, which may not exist yet."""

    has_partition_columns_in_files = False
    limits_times = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._root = Path(path)
        self.refresh()

    @property
    def data_directory(self) -> Path:
        return self._root / HIDDEN / "staging"

    @property
    def version(self) -> int | None:
        return None if self._state is None else self._state.version

    @property
    def committed_ms(self) -> int | None:
        if self._state is None:
            return None
        return manifest_log.commit_time_ms(self._root, self._state.version)

    @property
    def retry_mark(self) -> int | None:
        return None if self._state is None else self._state.retry_mark

    def refresh(self) -> None:
        self._state = manifest_log.read_state(self._root)
        self._publish()

    def columns(self) -> pa.Schema | None:
        return None if self._state is None else self._state.schema

    def columns_fault(self, columns: pa.Schema) -> str | None:
        return names_fault(columns)

    def check_layout(self, layout: TableLayout) -> None:
        if self._state is not None:
            check_columns(self.path, self._state.schema, layout)
            check_partitioning(self.path, self._state.partition_by, layout)

    def check_merge_key(self, merge_key: str | None) -> None:
        if self._state is not None:
            refuse_other_key(self.path, self._state.merge_key, merge_key)

    def prepare(self, layout: TableLayout) -> None:
        self.data_directory.mkdir(parents=True, exist_ok=True)

    def is_other_topic(self, topic: str, topic_id: Uuid) -> bool:
        known = None if self._state is None else self._state.topics.get(topic)
        return known is not None and known != topic_id

    def coverage(self, key: PartitionIdentity) -> Coverage | None:
        return None if self._state is None else self._state.coverage.get(key)

    def known_files(self) -> set[str]:
        if self._state is None:
            return set()
        return {*self._state.files, *self._state.removed}

    def live_files(self) -> list[Path]:
        return [] if self._state is None else list(live_paths(self._root, self._state))

    def commit(self, portion: CommitBatch) -> int:
        """Write the next manifest; if another writer was first, look whether it matters."""
        added = {file.name: file.rows for file in portion.files}
        directories = {(self.data_directory / name).parent for name in added}
        for directory in directories:
            sync_directory(directory)
        while True:
            self._check_replaced(portion)
            manifest = Manifest(
                self._schema_after(portion.layout),
                portion.layout.partition_by,
                added,
                tuple(portion.replaced),
                tuple(portion.forgotten),
                coverage=coverage_after(self, portion),
                topics=portion.topics,
                merge_key=portion.merge_key,
                retry_mark=None if portion.retry is None else portion.retry.after,
            )
            version = 0 if self._state is None else self._state.version + 1
            is_first = manifest_log.append(self._root, version, manifest)
            self.refresh()
            if is_first:
                return version
            if portion.merge_key is not None:
                raise conflict(self.path, "its rows have changed")
            self.check_layout(portion.layout)

    def layout(self) -> TableLayout:
        """Return the columns of the table."""
        assert self._state is not None
        return TableLayout(self._state.schema, self._state.partition_by)

    def files_by_name(self) -> dict[str, Path]:
        """Return where the files of the snapshot are, by name."""
        if self._state is None:
            return {}
        return dict(zip(self._state.files, live_paths(self._root, self._state), strict=True))

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Join small files."""
        return join_small_files(self, target_bytes)

    def delete_removed(self, hours: float) -> int:
        """Delete the files that compactions replaced at least `hours` ago; return their number."""
        assert self._state is not None
        latest_ms = time.time() * 1000 - hours * 3_600_000
        old = [name for name, time_ms in self._state.removed.items() if time_ms <= latest_ms]
        for name in old:
            (self._root / HIDDEN / "removed" / name).unlink(missing_ok=True)
        if old:
            self.commit(CommitBatch(self.layout(), (), forgotten=frozenset(old)))
        return len(old)

    def _schema_after(self, layout: TableLayout) -> pa.Schema:
        """Return the columns of the table and those that the portion adds."""
        if self._state is None:
            return layout.schema
        known = self._state.schema
        new = [field for field in layout.schema if field.name not in known.names]
        return pa.schema([*known, *new])

    def _check_replaced(self, portion: CommitBatch) -> None:
        files = {} if self._state is None else self._state.files
        if not portion.replaced <= files.keys():
            raise conflict(self.path, "another compaction has replaced the same files")

    def _publish(self) -> None:
        """Move files to where they belong by the manifests; repeat what a killed run left."""
        if self._state is None:
            return
        removed = self._root / HIDDEN / "removed"
        for name in self._state.removed:
            _move(self._root / name, removed / name)
        staged = self.data_directory
        for path in staged.rglob("*.parquet"):
            name = str(path.relative_to(staged))
            if name in self._state.files:
                _move(path, self._root / name)


def live_paths(table: Path, state: TableState) -> Iterable[Path]:
    """Yield where the files of a version lie now.

    Raises:
        FileNotFoundError: a vacuum has deleted one of them.
    """
    hidden = table / HIDDEN
    for name in state.files:
        for place in (table, hidden / "staging", hidden / "removed", table):
            if (place / name).exists():
                yield place / name
                break
        else:
            raise FileNotFoundError(
                f"{table / name}: version {state.version} of the table has this file; it was "
                "deleted, by a vacuum if the version is an old one"
            )


def _move(source: Path, target: Path) -> None:
    # Another process may do the same at this time.
    with contextlib.suppress(FileNotFoundError):
        os.rename(source, target)
        return
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(source, target)
