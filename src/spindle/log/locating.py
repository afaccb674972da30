"""Find the file range of large records, so that they can be sent without being read."""

from spindle.log.log import Log
from spindle.log.segments.file_range import FileRange
from spindle.log.segments.segment import Segment


def locate(
    log: Log,
    offset: int,
    max_bytes: int,
    end_offset: int,
    least_bytes: int,
    *,
    min_one_batch: bool = False,
) -> FileRange | None:
    """Return the file range of the batches that `Log.read` would return, or of the first of them.

    The range ends at an indexed batch, so no scan is needed. Return None if the range has less than
    `least_bytes`, or if the index does not suffice. With `min_one_batch` the first batch may be
    larger than `max_bytes`.
    """
    limit = min(end_offset, log.log_end_offset)
    if log.is_deleted or not log.log_start_offset <= offset < limit:
        return None
    segment = log.segments.from_offset(offset)[0]
    position = segment.start_of_read(offset)
    if position is None or segment.size_bytes - position < least_bytes:
        return None
    end, next_offset = _end_of_range(log, segment, position, max_bytes)
    if min_one_batch and end - position < least_bytes:
        first = segment.batch_at(position)
        if first is None or first.size_bytes <= max_bytes:
            return None
        end, next_offset = position + first.size_bytes, first.next_offset
    if end - position < least_bytes or end > segment.size_bytes:
        return None
    if not offset < next_offset <= limit:
        return None
    segment.positions.note(offset, position, next_offset, end)
    return segment.range_of(position, end)


def _end_of_range(log: Log, segment: Segment, position: int, max_bytes: int) -> tuple[int, int]:
    """Return position and offset of the end of the last indexed batch within the limits."""
    if max_bytes >= segment.size_bytes - position:
        return segment.size_bytes, _end_offset(log, segment)
    end = segment.offset_index.batch_before(position + max_bytes)
    header = segment.batch_at(end) if end > position else None
    return end, -1 if header is None else header.base_offset


def _end_offset(log: Log, segment: Segment) -> int:
    """Return the offset from which on a segment has no records."""
    next_base = log.segments.next_base(segment)
    return log.log_end_offset if next_base is None else next_base
