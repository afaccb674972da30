"""The stream reader of `spindle-segments`: brokers plan the batches, disks give the records.

Offsets, checkpoint, limits and losses are those of `spindle` (see `planner`). Each batch is a read
of exact offsets from the log directories.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID, uuid_text
from spindle.pipeline.brokers.ranges import OffsetRange
from spindle.pipeline.options.limits import without_limits
from spindle.pipeline.segments.discovery import LogDirectoryIdentity
from spindle.pipeline.segments.failover import ReadSettings
from spindle.pipeline.segments.options import parse_segment_options
from spindle.pipeline.segments.plan import SegmentsPartition, SegmentsPlan
from spindle.pipeline.segments.ranges import SegmentRange
from spindle.pipeline.segments.reader import read_ranges
from spindle.pipeline.streaming.position import offsets_to_json
from spindle.pipeline.streaming.reader import BrokerStreamReader

_NOWHERE: Final = LogDirectoryIdentity(None, None, None)
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
        tasks = self.tasks(start, end)
        if not tasks:
            return []
        pieces: dict[TopicPartition, list[OffsetRange]] = {}
        for piece in (piece for task in tasks for piece in task):
            pieces.setdefault(piece.partition, []).append(piece)
        whole = [replace(own[0], end_offset=own[-1].end_offset) for own in pieces.values()]
        existing = self.existing(whole)
        plan = SegmentsPlan(parse_segment_options(exact_read(self.given, existing or whole)))
        settings = plan.narrowed_settings()
        bounds = {
            partition: [(directory.start_offset, directory.end_offset) for directory in own]
            for partition, own in pieces.items()
        }
        located = plan.locate(bounds) if existing else {}
        return [
            StreamSegmentsPartition(SegmentsPartition(tuple(_placed(task, located))), settings)
            for task in tasks
        ]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Return the Arrow batches of a task."""
        return read_ranges(partition.planned.ranges, partition.settings)


def _placed(
    task: Iterable[OffsetRange], located: Mapping[TopicPartition, list[SegmentRange]]
) -> Iterator[SegmentRange]:
    """Return a task with its place on the disks; tasks ask the brokers for what no replica has."""
    for piece in task:
        own = located.get(piece.partition, [])
        yield from (directory for directory in own if piece.holds(directory.start_offset))
        start = max(piece.start_offset, own[-1].end_offset if own else 0)
        if start < piece.end_offset:
            yield SegmentRange(
                piece.partition, piece.topic_id, _NOWHERE, "", start, piece.end_offset
            )


def exact_read(given: Mapping[str, str], ranges: Iterable[OffsetRange]) -> dict[str, str]:
    """Return the options of a batch read of exactly these ranges."""
    wanted = {offset_range.partition: offset_range for offset_range in ranges}
    start = offsets_to_json({partition: wanted[partition].start_offset for partition in wanted})
    end = offsets_to_json({partition: wanted[partition].end_offset for partition in wanted})
    ids = {partition.topic: wanted[partition].topic_id for partition in wanted}
    kept = without_limits(given)
    return {name: text for name, text in kept.items() if name.lower() not in _REPLACED} | {
        "assign": json.dumps({topic: list(map(int, numbers)) for topic, numbers in start.items()}),
        "startingOffsets": json.dumps(start),
        "endingOffsets": json.dumps(end),
        "topicIds": json.dumps(
            {topic: uuid_text(data) for topic, data in ids.items() if data != ZERO_UUID}
        ),
    }
