"""The compaction of a log directory: which log is next, and what becomes of a finished pass.

The copying (`Cleaning.run`) runs beside the directory's thread, one pass per log at a time.
"""

from spindle.common.uuids import Uuid
from spindle.disks.directory_store import DirectoryStore
from spindle.log.cleaning.cleaning import DEFAULT_MAP_BYTES, Cleaning, CleaningResult
from spindle.log.cleaning.plan import CleaningPlan, DirtyRange, dirty_range, is_due, plan_cleaning
from spindle.log.cleaning.replacement import put_in_place
from spindle.log.formats.names import CLEANED_SUFFIX
from spindle.log.log import Log


class Cleaner:
    """Plans and finishes compaction passes; used by the directory's thread."""

    __slots__ = ("_directory", "_uncleanable")

    def __init__(self, directory: DirectoryStore) -> None:
        self._directory = directory
        self._uncleanable: set[tuple[str, Uuid | None]] = set()

    def next_pass(self, now_ms: int, map_bytes: int = DEFAULT_MAP_BYTES) -> Cleaning | None:
        """Begin a pass over the log with the largest share of dirty bytes; None if no log is due.

        Every pass must be given back to `finish` or, if it failed, to `give_up`.
        """
        best: tuple[float, Log, DirtyRange] | None = None
        for topic_partition, log in self._directory.logs.items():
            if not log.config.is_compacted or log.is_being_cleaned or log.is_moving:
                continue
            if (log.path, log.topic_id) in self._uncleanable:
                continue
            cleaner_offset = self._directory.cleaner_offset(topic_partition)
            dirty = dirty_range(log, cleaner_offset, now_ms)
            if is_due(log, dirty) and (best is None or dirty.dirty_ratio > best[0]):
                best = (dirty.dirty_ratio, log, dirty)
        if best is None:
            return None
        _, log, dirty = best
        plan = plan_cleaning(log, dirty)
        return Cleaning(self._directory.storage.file_system, plan, now_ms, map_bytes)

    def finish(self, result: CleaningResult, now_ms: int) -> bool:
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
        return True

    def give_up_uncleanable(self, plan: CleaningPlan) -> None:
        """Give up, and begin no other pass over this log: it would meet the same damaged batch."""
        self._uncleanable.add((plan.path, plan.log.topic_id))
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
