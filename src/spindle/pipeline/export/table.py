"""The port of a table: what an export needs of Delta, Iceberg or plain Parquet.

An `ExportTable` is a snapshot. It knows which offsets the table holds, and its `commit` adds the
files of one portion only if no other writer has changed that knowledge since: this comparison is
what makes an export exact, whoever else writes and wherever a run is killed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from spindle.common.uuids import Uuid
from spindle.pipeline.export.model import (
    Coverage,
    ExportConflict,
    Growth,
    PartitionIdentity,
    WrittenFile,
)


@dataclass(frozen=True, slots=True)
class Portion:
    """The files and offsets that become part of a table with one commit.

    `growth` has every partition that the portion extends. `topics` has the ids of all topics of the
    run.
    """

    schema: pa.Schema
    files: Sequence[WrittenFile]
    growth: Mapping[PartitionIdentity, Growth]
    topics: Mapping[str, Uuid]


class ExportTable(Protocol):
    """A snapshot of a table, which may not exist yet. `path` names the table in messages."""

    path: str

    @property
    def data_directory(self) -> Path:
        """The directory into which tasks write the files of the next portion."""
        ...

    @property
    def version(self) -> int | None:
        """The version of the snapshot, None while there is no table."""
        ...

    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse an export whose columns are not those of the table.

        Raises:
            ExportRefused: names, order or types differ.
        """
        ...

    def is_other_topic(self, topic: str, topic_id: Uuid) -> bool:
        """Return True if the table holds rows of a topic with this name and another id."""
        ...

    def coverage(self, key: PartitionIdentity) -> Coverage | None:
        """Return the offsets of a partition that the table holds, None if it holds none."""
        ...

    def commit(self, portion: Portion) -> int:
        """Add a portion, become the snapshot that has it, and return its version.

        Raises:
            ExportConflict: another writer committed for one of these partitions.
        """
        ...


def coverage_after(table: ExportTable, portion: Portion) -> dict[PartitionIdentity, Coverage]:
    """Return the coverage of the portion's partitions when it is added to this snapshot.

    Raises:
        ExportConflict: another writer has extended one of them at the same side.
    """
    grown: dict[PartitionIdentity, Coverage] = {}
    for key, growth in portion.growth.items():
        after = growth.onto(table.coverage(key))
        if after is None:
            raise conflict(table.path, f"partition {key.partition} has other offsets now")
        grown[key] = after
    return grown


def conflict(path: str, reason: object) -> ExportConflict:
    """Return the error of a commit that came second."""
    return ExportConflict(f"the table {path} was changed by another export: {reason}; run again")
