"""Decide which logs are due for compaction, and which part a pass may read (KIP-58, KIP-354).

The dirty part of a log extends from the end of the last cleaning to the first record that must not
be changed: in the active segment, in an open transaction, or younger than `min.compaction.lag.ms`.
"""

from typing import NamedTuple

from spindle.log.cleaning.abort import CleaningAbort
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.segments.segment import Segment
from spindle.protocol.records.validation import NO_LIMIT_MS


class DirtyRange(NamedTuple):
    """The part of a log that a pass would read: offsets [first_dirty_offset, end_offset)."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """How much longer than `max.compaction.lag.ms` the oldest dirty record has waited."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


class SourceSegment(NamedTuple):
    """A segment to be cleaned, as it was when the plan was made. `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    size_bytes: int
    offset_entries: int
    time_entries: int
    segment: Segment


class LastRecord(NamedTuple):
    """The last batch of a producer that has to be recognisable: -1 if it wrote only markers."""

    last_data_offset: int
    producer_epoch: int


class CleaningPlan(NamedTuple):
    """The facts about a log that a pass needs to run in another thread.

    `config` are the topic's settings when the pass began; a change counts for the next pass.
    """

    log: Log
    path: str
    config: LogConfig
    signal: CleaningAbort
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
    oldest_ms = NO_LIMIT_MS
    for segment in log.segments:
        next_base = log.segments.next_base(segment)
        if next_base is None:
            break
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size_bytes
        if next_base > first_dirty:
            if segment.base_offset < end:
                dirty_bytes += segment.size_bytes
            first_ms = segment.first_timestamp()
            if first_ms > 0:
                oldest_ms = min(oldest_ms, first_ms)
    overdue_ms = max(0, now_ms - log.config.max_compaction_lag_ms - oldest_ms)
    return DirtyRange(first_dirty, max(end, first_dirty), clean_bytes, dirty_bytes, overdue_ms)


def _first_uncleanable_offset(log: Log, first_dirty: int, now_ms: int) -> int:
    """Return the base offset of the first segment that must not be changed."""
    end = min(log.last_stable_offset, log.segments.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    base_offset = log.segments.first.base_offset
    for segment in log.segments:
        if segment.base_offset > end:
            break
        base_offset = segment.base_offset
        next_base = log.segments.next_base(segment)
        if next_base is None:
            break
        is_dirty = next_base > first_dirty
        if lag_ms > 0 and is_dirty and segment.largest_timestamp() > now_ms - lag_ms:
            break
    return base_offset


def is_due(log: Log, dirty: DirtyRange) -> bool:
    """Return whether the dirty part is large enough, or its records have waited too long."""
    if dirty.dirty_bytes == 0 or dirty.end_offset <= dirty.first_dirty_offset:
        return False
    return dirty.overdue_ms > 0 or dirty.dirty_ratio > log.config.min_cleanable_dirty_ratio


def plan_cleaning(log: Log, dirty: DirtyRange) -> CleaningPlan:
    """Collect the input of a pass over that range, and begin it: see `Log.begin_cleaning`.

    Flush the log first: otherwise a power failure could lose a record after older ones of its key
    were removed.
    """
    log.flush()
    sources = []
    for segment in log.segments:
        next_base = log.segments.next_base(segment)
        if next_base is None or segment.base_offset >= dirty.end_offset:
            break
        sources.append(
            SourceSegment(
                segment.base_offset,
                next_base,
                segment.size_bytes,
                segment.offset_index.file.count,
                segment.time_index.file.count,
                segment,
            )
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
