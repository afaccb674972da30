"""Decide when a segment is finished, so that the next records begin a new one."""

from zlib import crc32

from spindle.log.formats.index_entries import MAX_RELATIVE_OFFSET
from spindle.log.log_config import LogConfig
from spindle.log.segments.segment import Segment


def must_roll(
    segment: Segment,
    incoming_bytes: int,
    last_offset: int,
    max_timestamp: int,
    config: LogConfig,
    now_ms: int,
) -> bool:
    """Return whether records of this size, last offset and largest timestamp need a new segment."""
    size = segment.size_bytes
    if size == 0:
        return last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
    return (
        size > config.segment_bytes - incoming_bytes
        or _age_ms(segment, max_timestamp, now_ms) > config.segment_ms - _jitter_ms(segment, config)
        or segment.offset_index.is_full
        or segment.time_index.is_full
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
    )


def _jitter_ms(segment: Segment, config: LogConfig) -> int:
    """Return how much earlier than `segment.ms` this segment is closed.

    The amount is spread evenly over 0 to `segment.jitter.ms`, by a hash of the segment's path.
    """
    if config.segment_jitter_ms == 0:
        return 0
    return crc32(segment.path.encode()) % min(config.segment_jitter_ms, config.segment_ms)


def _age_ms(segment: Segment, max_timestamp: int, now_ms: int) -> int:
    """Return how much newer incoming records are than the first ones (or than the file)."""
    first_timestamp = segment.first_timestamp()
    if first_timestamp >= 0:
        return max_timestamp - first_timestamp
    return now_ms - segment.created_ms
