"""The two sources of this package in the form that an export uses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from spindle.client.blocking.client import WireClient
from spindle.common.ids import TopicPartition
from spindle.common.uuids import uuid_text
from spindle.pipeline.brokers.options import SOURCE_OPTIONS, broker_read_options
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.export.model import ExportSource, PlannedRange
from spindle.pipeline.options.limits import AtPosition, start_is_explicit
from spindle.pipeline.segments.broker_state import live_cluster
from spindle.pipeline.segments.failover import read_settings
from spindle.pipeline.segments.options import (
    DIRECTORY_OPTIONS,
    SegmentOptions,
    parse_segment_options,
)
from spindle.pipeline.segments.partitions import ReadablePartition, readable_partitions
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.pipeline.segments.ranges import (
    SegmentRange,
    log_bytes,
    plan_tasks,
    range_of,
    resolve_ranges,
)
from spindle.pipeline.segments.reader import read_range
from spindle.protocol.sentinels import LATEST

if TYPE_CHECKING:
    from spindle.pipeline.brokers.ranges import OffsetRange


def export_source(name: str, options: Mapping[str, str]) -> ExportSource:
    """Return the export's form of the source `spindle-segments` or `spindle`.

    Raises:
        ValueError: another name, or options that the source refuses.
    """
    if name == "spindle-segments":
        return SegmentsExport(parse_segment_options(options))
    if name == "spindle":
        return BrokerExport(options)
    raise ValueError(f"source {name!r} cannot be exported; want spindle-segments or spindle")


def known_options(name: str) -> tuple[str, ...]:
    """Return the options of a source, without the properties of the client."""
    return SOURCE_OPTIONS if name == "spindle" else (*SOURCE_OPTIONS, *DIRECTORY_OPTIONS)


class SegmentsExport:
    """Reads from log directories."""

    def __init__(self, options: SegmentOptions) -> None:
        if options.row_bounds != PushedFilters():
            raise ValueError("minTimestamp and maxTimestamp: an export takes all rows of a range")
        self._cluster = live_cluster(options)
        self._options = options if self._cluster is None else self._cluster.located(options)
        from spindle.pipeline.brokers.segments_fallback import rows_through_brokers

        self._settings = read_settings(self._options, rows_through_brokers(self._options))
        self.columns = options.columns
        self.start_is_explicit = options.start_is_explicit
        self.ends_at_log_end = self._cluster is not None and options.stop == AtPosition(LATEST)
        self.fail_on_data_loss = options.fail_on_data_loss

    def ranges(self) -> Sequence[PlannedRange]:
        partitions = readable_partitions(self._options, self._cluster)
        resolved = resolve_ranges(self._options, partitions, PushedFilters(), keep_empty=True)
        return [range_of(partition, start, end) for partition, start, end in resolved]

    def log_bytes(self, ranges: Sequence[PlannedRange]) -> int:
        return sum(log_bytes(*resolved) for resolved in self._resolved(ranges))

    def tasks(self, ranges: Sequence[PlannedRange]) -> list[tuple[PlannedRange, ...]]:
        tasks = plan_tasks(self._options, self._resolved(ranges))
        return cast(list[tuple[PlannedRange, ...]], tasks)

    def _resolved(self, ranges: Sequence[PlannedRange]) -> list[tuple[ReadablePartition, int, int]]:
        """Find the ranges in the log directories as these are now."""
        partitions = {
            (partition.partition, partition.topic_id): partition
            for partition in readable_partitions(self._options, self._cluster)
        }
        for piece in ranges:
            if (piece.partition, piece.topic_id) not in partitions:
                raise DataLoss(
                    f"{piece.partition} of topic id {uuid_text(piece.topic_id)} is no longer in "
                    "the log directories: it was moved, or its topic was deleted"
                )
        return [
            (partitions[piece.partition, piece.topic_id], piece.start_offset, piece.end_offset)
            for piece in ranges
        ]

    def read(self, piece: SegmentRange) -> Iterator[Any]:
        return read_range(piece, self._settings)


class BrokerExport:
    """Reads through the brokers."""

    def __init__(self, options: Mapping[str, str]) -> None:

        self._options = broker_read_options(options)
        if self._options.row_bounds != PushedFilters():
            raise ValueError("minTimestamp and maxTimestamp: an export takes all rows of a range")
        self.columns = tuple(self._options.columns)
        self.ends_at_log_end = self._options.stop == AtPosition(LATEST)
        self.start_is_explicit = start_is_explicit(options)
        self.fail_on_data_loss = self._options.fail_on_data_loss

    def ranges(self) -> Sequence[PlannedRange]:
        from spindle.pipeline.brokers.planning import plan_tasks as plan_broker_tasks

        whole: dict[TopicPartition, OffsetRange] = {}
        tasks = plan_broker_tasks(self._options, keep_empty_ends=True)
        for piece in (piece for task in tasks for piece in task):
            before = whole.get(piece.partition, piece)
            # A log start that moves while the export runs is data loss: the table would have a gap.
            whole[piece.partition] = replace(
                piece,
                start_offset=min(before.start_offset, piece.start_offset),
                end_offset=max(before.end_offset, piece.end_offset),
                from_earliest=False,
                to_latest=False,
            )
        return list(whole.values())

    def log_bytes(self, ranges: Sequence[PlannedRange]) -> int:
        from spindle.pipeline.brokers.planning import bytes_per_offset

        wanted = cast("list[OffsetRange]", list(ranges))
        with WireClient(self._options.client) as client:
            per_offset = bytes_per_offset(client, wanted)
        return int(
            sum(offset_range.size * per_offset[offset_range.partition] for offset_range in wanted)
        )

    def tasks(self, ranges: Sequence[PlannedRange]) -> list[tuple[PlannedRange, ...]]:
        from spindle.pipeline.brokers.planning import cut_into_tasks

        wanted = cast("list[OffsetRange]", list(ranges))
        with WireClient(self._options.client) as client:
            tasks = cut_into_tasks(client, self._options, wanted)
        return cast(list[tuple[PlannedRange, ...]], tasks)

    def read(self, piece: Any) -> Iterator[Any]:
        from spindle.pipeline.brokers.reading import read_ranges

        return read_ranges(self._options, (piece,))
