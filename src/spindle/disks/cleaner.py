"""The compaction of a log directory: which log is next, and what becomes of a finished pass.

The work itself (`Cleaning.run`) may be done in another thread, one pass per log at a time.
"""

from spindle.common.ids import TopicPartition
from spindle.disks.directory_store import DirectoryStore
from spindle.log.cleaning.cleaning import DEFAULT_MAP_BYTES, Cleaning, CleaningResult
from spindle.log.cleaning.plan import CleaningPlan, DirtyRange, dirty_range, is_due, plan_cleaning
from spindle.log.cleaning.replacement import put_in_place
from spindle.log.formats.names import CLEANED_SUFFIX
from spindle.log.log import Log


class Cleaner:
    """Plans and finishes compaction passes; used by the directory's thread."""

    __slots__ = ("_directory", "_paused", "_under_way")

    def __init__(self, directory: DirectoryStore) -> None:
        self._directory = directory
        self._under_way: dict[TopicPartition, CleaningPlan] = {}
        self._paused: set[TopicPartition] = set()

    def pause(self, topic_partition: TopicPartition) -> None:
        """Begin no pass over this partition (it is being moved); one under way is thrown away."""
        self._paused.add(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        self._paused.discard(topic_partition)

    def next_pass(self, now_ms: int, map_bytes: int = DEFAULT_MAP_BYTES) -> Cleaning | None:
        """A pass over the log with the largest share of dirty bytes; None if no log is due.

        Every pass must be given back to `finish` or, if it failed, to `give_up`.
        """
        best: tuple[float, Log, DirtyRange] | None = None
        for topic_partition, log in self._directory.logs.items():
            if not log.config.is_compacted or self._is_busy(topic_partition):
                continue
            cleaner_offset = self._directory.cleaner_offset(topic_partition)
            dirty = dirty_range(log, cleaner_offset, now_ms)
            if is_due(log, dirty) and (best is None or dirty.dirty_ratio > best[0]):
                best = (dirty.dirty_ratio, log, dirty)
        if best is None:
            return None
        _, log, dirty = best
        plan = plan_cleaning(log, dirty)
        self._under_way[log.topic_partition] = plan
        return Cleaning(self._directory.storage.file_system, plan, now_ms, map_bytes)

    def _is_busy(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._under_way or topic_partition in self._paused

    def finish(self, result: CleaningResult, now_ms: int) -> bool:
        """Put the result in place and note how far the log is clean.

        Returns:
            False if the log changed in the meantime and the result was thrown away.
        """
        topic_partition = result.plan.log.topic_partition
        self._under_way.pop(topic_partition, None)
        if self._directory.logs.get(topic_partition) is not result.plan.log or (
            topic_partition in self._paused
        ):
            for group in result.groups:
                group.cleaned.delete()
            return False
        if not put_in_place(result, now_ms):
            return False
        self._directory.set_cleaner_offset(topic_partition, result.end_offset)
        return True

    def give_up(self, plan: CleaningPlan) -> None:
        """A pass failed before its end: what it wrote is removed, the log stays as it was."""
        self._under_way.pop(plan.log.topic_partition, None)
        files = self._directory.storage.file_system
        if not files.exists(plan.path):
            return
        for name in files.list_directory(plan.path):
            if name.endswith(CLEANED_SUFFIX):
                self._directory.storage.remove_if_there(f"{plan.path}/{name}")
