"""Topics of changes, their exports by key in this process, and the rows that a table must have."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from export_doubles import NO_SPARK, rows_of, table_of
from log_directory_files import ReplicaWriter, format_directory

from spindle.common.ids import TopicPartition
from spindle.pipeline.export import exporter, parquet_files
from spindle.pipeline.export.dead_letters import dead_letters_of
from spindle.pipeline.export.jobs import TableFormat
from spindle.pipeline.export.model import ExportResult, WrittenFile
from spindle.pipeline.export.parquet_files import write_range
from spindle.pipeline.export.portions import PortionSize
from spindle.pipeline.export.settings import ExportOptions, source_and_settings
from spindle.protocol.records.builder import SimpleRecord

START_MS = 1_700_000_000_000
JSON = {"valueFormat": "json", "valueSchema": "id BIGINT, name STRING", "columns": "id,name"}


class Killed(BaseException):
    """The process of the export ends here."""


class Upserts:
    """A topic `t` of two partitions, and a table that has one row for each of its keys."""

    def __init__(self, root: Path, table_format: TableFormat) -> None:
        self.root = root
        self.format = table_format
        self.path = root / "tables" / "t"
        self.writers = []
        self._sent = 0
        for partition in (0, 1):
            directory = format_directory(root / f"d{partition}")
            writer = ReplicaWriter(directory, TopicPartition("t", partition))
            self.writers.append(writer)
            (directory / ".kafka_cleanshutdown").touch()

    def send(
        self, key: bytes | None, value: bytes | None, partition: int = 0, time_ms: int | None = None
    ) -> None:
        """Append a record; its time is that of the number of records before, if none is given."""
        self._sent += 1
        time = START_MS + self._sent if time_ms is None else time_ms
        self.writers[partition].append_records([SimpleRecord(key, value, time)])

    def run(
        self,
        options: dict[str, str] | None = None,
        offsets: int | None = 1000,
        commit: Callable[[Callable[[], int]], int] = lambda commit: commit(),
        **given: Any,
    ) -> ExportResult:
        """Run an export of everything that is new.

        Args:
            commit: Called for each commit of the table with the function that makes it.
        """
        chosen = {
            "logDirs": f"{self.root}/d*",
            "subscribe": "t",
            **(JSON if options is None else options),
        }
        table: Any = table_of(self.format, self.path)
        settings = cast(ExportOptions, {"mode": "upsert", "key": "id", **given})
        if offsets is not None:
            settings["portion"] = PortionSize(offsets=offsets)
        source, chosen_settings = source_and_settings(chosen, settings, table)
        letters: Any = table_of(self.format, Path(dead_letters_of(str(self.path))))
        make = table.commit
        table.commit = lambda portion: commit(lambda: make(portion))
        letters = letters if chosen_settings.has_dead_letters else None
        return exporter.run_export(NO_SPARK, source, table, chosen_settings, None, letters)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the table, in the order of their first columns."""
        table = table_of(self.format, self.path)
        if self.format == "parquet":
            columns = table.columns()
            assert columns is not None
            hive = ds.partitioning(flavor="hive")
            rows = ds.dataset(self.path, schema=columns, partitioning=hive).to_table()
        else:
            rows = rows_of(self.format, self.path)
        as_dicts: list[dict[str, Any]] = rows.to_pylist()
        return sorted(as_dicts, key=lambda row: [str(value) for value in row.values()])

    def letters(self) -> list[tuple[int, str]]:
        """Return the offsets and reasons of the dead letters, in their order."""
        rows = rows_of(self.format, Path(dead_letters_of(str(self.path))))
        letters = rows.select(["offset", "reason"]).to_pylist()
        return sorted((letter["offset"], letter["reason"]) for letter in letters)

    def files(self) -> set[str]:
        """Return the names of all data files, committed or not."""
        names = (path.name for path in self.path.rglob("*.parquet*"))
        return {name for name in names if ".checkpoint." not in name}


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tasks of exports run in this process."""

    def write_files(
        spark: Any, source: Any, portion: Any, settings: Any, report: Any
    ) -> list[WrittenFile]:
        pieces = [piece for task in source.tasks(portion) for piece in task]
        return [
            file
            for attempt, piece in enumerate(pieces)
            for file in write_range(source, piece, settings, attempt)
        ]

    monkeypatch.setattr(exporter, "write_files", write_files)


@contextmanager
def kill_at(step: int) -> Iterator[list[str]]:
    """Kill the process before step number `step` of a run; yield the steps before.

    A step is a call that changes the disk. A killed process removes nothing, so files that are not
    complete stay.
    """
    steps: list[str] = []

    def killing(name: str, function: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            if len(steps) == step:
                raise Killed(name)
            steps.append(name)
            return function(*args, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "link", "rename", "fsync"):
            patch.setattr(os, name, killing(name, getattr(os, name)))
        patch.setattr(parquet_files._RangeFiles, "remove", lambda files: None)
        patch.setattr(exporter._Run, "_remove_uncommitted", lambda run, directory: None)
        patch.setattr(pa.parquet.ParquetWriter, "__init__", _named_writer(killing))
        yield steps


def _named_writer(killing: Any) -> Any:
    make = pa.parquet.ParquetWriter.__init__
    return killing("write", make)
