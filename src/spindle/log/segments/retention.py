"""Select the segments to delete: too old, beyond the size limit, or below the log start."""

from collections.abc import Callable
from typing import TypeAlias

from spindle.log.log_config import LogConfig
from spindle.log.segments.segment import Segment
from spindle.log.segments.segment_list import Segments

_Predicate: TypeAlias = Callable[[Segment, int | None], bool]
"""Takes a segment and the base offset of the next one (None for the active segment)."""


def deletable_segments(
    segments: Segments,
    config: LogConfig,
    now_ms: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    only_below_start: bool = False,
) -> list[Segment]:
    """Return the oldest segments that retention deletes, in order; perhaps all of them.

    Only segments below the high watermark may be deleted. A topic that is compacted but not
    deleted, and a log with `only_below_start`, loses only what is below its log start.
    """
    doomed = 0
    for predicate in _predicates(segments, log_start_offset, config, now_ms, only_below_start):
        doomed = max(doomed, _count_from_start(segments, log_end_offset, high_watermark, predicate))
    return list(segments)[:doomed]


def _predicates(
    segments: Segments,
    log_start_offset: int,
    config: LogConfig,
    now_ms: int,
    only_below_start: bool,
) -> list[_Predicate]:
    def is_below_log_start(_: Segment, next_base: int | None) -> bool:
        return next_base is not None and next_base <= log_start_offset

    predicates: list[_Predicate] = [is_below_log_start]
    if only_below_start or not config.deletes_old_segments:
        return predicates
    if config.retention_ms >= 0:
        predicates.append(
            lambda segment, _: now_ms - segment.largest_timestamp() > config.retention_ms
        )
    if config.retention_bytes >= 0:
        predicates.append(_size_predicate(segments.size_bytes - config.retention_bytes))
    return predicates


def _size_predicate(surplus_bytes: int) -> _Predicate:
    left = surplus_bytes

    def is_surplus(segment: Segment, _: int | None) -> bool:
        nonlocal left
        if left - segment.size_bytes < 0:
            return False
        left -= segment.size_bytes
        return True

    return is_surplus


def _count_from_start(
    segments: Segments, log_end_offset: int, high_watermark: int, predicate: _Predicate
) -> int:
    count = 0
    for segment in segments:
        next_base = segments.next_base(segment)
        end_offset = log_end_offset if next_base is None else next_base
        is_empty_active = next_base is None and segment.size_bytes == 0
        if is_empty_active or high_watermark < end_offset:
            break
        if not predicate(segment, next_base):
            break
        count += 1
    return count
