"""The Delta table of an export: the offsets that it holds, and the commit that adds files.

The table's own log keeps these offsets as application transactions, which delta-rs checks for
conflicts. There are two for each (topic id, partition): one with the end offset and one with the
first offset. A commit writes only those that it changes, so that one run can append new offsets
while another one fills in old ones. A third one, named after the topic, holds a fingerprint of the
topic id; it differs when a topic was deleted and created again. File names repeat the offsets; they
are used where a retention setting has removed the transactions.
"""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from spindle.common.uuids import Uuid, uuid_text
from spindle.pipeline.export.delta_creation import create_table
from spindle.pipeline.export.model import (
    Coverage,
    ExportRefused,
    PartitionIdentity,
    WrittenFile,
)
from spindle.pipeline.export.parquet_files import parse_file_name
from spindle.pipeline.export.paths import delta_location
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

_TRANSACTION_RETENTION: Final = "delta.setTransactionRetentionDuration"
_PREFIX: Final = "spindle"
_MERGES_APP: Final = f"{_PREFIX}:merges"
"""The transaction that numbers the merges, so that of two at the same time one fails."""
_RETRY_APP: Final = f"{_PREFIX}:retry"
_UNNAMED_KEY: Final = ""
"""Transactions can be asked for by name, and not be listed."""
_LATEST_STATISTIC_MS: Final = 253402300799999
"""The last millisecond of the year 9999: later times have no text form in a Delta statistic."""


