"""Finding records by their timestamps (ListOffsets)."""

from typing import NamedTuple

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.log.segments.segment import ScannedBatch, Segment
from spindle.log.segments.segment_list import Segments
from spindle.protocol.records.record import Record, decode_records


class TimestampOffset(NamedTuple):
    """A record by timestamp and offset, with the leader epoch of its batch."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def find_timestamp(
    segments: Segments, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """Return the first record at or after `start_offset` whose timestamp is `timestamp_ms` or
    later.
    """
    for segment in segments:
        if segment.max_timestamp < timestamp_ms:
            continue
        for batch in segment.find_timestamp(timestamp_ms, start_offset):
            for record in _records(segment, batch):
                if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                    return _found(record, batch)
    return None


def find_max_timestamp(segments: Segments) -> TimestampOffset | None:
    """Return the first record with the largest timestamp; None if no record has one."""
    segment = max(segments, key=lambda candidate: candidate.max_timestamp)
    if segment.max_timestamp < 0:
        return None
    start = segment.position_near(segment.max_timestamp_offset)
    for batch in segment.scan(start):
        if batch.header.max_timestamp == segment.max_timestamp:
            for record in _records(segment, batch):
                if record.timestamp_ms == segment.max_timestamp:
                    return _found(record, batch)
    return None


def _records(segment: Segment, batch: ScannedBatch) -> list[Record]:
    try:
        return decode_records(batch.data, 0, batch.header)
    except CorruptRecords as error:
        raise CorruptLog(segment.path, batch.position, str(error)) from error


def _found(record: Record, batch: ScannedBatch) -> TimestampOffset:
    return TimestampOffset(record.timestamp_ms, record.offset, batch.header.leader_epoch)
