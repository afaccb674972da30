"""The two sources of this package in the form that an export uses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from spindle.pipeline.export.model import ExportSource, PlannedRange
from spindle.pipeline.segments.live import live_cluster
from spindle.pipeline.segments.options import SegmentOptions, parse_segment_options
from spindle.pipeline.segments.partitions import readable_partitions
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.pipeline.segments.ranges import (
    SegmentRange,
    plan_tasks,
    range_of,
    resolve_ranges,
)
from spindle.pipeline.segments.reader import read_range, read_settings


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


class SegmentsExport:
    """Reads from log directories."""

    def __init__(self, options: SegmentOptions) -> None:
        if options.row_bounds != PushedFilters():
            raise ValueError("minTimestamp and maxTimestamp: an export takes all rows of a range")
        self._cluster = live_cluster(options)
        self._options = options if self._cluster is None else self._cluster.located(options)
        self._settings = read_settings(self._options)
        self.columns = options.columns
        self.start_is_explicit = options.start_is_explicit
        self.fail_on_data_loss = options.fail_on_data_loss

    def ranges(self) -> Sequence[PlannedRange]:
        partitions = readable_partitions(self._options, self._cluster)
        resolved = resolve_ranges(self._options, partitions, PushedFilters())
        return [range_of(partition, start, end) for partition, start, end in resolved]

    def tasks(self, ranges: Sequence[PlannedRange]) -> list[tuple[PlannedRange, ...]]:
        by_partition = {
            each.partition: each for each in readable_partitions(self._options, self._cluster)
        }
        resolved = [
            (by_partition[piece.partition], piece.start_offset, piece.end_offset)
            for piece in ranges
        ]
        return cast(list[tuple[PlannedRange, ...]], plan_tasks(self._options, resolved))

    def read(self, piece: SegmentRange) -> Iterator[Any]:
        return read_range(piece, self._settings)


class BrokerExport:
    """Reads through the brokers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        from spindle.pipeline.sources.broker_options import broker_read_options

        self._options = broker_read_options(options)
        if self._options.row_bounds != PushedFilters():
            raise ValueError("minTimestamp and maxTimestamp: an export takes all rows of a range")
        self.columns = tuple(self._options.columns)
        self.start_is_explicit = any(name.lower().startswith("starting") for name in options)
        self.fail_on_data_loss = self._options.fail_on_data_loss

    def ranges(self) -> Sequence[PlannedRange]:
        from spindle.pipeline.sources.broker_planning import plan_tasks as plan_broker_tasks

        return [piece for task in plan_broker_tasks(self._options) for piece in task]

    def tasks(self, ranges: Sequence[PlannedRange]) -> list[tuple[PlannedRange, ...]]:
        return [(piece,) for piece in ranges]

    def read(self, piece: Any) -> Iterator[Any]:
        from spindle.pipeline.sources.broker_reading import read_ranges

        return read_ranges(self._options, (piece,))
