"""The compaction of Iceberg and Parquet tables: small files become one, offsets stay what they are.

This process joins small files of the same partition of a topic, and replaces them with one commit
for every gigabyte. An export may run at the same time.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol

from spindle.common.ids import TopicPartition
from spindle.pipeline.export.model import Coverage, PartitionIdentity, WrittenFile
from spindle.pipeline.export.parquet_files import (
    compacted_name,
    join_files,
    parse_compacted_name,
    parse_file_name,
)
from spindle.pipeline.export.table import CommitBatch, ExportTable, TableLayout

_COMMIT_BYTES: Final = 1024 * 1024 * 1024


class JoinableTable(ExportTable, Protocol):
    """A table whose files this module joins."""

    def layout(self) -> TableLayout:
        """Return the columns of the table."""
        ...


@dataclass(frozen=True, slots=True)
class _SmallFile:
    name: str
    path: Path
    size_bytes: int
    key: PartitionIdentity
    offsets: Coverage

    @property
    def group(self) -> tuple[str, PartitionIdentity]:
        """The directory, whose path has the values of partition columns, and the partition."""
        return self.name.rpartition("/")[0], self.key


def join_small_files(table: JoinableTable, target_bytes: int) -> tuple[int, int]:
    """Make files of up to `target_bytes` of smaller ones; return how many became how many.

    Raises:
        ExportConflict: another compaction replaced the same files first.
    """
    before, after = 0, 0
    for batch in _batches(_groups(table, target_bytes)):
        run_id = secrets.token_hex(6)
        written = [_joined(table, group, run_id) for group in batch]
        replaced = frozenset(file.name for group in batch for file in group)
        try:
            table.commit(CommitBatch(table.layout(), written, replaced=replaced))
        except BaseException:
            table.refresh()
            known = table.known_files()
            for file in written:
                if file.name not in known:
                    (table.data_directory / file.name).unlink(missing_ok=True)
            raise
        before, after = before + len(replaced), after + len(written)
    return before, after


def _groups(table: JoinableTable, target_bytes: int) -> Iterator[list[_SmallFile]]:
    """Yield the files that become one, two or more each."""
    small = sorted(_small_files(table, target_bytes), key=lambda each: (each.group, each.offsets))
    for _, files in groupby(small, lambda each: each.group):
        group: list[_SmallFile] = []
        for file in files:
            if group and sum(file.size_bytes for file in group) + file.size_bytes > target_bytes:
                if len(group) > 1:
                    yield group
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


def _small_files(table: JoinableTable, target_bytes: int) -> Iterator[_SmallFile]:
    for name, path in table.files_by_name().items():
        parsed = parse_file_name(path.name) or parse_compacted_name(path.name)
        size_bytes = path.stat().st_size
        if parsed is not None and size_bytes < target_bytes // 2:
            yield _SmallFile(name, path, size_bytes, *parsed)


def _batches(groups: Iterator[list[_SmallFile]]) -> Iterator[list[list[_SmallFile]]]:
    batch: list[list[_SmallFile]] = []
    size_bytes = 0
    for group in groups:
        batch.append(group)
        size_bytes += sum(file.size_bytes for file in group)
        if size_bytes >= _COMMIT_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _joined(table: JoinableTable, group: Sequence[_SmallFile], run_id: str) -> WrittenFile:
    offsets = Coverage(group[0].offsets.start, max(file.offsets.end for file in group))
    directory, key = group[0].group
    name = compacted_name(Path(group[0].name).name, offsets, run_id)
    relative = f"{directory}/{name}" if directory else name
    target = table.data_directory / relative
    layout = table.layout()
    rows = join_files([file.path for file in group], target, layout.partition_by)
    partition = TopicPartition("", key.partition)
    size_bytes = target.stat().st_size
    return WrittenFile(relative, partition, key.topic_id, *offsets, rows, size_bytes, None, None)
