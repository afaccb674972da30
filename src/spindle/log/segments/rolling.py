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
    first_timestamp = segment.roll_timestamp
    if first_timestamp is None:
        first_timestamp = segment.first_timestamp()
    # How much newer the incoming records are than the first ones, or than the file.
    age_ms = (
        max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - segment.created_ms
    )
    limit_ms = _limit_ms(segment, config)
    return (
        size > config.segment_bytes - incoming_bytes
        or age_ms > limit_ms
        or segment.offset_index.is_full
        or segment.time_index.is_full
        or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
    )


def latest_timestamp(segment: Segment, config: LogConfig) -> int:
    """Return the largest timestamp that fits a segment whose first batch has one."""
    return min(segment.first_timestamp() + _limit_ms(segment, config), 2**63 - 1)


def _limit_ms(segment: Segment, config: LogConfig) -> int:
    jitter_ms = _jitter_ms(segment, config) if config.segment_jitter_ms else 0
    return config.segment_ms - jitter_ms


def _jitter_ms(segment: Segment, config: LogConfig) -> int:
    """Return the time in ms by which this segment is closed earlier than `segment.ms`.

    The amount is spread evenly over 0 to `segment.jitter.ms`, by a hash of the segment's path.
    """
    return crc32(segment.path.encode()) % min(config.segment_jitter_ms, config.segment_ms)
