"""The stream reader of `spindle-segments`: brokers plan the batches, disks give the records.

Offsets, checkpoint, limits and losses are those of `spindle` (see `planner`). Each batch is a read
of exact offsets from the log directories.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spindle.common.uuids import ZERO_UUID, uuid_text
from spindle.pipeline.segments.options import parse_segment_options
from spindle.pipeline.segments.reader import read_ranges
from spindle.pipeline.segments.resuming import ReadSettings
from spindle.pipeline.sources.broker_limits import without_limits
from spindle.pipeline.sources.broker_ranges import OffsetRange
from spindle.pipeline.sources.segments import SegmentsPartition, SegmentsPlan
from spindle.pipeline.streaming.position import offsets_to_json
from spindle.pipeline.streaming.reader import BrokerStreamReader

_REPLACED: Final = frozenset(("subscribe", "subscribepattern", "assign", "topicids"))


@dataclass
class StreamSegmentsPartition(InputPartition):
    """The ranges that one task of a batch reads, and how; tasks do not see the driver's plan."""

    planned: SegmentsPartition
    settings: ReadSettings


class SegmentsStreamReader(BrokerStreamReader):
    """Reads topics from log directories as a stream."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch, also of one that is repeated after a restart."""
        ranges = self.ranges(start, end)
        if not ranges:
            return []
        plan = SegmentsPlan(parse_segment_options(exact_read(self.given, ranges)))
        settings = plan.narrowed_settings()
        return [StreamSegmentsPartition(each, settings) for each in plan.partitions()]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Return the Arrow batches of a task."""
        return read_ranges(partition.planned.ranges, partition.settings)


def exact_read(given: Mapping[str, str], ranges: Iterable[OffsetRange]) -> dict[str, str]:
    """Return the options of a batch read of exactly these ranges."""
    wanted = {each.partition: each for each in ranges}
    start = offsets_to_json({each: wanted[each].start_offset for each in wanted})
    end = offsets_to_json({each: wanted[each].end_offset for each in wanted})
    ids = {each.topic: wanted[each].topic_id for each in wanted}
    kept = without_limits(given)
    return {name: text for name, text in kept.items() if name.lower() not in _REPLACED} | {
        "assign": json.dumps({topic: list(map(int, numbers)) for topic, numbers in start.items()}),
        "startingOffsets": json.dumps(start),
        "endingOffsets": json.dumps(end),
        "topicIds": json.dumps(
            {topic: uuid_text(found) for topic, found in ids.items() if found != ZERO_UUID}
        ),
    }
