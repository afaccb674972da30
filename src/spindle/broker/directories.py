"""A log directory as the broker sees it: its identity, its I/O thread, the work done there."""

import shutil
from collections.abc import Callable, Sequence
from typing import NamedTuple

from spindle.broker.ports import DirectoryExecutor
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, UuidSource
from spindle.log.cleaner import Cleaner
from spindle.log.directory import LogDirectory
from spindle.log.flushing import FlushTask
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.replication.follower_log import LogPosition, LogWork, begin_to_follow, take_over


class NewLog(NamedTuple):
    """A log to be created."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: LogConfig


class BrokerDirectory:
    """One entry of `log.dirs`.

    `store`, `cleaner` and the methods that say so belong to the I/O thread, everything else to the
    event loop.
    `log_count` counts current and future logs, for the choice of a directory.
    """

    __slots__ = ("cleaner", "directory_id", "executor", "log_count", "path", "store")

    def __init__(
        self, path: str, directory_id: Uuid, executor: DirectoryExecutor, store: LogDirectory
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
        usage = shutil.disk_usage(self.path)
        return usage.total, usage.free

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

    def begin_to_follow(self, logs: Sequence[Log], now_ms: int) -> list[LogPosition]:
        """Where fetching from leaders begins."""
        counts = [log.truncation_count for log in logs]
        positions = [begin_to_follow(log, now_ms) for log in logs]
        self._settle_truncations(logs, counts)
        return positions

    def take_over(
        self, work: Sequence[tuple[Log, LogWork]], now_ms: int
    ) -> list[LogPosition | Exception]:
        """What leaders sent for these logs: where each stands then, or why it was refused."""
        results: list[LogPosition | Exception] = []
        logs = [log for log, _ in work]
        counts = [log.truncation_count for log in logs]
        for log, item in work:
            try:
                results.append(take_over(log, item, now_ms))
            except (OSError, CorruptLog):
                raise
            except Exception as error:  # noqa: BLE001 - one log's trouble is not the others'
                results.append(error)
        self._settle_truncations(logs, counts)
        return results

    def _settle_truncations(self, logs: Sequence[Log], counts_before: Sequence[int]) -> None:
        truncated = [
            log
            for log, count in zip(logs, counts_before, strict=True)
            if log.truncation_count != count
        ]
        if truncated:
            self.store.note_truncated(truncated)

    def begin_flushes(self, now_ms: int) -> list[tuple[Log, FlushTask]]:
        return [(log, log.begin_flush()) for log in self.store.logs_to_flush(now_ms)]

    def complete_flushes(self, done: Sequence[tuple[Log, FlushTask]]) -> None:
        for log, task in done:
            log.complete_flush(task)


def least_loaded(
    directories: list[BrokerDirectory], cordoned: Sequence[str]
) -> BrokerDirectory | None:
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
