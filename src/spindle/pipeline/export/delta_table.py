"""The Delta table of an export: the offsets that it holds, and the commit that adds files.

The table's own log keeps these offsets as application transactions, which delta-rs checks for
conflicts. There are two for each (topic id, partition): one with the end offset and one with the
first offset. A commit writes only those that it changes, so that one run can append new offsets
while another one fills in old ones. A third one, named after the topic, holds a fingerprint of the
topic id; it differs when a topic was deleted and created again. File names repeat the offsets; they
are used where a retention setting has removed the transactions.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from spindle.common.uuids import Uuid, uuid_text
from spindle.pipeline.export.model import (
    Coverage,
    ExportRefused,
    PartitionIdentity,
    WrittenFile,
)
from spindle.pipeline.export.parquet_files import parse_file_name
from spindle.pipeline.export.table import Portion, conflict, coverage_after

_PREFIX: Final = "spindle"
_LATEST_STATISTIC_MS: Final = 253402300799999
"""The last millisecond of the year 9999: later times have no text form in a Delta statistic."""


class DeltaExportTable:
    """A snapshot of the Delta table at `path`, which may not exist yet."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._load()

    @property
    def data_directory(self) -> Path:
        return Path(self.path)

    @property
    def version(self) -> int | None:
        return None if self._table is None else int(self._table.version())

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse an export whose columns are not those of the table.

        Raises:
            ExportRefused: names, order or types differ.
        """
        if self._table is None:
            return
        wanted = Schema.from_arrow(schema)
        if self._table.schema() != wanted:
            raise ExportRefused(
                f"the table {self.path} has the columns {_column_list(self._table.schema())}; the "
                f"export has {_column_list(wanted)} (names, order and types must agree)"
            )

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

    def commit(self, portion: Portion) -> int:
        """Add the files to the table, record its new coverage, and return its new version.

        Raises:
            ExportConflict: another writer committed for one of these partitions.
        """
        properties = CommitProperties(
            custom_metadata={"spindle.export": "1"},
            app_transactions=list(self._transactions(portion)),
        )
        names = portion.schema.names
        actions = [_add_action(self.path, file, names) for file in portion.files]
        schema = Schema.from_arrow(portion.schema)
        try:
            if self._table is None:
                create_table_with_add_actions(
                    self.path, schema, actions, "error", commit_properties=properties
                )
            else:
                self._table.create_write_transaction(
                    list(actions), "append", schema, commit_properties=properties
                )
        except (CommitFailedError, DeltaError) as error:
            raise conflict(self.path, error) from error
        self._load()
        assert self._table is not None
        return int(self._table.version())

    def _load(self) -> None:
        self._table = DeltaTable(self.path) if DeltaTable.is_deltatable(self.path) else None
        self._by_name = self._coverage_by_name()

    def _transactions(self, portion: Portion) -> Iterable[Transaction]:
        """Return what the portion changes; delta-rs refuses it if another commit changed it too."""
        for topic, topic_id in portion.topics.items():
            if self._transaction(_topic_app(topic)) != _fingerprint(topic_id):
                yield Transaction(_topic_app(topic), _fingerprint(topic_id))
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
        found: dict[PartitionIdentity, Coverage] = {}
        for uri in [] if self._table is None else self._table.file_uris():
            parsed = parse_file_name(uri.rpartition("/")[2])
            if parsed is not None:
                key, held = parsed
                known = found.get(key, held)
                found[key] = Coverage(min(known.start, held.start), max(known.end, held.end))
        return found


def _column_list(schema: Schema) -> str:
    types = json.loads(schema.to_json())["fields"]
    return ", ".join(
        f"{field['name']} {field['type'] if isinstance(field['type'], str) else 'array'}"
        for field in types
    )


def _topic_app(topic: str) -> str:
    return f"{_PREFIX}:topic:{topic}"


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
    return AddAction(file.name, file.size_bytes, {}, modified_ms, True, statistics)


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
