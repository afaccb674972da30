"""The plan of a read from log directories, made on the driver: which task reads which offsets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark.sql.datasource import InputPartition

from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.segments_fallback import rows_through_brokers
from spindle.pipeline.segments.broker_state import live_cluster
from spindle.pipeline.segments.failover import ReadSettings, ThroughBrokers, read_settings
from spindle.pipeline.segments.options import SegmentOptions
from spindle.pipeline.segments.partitions import ReadablePartition, readable_partitions
from spindle.pipeline.segments.ranges import (
    SegmentRange,
    locate_pieces,
    plan_tasks,
    resolve_ranges,
)

T = TypeVar("T")

_PLANNING_ATTEMPTS: Final = 5


@dataclass
class SegmentsPartition(InputPartition):
    """The offset ranges that one task reads."""

    ranges: tuple[SegmentRange, ...]


class SegmentsPlan:
    """The plan of a read from log directories, made on the driver.

    Args:
        way: returns the fallback: tasks read through the brokers what their machine lacks.
    """

    def __init__(
        self,
        options: SegmentOptions,
        way: Callable[[SegmentOptions], ThroughBrokers | None] = rows_through_brokers,
    ) -> None:
        self._cluster = live_cluster(options)
        self._options = options if self._cluster is None else self._cluster.located(options)
        self.filters = options.row_bounds
        self.settings = read_settings(self._options, way(options))

    def partitions(self) -> list[SegmentsPartition]:
        """Return the tasks; a single one without ranges if there is nothing to read."""
        tasks = self._planned(lambda resolved: plan_tasks(self._options, resolved))
        return [SegmentsPartition(ranges) for ranges in tasks or [()]]

    def locate(
        self, pieces: Mapping[TopicPartition, Sequence[tuple[int, int]]]
    ) -> dict[TopicPartition, list[SegmentRange]]:
        """Return the parts of pieces, from start to end, that the directories have."""
        return self._planned(lambda resolved: locate_pieces(self._options, resolved, pieces))

    def _planned(self, plan: Callable[[list[tuple[ReadablePartition, int, int]]], T]) -> T:
        for attempts_left in range(_PLANNING_ATTEMPTS - 1, -1, -1):
            try:
                partitions = readable_partitions(self._options, self._cluster)
                resolved = resolve_ranges(self._options, partitions, self.filters)
                return plan(resolved)
            except FileNotFoundError:
                # Retention, compaction or a move removed files between two looks at them.
                if not attempts_left:
                    raise
        raise AssertionError("unreachable")

    def narrowed_settings(self) -> ReadSettings:
        """Return the settings of the tasks, with the filters' bounds on timestamps."""
        filters = self.filters
        return self.settings.with_timestamps(filters.min_timestamp_ms, filters.max_timestamp_ms)
