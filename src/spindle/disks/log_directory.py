"""A log directory as the broker sees it: its identity, its I/O thread, the work done there."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, UuidSource
from spindle.disks.cleaner import Cleaner
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.executor import DirectoryExecutor
from spindle.log.flushing import FlushTask
from spindle.log.log import Log
from spindle.log.log_config import LogConfig


class NewLog(NamedTuple):
    """A log to be created."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig


class LogDirectory:
    """One entry of `log.dirs`.

    `store`, `cleaner` and the methods that say so belong to the I/O thread, everything else to the
    event loop.
    `log_count` counts current and future logs, for the choice of a directory.
    """

    __slots__ = ("cleaner", "directory_id", "executor", "log_count", "path", "store")

    def __init__(
        self, path: str, directory_id: Uuid, executor: DirectoryExecutor, store: DirectoryStore
    ) -> None:
        self.path = path
        self.directory_id = directory_id
        self.executor = executor
        self.store = store
        self.cleaner = Cleaner(store)
        self.log_count = 0

    @property
    def is_offline(self) -> bool:
        return self.executor.failure is not None

    # -- on the directory's thread

    def capacity(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system (KIP-827)."""
        return self.store.storage.file_system.capacity(self.path)

    def load(self, config_of: Callable[[str], LogConfig], now_ms: int) -> list[Log]:
        """Load what is on the disk; the current logs."""
        self.store.load(config_of, now_ms)
        return list(self.store.logs.values())

    def create_logs(self, wanted: Sequence[NewLog], now_ms: int) -> list[Log]:
        return [
            self.store.create(new.topic_partition, new.topic_id, new.config, now_ms)
            for new in wanted
        ]

    def delete_logs(self, doomed: Sequence[Log], new_uuid: UuidSource, now_ms: int) -> None:
        """Rename the logs to `-delete`; they are removed after `file.delete.delay.ms`."""
        for index, log in enumerate(doomed, start=1):
            is_last = index == len(doomed)
            self.store.delete_later(log, new_uuid(), now_ms, must_checkpoint=is_last)

    def start_epochs(self, leaders: Sequence[tuple[Log, int]]) -> None:
        """Leader epochs begin at the ends of these logs."""
        for log, epoch in leaders:
            log.assign_epoch_start(epoch, log.log_end_offset)

    def begin_flushes(self, now_ms: int) -> list[tuple[Log, FlushTask]]:
        """Begin the flushes that are due by the topics' settings."""
        return [(log, log.begin_flush()) for log in self.store.logs_to_flush(now_ms)]

    def begin_flushes_of_finished_segments(self, now_ms: int) -> list[tuple[Log, FlushTask]]:
        """Begin the flushes of logs that have begun new segments."""
        return [(log, log.begin_flush()) for log in self.store.logs_with_unflushed_segments()]

    def complete_flushes(self, done: Sequence[tuple[Log, FlushTask]]) -> None:
        for log, task in done:
            log.complete_flush(task)


def least_loaded(directories: list[LogDirectory], cordoned: Sequence[str]) -> LogDirectory | None:
    """Where a new log goes: the online directory with the fewest logs, the first of them on a tie.

    Cordoned directories are passed over unless every online one is cordoned; then it is the first
    (KIP-1066). None when every directory is offline.
    """
    online = [d for d in directories if not d.is_offline]
    if not online:
        return None
    candidates = [d for d in online if d.path not in cordoned]
    if not candidates:
        return online[0]
    return min(candidates, key=lambda d: d.log_count)
