"""How far tables are behind their topics: offsets and time, and records that were set aside.

A table knows its partitions by topic ids, so the topics of a table are those topics of the cluster
of which it holds a partition.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from spindle.client.cluster_metadata import ClusterView
from spindle.common.ids import TopicPartition
from spindle.pipeline.export.continuation import key_of
from spindle.pipeline.export.dead_letters import dead_letters_of
from spindle.pipeline.export.iceberg_catalog import CATALOG_FILE
from spindle.pipeline.export.jobs import ExportJob, TableFormat
from spindle.pipeline.export.manifest_log import log_directory
from spindle.pipeline.export.model import ExportSource, PartitionIdentity, PlannedRange
from spindle.pipeline.export.paths import local_directory
from spindle.pipeline.export.sources import BrokerExport
from spindle.pipeline.export.table import ExportTable


class TablePlace(NamedTuple):
    """A table: its format, and its path, or its NAMESPACE.NAME in a catalog of Iceberg."""

    table_format: TableFormat
    table: str
    catalog: Mapping[str, str] | None = None

    @property
    def job(self) -> ExportJob:
        """An export into the table, of no topic."""
        return ExportJob(self.table_format, self.table, {}, catalog=self.catalog)


class PartitionLag(NamedTuple):
    """The end of a partition in a table, and its start and end in the log.

    The end in the table is the start of the log for a partition that it does not hold yet.
    `waiting_since_ms` is the time of the oldest record that the table lacks, None if it has all.
    """

    partition: TopicPartition
    table_end: int
    log_start: int
    log_end: int
    waiting_since_ms: int | None = None

    @property
    def lag(self) -> int:
        """The number of offsets that the table lacks."""
        return max(0, self.log_end - self.table_end)

    @property
    def lost(self) -> int:
        """The number of offsets that the log no longer has although the table lacks them."""
        return max(0, self.log_start - self.table_end)


class TableStatus(NamedTuple):
    """The state of a table beside its topics.

    `version` is None if there is no table. `committed_ms` is the time of its last commit.
    `recreated` are topics that were deleted and created again since.
    """

    place: TablePlace
    version: int | None
    committed_ms: int | None = None
    partitions: tuple[PartitionLag, ...] = ()
    dead_letters: int = 0
    recreated: tuple[str, ...] = ()

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(lag.partition.topic for lag in self.partitions))

    @property
    def lag(self) -> int:
        """The number of offsets that the table lacks."""
        return sum(lag.lag for lag in self.partitions)

    def behind_ms(self, now_ms: int) -> int:
        """Return the age of the oldest record that the table lacks, 0 if it has all."""
        times = [
            lag.waiting_since_ms for lag in self.partitions if lag.waiting_since_ms is not None
        ]
        return max(0, now_ms - min(times)) if times else 0


def find_tables(path: str | Path) -> list[TablePlace]:
    """Return the table at a path, or the tables in the directory at the path.

    Tables of dead letters belong to the tables beside them, and are left out.
    """
    directory = local_directory(path)
    own = _format_at(directory)
    if own is not None:
        return [TablePlace(own, str(directory))]
    if not directory.is_dir():
        return []
    places = []
    suffix = dead_letters_of("")
    for below in sorted(directory.iterdir()):
        is_letters = below.name.endswith(suffix) and (
            below.with_name(below.name.removesuffix(suffix)).is_dir()
        )
        table_format = _format_at(below)
        if table_format is not None and not is_letters:
            places.append(TablePlace(table_format, str(below)))
    return places


def _format_at(directory: Path) -> TableFormat | None:
    if (directory / "_delta_log").is_dir():
        return "delta"
    if log_directory(directory).is_dir():
        return "parquet"
    if (directory / "metadata").is_dir() and directory.with_name(CATALOG_FILE).exists():
        return "iceberg"
    return None


def table_statuses(
    places: Iterable[TablePlace], options: Mapping[str, str], view: ClusterView
) -> list[TableStatus]:
    """Return the states of tables beside the topics of a cluster.

    Args:
        options: The addresses of the brokers and the properties of the client, as of the source
            `spindle`.
        view: All topics of the cluster.

    Raises:
        ApiError, ClientError: a broker cannot be asked.
    """
    opened = [(place, place.job.open_table()) for place in places]
    held = {
        name
        for _, table in opened
        for name, topic in view.topics.items()
        if any(
            table.coverage(PartitionIdentity(topic.topic_id, number)) is not None
            for number in topic.partitions
        )
    }
    planned: Sequence[PlannedRange] = ()
    source: ExportSource | None = None
    if held:
        source = BrokerExport(
            {
                **options,
                "subscribe": ",".join(sorted(held)),
                "columns": "offset,timestamp",
                "failOnDataLoss": "false",
            }
        )
        planned = source.ranges()
    return [_status(place, table, planned, source, view) for place, table in opened]


def _status(
    place: TablePlace,
    table: ExportTable,
    planned: Sequence[PlannedRange],
    source: ExportSource | None,
    view: ClusterView,
) -> TableStatus:
    if table.version is None and not table.columns():
        return TableStatus(place, None)
    covered = {key_of(piece): table.coverage(key_of(piece)) for piece in planned}
    topic_ids = {key.topic_id for key, coverage in covered.items() if coverage is not None}
    lags = []
    for piece in sorted(planned, key=lambda planned_range: planned_range.partition):
        if piece.topic_id not in topic_ids:
            continue
        coverage = covered[key_of(piece)]
        end = piece.start_offset if coverage is None else coverage.end
        since = None if source is None else _first_time_ms(source, piece, end)
        lags.append(PartitionLag(piece.partition, end, piece.start_offset, piece.end_offset, since))
    recreated = tuple(
        name
        for name, topic in sorted(view.topics.items())
        if table.is_other_topic(name, topic.topic_id)
    )
    letters = place.job.open_dead_letters()
    count = sum(pq.read_metadata(path).num_rows for path in letters.live_files())
    return TableStatus(place, table.version, table.committed_ms, tuple(lags), count, recreated)


def _first_time_ms(source: ExportSource, piece: Any, table_end: int) -> int | None:
    """Return the time of the first record at or behind an offset, None if there is none."""
    start = max(piece.start_offset, table_end)
    if start >= piece.end_offset:
        return None
    for batch in source.read(replace(piece, start_offset=start)):
        if batch.num_rows:
            return int(batch.column("timestamp")[0].cast(pa.int64()).as_py()) // 1000
    return None