class DeltaExportTable:
    """A snapshot of the Delta table at `path`, which may not exist yet."""

    has_partition_columns_in_files = False
    limits_times = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.refresh()

    @property
    def data_directory(self) -> Path:
        return Path(self.path)

    @property
    def version(self) -> int | None:
        return None if self._table is None else int(self._table.version())

    @property
    def committed_ms(self) -> int | None:
        return None if self._table is None else int(self._table.history(1)[0]["timestamp"])

    @property
    def retry_mark(self) -> int | None:
        return self._transaction(_RETRY_APP)

    def columns(self) -> pa.Schema | None:
        return None if self._table is None else pa.schema(self._table.schema().to_arrow())

    def columns_fault(self, columns: pa.Schema) -> str | None:
        return names_fault(columns)

    def check_layout(self, layout: TableLayout) -> None:
        """Refuse an export whose columns or partition columns are not those of the table.

        Raises:
            ExportRefused: names, order or types differ.
        """
        if self._table is not None:
            known = pa.schema(self._table.schema().to_arrow())
            wanted = replace(layout, schema=pa.schema(Schema.from_arrow(layout.schema).to_arrow()))
            check_columns(self.path, known, wanted)
            check_partitioning(self.path, self._table.metadata().partition_columns, layout)

    def check_merge_key(self, merge_key: str | None) -> None:
        if self._table is None:
            return
        held = None
        if self._transaction(_MERGES_APP) is not None:
            is_same = merge_key is not None and self._transaction(_key_app(merge_key)) is not None
            held = merge_key if is_same else _UNNAMED_KEY
        refuse_other_key(self.path, held, merge_key)

    def prepare(self, layout: TableLayout) -> None:
        self.data_directory.mkdir(parents=True, exist_ok=True)
        prepare_beside_others(self, layout, self._add_columns)

    def _add_columns(self, layout: TableLayout) -> bool:
        if self._table is None:
            return True
        known = {field.name for field in self._table.schema().fields}
        fields = Schema.from_arrow(layout.schema).fields
        added = [field for field in fields if field.name not in known]
        try:
            if added:
                self._table.alter.add_columns(added)
                self.refresh()
        except CommitFailedError:
            return False
        return True

    def is_other_topic(self, topic: str, topic_id: Uuid) -> bool:
        """Return True if the table holds rows of a topic with this name and another id."""
        known = self._transaction(_topic_app(topic))
        return known is not None and known != _fingerprint(topic_id)

    def coverage(self, key: PartitionIdentity) -> Coverage | None:
        """Return the offsets of a partition that the table holds, None if it holds none."""
        named = self._by_name.get(key)
        end = self._transaction(_end_app(key))
        if end is None:
            return named
        start = self._transaction(_start_app(key))
        held = Coverage(end if start is None else start, end)
        if named is None:
            return held
        return Coverage(min(held.start, named.start), max(held.end, named.end))

    def commit(self, portion: CommitBatch) -> int:
        """Add the files to the table, record its new coverage, and return its new version.

        Raises:
            ExportConflict: another writer committed for one of these partitions.
        """
        properties = CommitProperties(
            custom_metadata={"spindle.export": "1"},
            app_transactions=list(self._transactions(portion)),
        )
        layout = portion.layout
        others = {*layout.partition_by, *layout.without_statistics}
        names = [name for name in layout.schema.names if name not in others]
        actions = [_add_action(self.path, file, names) for file in portion.files]
        now_ms = time.time_ns() // 1_000_000
        removals = [RemoveAction(name, True, now_ms) for name in sorted(portion.replaced)]
        try:
            if self._table is None:
                schema = Schema.from_arrow(layout.schema)
                create_table(self.path, schema, actions, layout.partition_by, properties)
            else:
                self._table.create_write_transaction(
                    [*actions, *removals],
                    "append",
                    self._table.schema(),
                    list(layout.partition_by),
                    commit_properties=properties,
                )
        except FileExistsError:
            self.refresh()
            raise conflict(self.path, "it was created meanwhile") from None
        except (CommitFailedError, DeltaError) as error:
            self.refresh()
            if not self._has_landed(portion):
                raise conflict(self.path, error) from error
        self.refresh()
        assert self._table is not None
        return int(self._table.version())

    def known_files(self) -> set[str]:
        """Return the files of the newest version and those that it has removed."""
        if self._table is None:
            return set()
        removed = self._table.vacuum(0, dry_run=True, enforce_retention_duration=False)
        return {*self._live_names(), *(unquote(name) for name in removed)}

    def compact(self, target_bytes: int) -> tuple[int, int]:
        """Compact by delta-rs; the coverage is in the transactions of the log, not in the files.

        Raises:
            ExportRefused: the table is set to forget these transactions.
            ExportConflict: another compaction replaced the same files first.
        """
        assert self._table is not None
        if _TRANSACTION_RETENTION in self._table.metadata().configuration:
            raise ExportRefused(
                f"the table {self.path} has the property {_TRANSACTION_RETENTION}; after a "
                "compaction it would forget which offsets it holds. Remove the property first"
            )
        try:
            metrics = self._table.optimize.compact(target_size=target_bytes)
        except CommitFailedError as error:
            raise conflict(self.path, error) from error
        self.refresh()
        return int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])

    def delete_removed(self, hours: float) -> int:
        """Delete the files that compactions replaced at least `hours` ago; return their number."""
        assert self._table is not None
        # delta-rs takes whole hours only; more are safe.
        whole = math.ceil(hours)
        named = self._table.vacuum(whole, dry_run=True, enforce_retention_duration=False)
        # The log also names files that an earlier vacuum has deleted.
        held = [name for name in named if (self.data_directory / unquote(name)).exists()]
        if held:
            self._table.vacuum(whole, dry_run=False, enforce_retention_duration=False)
        return len(held)

    def files_by_name(self) -> dict[str, Path]:
        return {name: self.data_directory / name for name in self._live_names()}

    def live_files(self) -> list[Path]:
        return [self.data_directory / name for name in self._live_names()]

    def _live_names(self) -> list[str]:
        if self._table is None:
            return []
        names: list[str] = pa.table(self._table.get_add_actions()).column("path").to_pylist()
        return [unquote(name) for name in names]

    def _has_landed(self, portion: CommitBatch) -> bool:
        """Return True if a commit was made although an error was reported.

        After the commit delta-rs may write a checkpoint and delete old log files, which may fail.
        """
        if portion.retry is not None:
            return self.retry_mark == portion.retry.after
        if portion.merge_key is not None and not portion.files:
            # A merge that only deletes. Another one of the same offsets deletes the same rows.
            return all(self.coverage(key) == growth.after for key, growth in portion.growth.items())
        return bool(portion.files) and portion.files[0].name in self._live_names()

    def refresh(self) -> None:
        """Become the newest snapshot."""
        location = delta_location(self.path)
        self._table = DeltaTable(location) if DeltaTable.is_deltatable(location) else None
        self._by_name = self._coverage_by_name()

    def _transactions(self, portion: CommitBatch) -> Iterable[Transaction]:
        """Return what the portion changes; delta-rs refuses it if another commit changed it too."""
        for topic, topic_id in portion.topics.items():
            if self._transaction(_topic_app(topic)) != _fingerprint(topic_id):
                yield Transaction(_topic_app(topic), _fingerprint(topic_id))
        if portion.retry is not None:
            yield Transaction(_RETRY_APP, portion.retry.after)
        if portion.merge_key is not None:
            yield Transaction(_MERGES_APP, (self._transaction(_MERGES_APP) or 0) + 1)
            if self._transaction(_key_app(portion.merge_key)) is None:
                yield Transaction(_key_app(portion.merge_key), 1)
        for key, after in coverage_after(self, portion).items():
            held = self.coverage(key)
            if held is None or held.start != after.start:
                yield Transaction(_start_app(key), after.start)
            if held is None or held.end != after.end:
                yield Transaction(_end_app(key), after.end)

    def _transaction(self, app: str) -> int | None:
        if self._table is None:
            return None
        version: int | None = self._table.transaction_version(app)
        return version

    def _coverage_by_name(self) -> dict[PartitionIdentity, Coverage]:
        coverages: dict[PartitionIdentity, Coverage] = {}
        for name in self._live_names():
            parsed = parse_file_name(name.rpartition("/")[2])
            if parsed is not None:
                key, held = parsed
                known = coverages.get(key, held)
                coverages[key] = Coverage(min(known.start, held.start), max(known.end, held.end))
        return coverages


