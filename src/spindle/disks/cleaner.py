"""The compaction of a log directory: which log is next, and what becomes of a finished pass.

The copying (`Cleaning.advance`) runs beside the directory's thread, one pass at a time.
"""

from dataclasses import dataclass

from spindle.common.uuids import Uuid
from spindle.disks.directory_store import DirectoryStore
from spindle.log.cleaning.cleaning import (
    DEFAULT_SETTINGS,
    Cleaning,
    CleaningResult,
    CleaningSettings,
    CleaningStats,
)
from spindle.log.cleaning.plan import CleaningPlan, DirtyRange, dirty_range, is_due, plan_cleaning
from spindle.log.cleaning.replacement import put_in_place
from spindle.log.formats.names import CLEANED_SUFFIX
from spindle.log.log import Log


@dataclass(slots=True)
class CleanerCounts:
    """Numbers about a directory's compaction. The event loop may read them at any time.

    Attributes:
        max_dirty_ratio: of the dirtiest log at the last search, 0 to 1.
        max_overdue_ms: how much longer than `max.compaction.lag.ms` a record had waited then.
        last_search_ms: the time of that search; None before the first one.
        uncleanable: logs that are not compacted because of their content.
        uncleanable_bytes: the dirty bytes of these logs.
        last: the work of the last pass that was put in place; None before it.
        last_took_ms: its duration.
        passes, read_bytes, written_bytes: of all passes that were put in place.
    """

    max_dirty_ratio: float = 0.0
    max_overdue_ms: int = 0
    last_search_ms: int | None = None
    uncleanable: int = 0
    uncleanable_bytes: int = 0
    last: CleaningStats | None = None
    last_took_ms: int = 0
    passes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class Cleaner:
    """Plans and finishes compaction passes; used by the directory's thread."""

    __slots__ = ("_directory", "_uncleanable", "counts")

    def __init__(self, directory: DirectoryStore) -> None:
        self._directory = directory
        self._uncleanable: set[tuple[str, Uuid | None]] = set()
        self.counts = CleanerCounts()

    def next_pass(
        self, now_ms: int, settings: CleaningSettings = DEFAULT_SETTINGS
    ) -> Cleaning | None:
        """Begin a pass over the log with the largest share of dirty bytes; None if no log is due.

        Every pass must be given back to `finish` or, if it failed, to `give_up`.
        """
        best: tuple[float, Log, DirtyRange] | None = None
        max_ratio, max_overdue_ms = 0.0, 0
        uncleanable: dict[tuple[str, Uuid | None], int] = {}
        for topic_partition, log in self._directory.logs.items():
            if not log.config.is_compacted or log.is_being_cleaned or log.is_moving:
                continue
            dirty = dirty_range(log, self._directory.cleaner_offset(topic_partition), now_ms)
            if (log.path, log.topic_id) in self._uncleanable:
                uncleanable[log.path, log.topic_id] = dirty.dirty_bytes
                continue
            max_ratio = max(max_ratio, dirty.dirty_ratio)
            max_overdue_ms = max(max_overdue_ms, dirty.overdue_ms)
            if is_due(log, dirty) and (best is None or dirty.dirty_ratio > best[0]):
                best = (dirty.dirty_ratio, log, dirty)
        counts = self.counts
        counts.max_dirty_ratio, counts.max_overdue_ms = max_ratio, max_overdue_ms
        counts.last_search_ms = now_ms
        counts.uncleanable, counts.uncleanable_bytes = len(uncleanable), sum(uncleanable.values())
        if best is None:
            return None
        _, log, dirty = best
        plan = plan_cleaning(log, dirty)
        return Cleaning(self._directory.storage.file_system, plan, now_ms, settings)

    def finish(self, result: CleaningResult, now_ms: int, took_ms: int = 0) -> bool:
        """Put the result in place, store how far the log is clean, and apply retention.

        Returns:
            False if the log was truncated, renamed or deleted meanwhile; the result is removed.
        """
        if not put_in_place(result, now_ms):
            self.give_up(result.plan)
            return False
        log = result.plan.log
        self._directory.set_cleaner_offset(log.topic_partition, result.end_offset)
        log.delete_old_segments(now_ms)
        counts = self.counts
        counts.last, counts.last_took_ms = result.stats, took_ms
        counts.passes += 1
        counts.read_bytes += result.stats.mapped_bytes + result.stats.read_bytes
        counts.written_bytes += result.stats.written_bytes
        return True

    def give_up_uncleanable(self, plan: CleaningPlan) -> None:
        """Give up, and begin no other pass over this log: it would meet the same damaged batch."""
        self._uncleanable.add((plan.path, plan.log.topic_id))
        self.counts.uncleanable += 1
        self.counts.uncleanable_bytes += plan.dirty.dirty_bytes
        self.give_up(plan)

    def give_up(self, plan: CleaningPlan) -> None:
        """End a pass without a result and remove what it wrote; the log stays as it was."""
        plan.log.end_cleaning()
        storage = self._directory.storage
        try:
            names = storage.file_system.list_directory(plan.path)
        except FileNotFoundError:
            return
        for name in names:
            if name.endswith(CLEANED_SUFFIX):
                storage.remove_if_there(f"{plan.path}/{name}")
