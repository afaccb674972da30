"""Keep or cut the gaps of a log that an unclean stop or compaction left."""

import logging

from spindle.log.log import Log

logger = logging.getLogger(__name__)


def accept_gaps(log: Log) -> None:
    """Keep all unverified gaps, because this replica now leads and followers copy its log."""
    for gap in log.unverified_gaps:
        logger.warning("%s leads without records from offset %d to %d", log, gap[0], gap[1] - 1)
    log.unverified_gaps = ()


def set_aside_after_gap(log: Log) -> None:
    """End the log at its first unverified gap; records behind it stay in `.stray` files.

    For a log that must not have gaps, such as the metadata log.
    """
    gap = log.unverified_gaps[0]
    for segment in log.segments.from_offset(gap.end_offset):
        log.segments.remove(segment)
        if segment.size_bytes:
            segment.set_aside()
        else:
            segment.delete()
    log.truncate_to(gap.first_offset)
