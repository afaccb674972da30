"""Which logs are due for compaction, and which part of a log a pass may read (KIP-58, KIP-354).

The dirty part of a log runs from where the last cleaning ended to the first record that must stay
as it is: in the active segment, in an open transaction, or younger than `min.compaction.lag.ms`.
"""

from typing import NamedTuple

from spindle.log.cleaning.abort import CleaningSignal
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.segments.segment import Segment


class DirtyRange(NamedTuple):
    """The part of a log that a pass would read: offsets [first_dirty_offset, end_offset)."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    must_clean_now: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


class SourceSegment(NamedTuple):
    """A segment to be cleaned, as it was when the plan was made. `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    index_bytes: int
    segment: Segment


class LastRecord(NamedTuple):
    """The last batch of a producer that has to be recognisable: -1 if it wrote only markers."""

    last_data_offset: int
    producer_epoch: int


class CleaningPlan(NamedTuple):
    """Everything that a pass needs to know of a log, so that it can run in another thread.

    `config` are the topic's settings when the pass began; a change counts for the next pass.
    """

    log: Log
    path: str
    config: LogConfig
    signal: CleaningSignal
    dirty: DirtyRange
    sources: list[SourceSegment]
    aborted: list[AbortedTransaction]
    last_records: dict[int, LastRecord]


def dirty_range(log: Log, cleaner_offset: int | None, now_ms: int) -> DirtyRange:
    """Return the part of a compacted log that may be cleaned now; empty if there is none."""
    start = log.log_start_offset
    first_dirty = start if cleaner_offset is None else cleaner_offset
    if not start <= first_dirty <= log.log_end_offset:
        first_dirty = start
    end = _first_uncleanable_offset(log, first_dirty, now_ms)
    clean_bytes = dirty_bytes = 0
    oldest_ms: int | None = None
    for segment in log.segments:
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size_bytes
        elif segment.base_offset < end:
            dirty_bytes += segment.size_bytes
            if oldest_ms is None and segment.size_bytes:
                oldest_ms = segment.first_timestamp()
    is_overdue = (
        oldest_ms is not None
        and oldest_ms >= 0
        and now_ms - oldest_ms > log.config.max_compaction_lag_ms
    )
    return DirtyRange(first_dirty, max(end, first_dirty), clean_bytes, dirty_bytes, is_overdue)


def _first_uncleanable_offset(log: Log, first_dirty: int, now_ms: int) -> int:
    end = min(log.last_stable_offset, log.segments.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments.from_offset(first_dirty):
            if segment.largest_timestamp() > now_ms - lag_ms:
                return min(end, segment.base_offset)
    return end


def is_due(log: Log, dirty: DirtyRange) -> bool:
    """Return whether the dirty part is large enough, or its records have waited too long."""
    if dirty.dirty_bytes == 0 or dirty.end_offset <= dirty.first_dirty_offset:
        return False
    return dirty.must_clean_now or dirty.dirty_ratio > log.config.min_cleanable_dirty_ratio


def plan_cleaning(log: Log, dirty: DirtyRange) -> CleaningPlan:
    """Collect what a pass over that range needs, and begin it: see `Log.begin_cleaning`.

    Flush the log first: otherwise a power failure could take a record for whose sake an older one
    of the same key was removed.
    """
    log.flush()
    sources = []
    for segment in log.segments:
        next_base = log.segments.next_base(segment)
        if next_base is None or segment.base_offset >= dirty.end_offset:
            break
        index_bytes = 12 * max(segment.offset_index.file.count, segment.time_index.file.count)
        sources.append(
            SourceSegment(segment.base_offset, next_base, segment.size_bytes, index_bytes, segment)
        )
    return CleaningPlan(
        log,
        log.path,
        log.config,
        log.begin_cleaning(),
        dirty,
        sources,
        log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        {
            entry.producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
            for entry in log.active_producers()
        },
    )
