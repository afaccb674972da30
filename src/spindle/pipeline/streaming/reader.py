"""The stream reader of `spindle`: Spark asks it what to read, and its tasks read.

Spark calls all methods but `read` in one Python process beside the driver, which lives as long as
the query. A failure in the constructor would be hidden by an error of PySpark, so the options are
checked by the first call.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.brokers.reading import read_ranges
from spindle.pipeline.streaming.admission import TriggerLimits
from spindle.pipeline.streaming.options import stream_read_options
from spindle.pipeline.streaming.planner import StreamPlanner
from spindle.pipeline.streaming.position import (
    INITIAL,
    StreamPosition,
    is_initial,
    offsets_to_json,
    position_from_json,
    position_to_json,
)
from spindle.pipeline.user_errors import PlainErrors


@dataclass
class StreamPartition(InputPartition):
    """The offset ranges that one task of a batch reads."""

    ranges: tuple[OffsetRange, ...]


class BrokerStreamReader(PlainErrors, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics through the brokers as a stream.

    Args:
        options: as given to the source.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.given = dict(options)
        """The options as they were given."""
        self._sleep = sleep
        self._clock = clock
        self._started: StreamPlanner | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return a mark; the first call of `latestOffset` finds out where the stream starts."""
        self._planner()
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the options that Spark can express; the planner knows all of them."""
        return _read_limit(self._planner().options.limits)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the current ends as the target of this run."""
        self._planner().set_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; `start` itself if there is nothing to read."""
        planner = self._planner()
        position = _position(start)
        end = planner.next_end(position, is_limited=not isinstance(limit, ReadAllAvailable))
        if position is not None and end.is_at(position):
            return start
        return position_to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the partitions as the last trigger saw them."""
        seen = self._planner().latest
        return None if seen is None else offsets_to_json(seen.ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch, also of one that is repeated after a restart."""
        return [StreamPartition(ranges) for ranges in self.tasks(start, end)]

    def tasks(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[OffsetRange, ...]]:
        """Return the offsets that each task of a batch reads, the same whenever it is repeated."""
        return self._planner().tasks(_position(start), position_from_json(end))

    def existing(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges whose partitions the cluster still has."""
        return self._planner().existing(ranges) if ranges else []

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Return the Arrow batches of a task."""
        options = stream_read_options(self.given).read
        return read_ranges(options, partition.ranges)

    def stop(self) -> None:
        """Close the connections."""
        if self._started is not None:
            self._started.close()

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy of the reader, which must not carry connections.
        return self.__dict__ | {"_started": None}

    def _planner(self) -> StreamPlanner:
        if self._started is None:
            options = stream_read_options(self.given)
            self._started = StreamPlanner(options, sleep=self._sleep, clock=self._clock)
        return self._started


def _position(start: dict[str, Any]) -> StreamPosition | None:
    return None if is_initial(start) else position_from_json(start)


def _read_limit(limits: TriggerLimits) -> ReadLimit:
    if limits.max_offsets is not None:
        return ReadMaxRows(limits.max_offsets)
    if limits.max_bytes is not None:
        return ReadMaxBytes(limits.max_bytes)
    if limits.min_offsets is not None or limits.min_bytes is not None:
        return ReadMinRows(limits.min_offsets or 1)
    return ReadAllAvailable()