def _topic_app(topic: str) -> str:
    return f"{_PREFIX}:topic:{topic}"


def _key_app(merge_key: str) -> str:
    return f"{_PREFIX}:key:{merge_key}"


def _end_app(key: PartitionIdentity) -> str:
    return f"{_PREFIX}:end:{uuid_text(key.topic_id)}:{key.partition}"


def _start_app(key: PartitionIdentity) -> str:
    return f"{_PREFIX}:start:{uuid_text(key.topic_id)}:{key.partition}"


def _fingerprint(topic_id: Uuid) -> int:
    """Fold a topic id into 63 bits, the size of a transaction version."""
    high, low = int.from_bytes(topic_id[:8], "big"), int.from_bytes(topic_id[8:], "big")
    return (high ^ low) >> 1


def _add_action(path: str, file: WrittenFile, columns: Sequence[str]) -> AddAction:
    modified_ms = (Path(path) / file.name).stat().st_mtime_ns // 1_000_000
    statistics = json.dumps(_statistics(file, columns))
    values = dict(file.partition_values)
    return AddAction(file.name, file.size_bytes, values, modified_ms, True, statistics)


def _statistics(file: WrittenFile, columns: Sequence[str]) -> dict[str, Any]:
    least: dict[str, Any] = {
        "topic": file.partition.topic,
        "partition": file.partition.partition,
        "offset": file.start_offset,
    }
    greatest: dict[str, Any] = {**least, "offset": file.end_offset - 1}
    first, last = file.min_timestamp_ms, file.max_timestamp_ms
    if first is not None and last is not None and first >= 0 and last <= _LATEST_STATISTIC_MS:
        least["timestamp"], greatest["timestamp"] = _time_text(first), _time_text(last)
    return {
        "numRecords": file.rows,
        "minValues": {name: value for name, value in least.items() if name in columns},
        "maxValues": {name: value for name, value in greatest.items() if name in columns},
        "nullCount": {name: 0 for name in least if name in columns},
    }


def _time_text(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
