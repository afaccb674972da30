"""The compaction of a log directory: which log is next, and what becomes of a finished pass.

The copying (`Cleaning.advance`) runs beside the directory's thread, one pass at a time.
"""

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from spindle.common.errors import CorruptLog
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
from spindle.log.errors import UncleanableLog
from spindle.log.formats.names import CLEANED_SUFFIX
from spindle.log.log import Log

logger = logging.getLogger(__name__)

FIRST_RETRY_MS: Final = 60_000
MAX_RETRY_MS: Final = 3_600_000

LogKey: TypeAlias = tuple[str, Uuid | None]
"""The path and the topic id of a log."""


@dataclass(slots=True)
class CleanerCounts:
    """Numbers about a directory's compaction. The event loop may read them at any time.

    Attributes:
        max_dirty_ratio: of the dirtiest log at the last search, 0 to 1.
        max_overdue_ms: how much longer than `max.compaction.lag.ms` a record had waited then.
        last_search_ms: the time of that search; None before the first one.
        uncleanable: logs whose last pass failed.
        uncleanable_bytes: the dirty bytes of these logs when that pass began.
        failed_passes: passes and searches that failed.
        last: the work of the last pass that was put in place; None before it.
        last_took_ms: its duration.
        passes, read_bytes, written_bytes: of all passes that were put in place.
    """

    max_dirty_ratio: float = 0.0
    max_overdue_ms: int = 0
    last_search_ms: int | None = None
    uncleanable: int = 0
    uncleanable_bytes: int = 0
    failed_passes: int = 0
    last: CleaningStats | None = None
    last_took_ms: int = 0
    passes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class CleaningFailure(NamedTuple):
    """How often a log failed in a row, and when it is tried again with these settings."""

    failures: int
    retry_ms: int
    settings: CleaningSettings
    dirty_bytes: int


class Cleaner:
    """Plans and finishes compaction passes; used by the directory's thread."""

    __slots__ = ("_directory", "_failures", "counts")

    def __init__(self, directory: DirectoryStore) -> None:
        self._directory = directory
        self._failures: dict[LogKey, CleaningFailure] = {}
        self.counts = CleanerCounts()

    def next_pass(
        self, now_ms: int, settings: CleaningSettings = DEFAULT_SETTINGS
    ) -> Cleaning | None:
        """Begin a pass over the log with the largest share of dirty bytes; None if no log is due.

        Every pass must end with `finish`, `cancel` or `give_up_failed`. A log whose pass failed
        waits, first for a minute and at most for an hour, unless the settings change.
        """
        self._forget_deleted_logs()
        best: tuple[float, Log, DirtyRange] | None = None
        max_ratio, max_overdue_ms = 0.0, 0
        for topic_partition, log in self._directory.logs.items():
            if not log.config.is_compacted or log.is_being_cleaned or log.is_moving:
                continue
            if log.unverified_gaps:
                continue  # the leader may still have records for them
            failure = self._failures.get(_key(log))
            if failure and now_ms < failure.retry_ms and settings == failure.settings:
                continue
            try:
                dirty = dirty_range(log, self._directory.cleaner_offset(topic_partition), now_ms)
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 - the other logs are compacted
                self._note_failure(log, error, now_ms, settings, dirty_bytes=0)
                continue
            max_ratio = max(max_ratio, dirty.dirty_ratio)
            max_overdue_ms = max(max_overdue_ms, dirty.overdue_ms)
            if is_due(log, dirty) and (best is None or dirty.dirty_ratio > best[0]):
                best = (dirty.dirty_ratio, log, dirty)
        counts = self.counts
        counts.max_dirty_ratio, counts.max_overdue_ms = max_ratio, max_overdue_ms
        counts.last_search_ms = now_ms
        if best is None:
            return None
        _, log, dirty = best
        try:
            plan = plan_cleaning(log, dirty)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - the other logs are compacted
            log.end_cleaning()
            self._note_failure(log, error, now_ms, settings, dirty.dirty_bytes)
            return None
        return Cleaning(self._directory.storage.file_system, plan, now_ms, settings)

    def finish(self, result: CleaningResult, now_ms: int, took_ms: int = 0) -> bool:
        """Put the result in place, store how far the log is clean, and apply retention.

        Returns:
            False if the log was truncated, renamed or deleted meanwhile; the result is removed.
        """
        # The pass leaves gaps. A load must see that everything around them was flushed.
        self._directory.checkpoint_recovery_point(result.plan.log)
        if not put_in_place(result, now_ms):
            self.cancel(result.plan)
            return False
        log = result.plan.log
        self._directory.set_cleaner_offset(log.topic_partition, result.end_offset)
        log.delete_old_segments(now_ms)
        self._failures.pop(_key(log), None)
        self._count_failures()
        counts = self.counts
        counts.last, counts.last_took_ms = result.stats, took_ms
        counts.passes += 1
        counts.read_bytes += result.stats.mapped_bytes + result.stats.read_bytes
        counts.written_bytes += result.stats.written_bytes
        return True

    def give_up_failed(self, cleaning: Cleaning, error: Exception, now_ms: int) -> None:
        """End a failed pass; its log must wait, because it is likely to fail again.

        Does not apply to logs truncated, renamed or deleted meanwhile.
        """
        plan = cleaning.plan
        if not plan.signal.is_aborted:
            self._note_failure(plan.log, error, now_ms, cleaning.settings, plan.dirty.dirty_bytes)
        self.cancel(plan)

    def cancel(self, plan: CleaningPlan) -> None:
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

    def _note_failure(
        self,
        log: Log,
        error: Exception,
        now_ms: int,
        settings: CleaningSettings,
        dirty_bytes: int,
    ) -> None:
        earlier = self._failures.get(_key(log))
        count = earlier.failures if earlier else 0
        wait_ms = min(FIRST_RETRY_MS << min(count, 30), MAX_RETRY_MS)
        self._failures[_key(log)] = CleaningFailure(
            count + 1, now_ms + wait_ms, settings, dirty_bytes
        )
        self.counts.failed_passes += 1
        self._count_failures()
        is_expected = isinstance(error, (UncleanableLog, CorruptLog))
        logger.log(
            logging.WARNING if is_expected else logging.ERROR,
            "%s is not compacted: %s; it is tried again in %d s",
            log.path,
            error if is_expected else repr(error),
            wait_ms // 1000,
            exc_info=None if is_expected else error,
        )

    def _forget_deleted_logs(self) -> None:
        if self._failures:
            present = {_key(log) for log in self._directory.logs.values()}
            self._failures = {k: f for k, f in self._failures.items() if k in present}
            self._count_failures()

    def _count_failures(self) -> None:
        self.counts.uncleanable = len(self._failures)
        self.counts.uncleanable_bytes = sum(f.dirty_bytes for f in self._failures.values())


def _key(log: Log) -> LogKey:
    return log.path, log.topic_id
