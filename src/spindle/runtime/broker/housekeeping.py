"""What a broker does on a schedule: checkpoints, flushes, retention, compaction, deletions.

All of it runs on the directories' I/O threads; the event loop only keeps the time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from spindle.common.errors import CorruptLog, CorruptRecords, LogDirectoryFailed
from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.disks.log_directory import LogDirectory
from spindle.replicas.replica_manager import Replicas
from spindle.runtime.disks.daemon_threads import DaemonThreads

log = logging.getLogger(__name__)

_DELETION_CHECK_MS: Final = 1000
T = TypeVar("T")


class Housekeeping:
    """Periodic tasks. The first run of each is `log.initial.task.delay.ms` after the start."""

    def __init__(self, replicas: Replicas, config: NodeConfig, now_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._now_ms = now_ms
        initial_ms = config.integer("log.initial.task.delay.ms")
        integer = config.integer
        self._schedule = (
            (initial_ms, integer("log.retention.check.interval.ms"), self._retain),
            (initial_ms, integer("log.flush.scheduler.interval.ms"), self._flush),
            (
                initial_ms,
                integer("log.flush.offset.checkpoint.interval.ms"),
                self._checkpoint_recovery_points,
            ),
            (
                initial_ms,
                integer("log.flush.start.offset.checkpoint.interval.ms"),
                self._checkpoint_log_starts,
            ),
            (initial_ms, _DELETION_CHECK_MS, self._delete_expired),
            (
                initial_ms,
                integer("producer.id.expiration.check.interval.ms"),
                self._forget_producers,
            ),
            (
                0,
                integer("replica.high.watermark.checkpoint.interval.ms"),
                self._checkpoint_high_watermarks,
            ),
        )
        self._compacts = config.flag("log.cleaner.enable")
        self.update(BrokerValues(config))
        self._initial_delay_ms = initial_ms
        self._cleaners: list[asyncio.Task[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._flushing: dict[LogDirectory, asyncio.Task[None]] = {}
        self._threads = DaemonThreads()

    def update(self, values: BrokerValues) -> None:
        """Use these values from the next compaction on."""
        self._cleaner_backoff_ms = values.integer("log.cleaner.backoff.ms")
        self._cleaner_map_bytes = values.integer("log.cleaner.dedupe.buffer.size")

    def start(self) -> None:
        if self._compacts:
            for directory in self._replicas.directories:
                self._cleaners.append(asyncio.create_task(self._compact(directory)))
        self._tasks = [
            asyncio.create_task(self._repeat(delay_ms, period_ms, function))
            for delay_ms, period_ms, function in self._schedule
        ]

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._cleaners, *self._flushing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(
        self, delay_ms: int, period_ms: int, function: Callable[[LogDirectory], None]
    ) -> None:
        await asyncio.sleep(delay_ms / 1000)
        while True:
            await asyncio.sleep(min(period_ms / 1000, 86_400.0))
            for directory in self._replicas.directories:
                if not directory.is_offline:
                    function(directory)

    async def _compact(self, directory: LogDirectory) -> None:
        """Compact the logs of a directory, the dirtiest first, one at a time."""
        await asyncio.sleep(self._initial_delay_ms / 1000)
        while not directory.is_offline:
            if not await self._compact_one(directory):
                await asyncio.sleep(self._cleaner_backoff_ms / 1000)

    async def _compact_one(self, directory: LogDirectory) -> bool:
        """True if a log was compacted; the copying runs beside the directory's thread."""
        executor, cleaner = directory.executor, directory.cleaner
        try:
            cleaning = await executor.submit(
                cleaner.next_pass, self._now_ms(), self._cleaner_map_bytes
            )
            if cleaning is None:
                return False
            try:
                result = await self._beside(cleaning.run)
            except (CorruptRecords, CorruptLog) as error:
                log.error("compaction in %s: %s", directory.path, error)
                await executor.submit(cleaner.give_up, cleaning.plan)
                return False
            return await executor.submit(cleaner.finish, result, self._now_ms())
        except LogDirectoryFailed as failure:
            log.warning("compaction: %s", failure)
        except OSError as error:
            executor.fail(error)
        return False

    def _retain(self, directory: LogDirectory) -> None:
        directory.executor.submit_nowait(directory.store.apply_retention, self._now_ms())

    def _flush(self, directory: LogDirectory) -> None:
        if directory not in self._flushing:
            task = asyncio.create_task(self._flush_directory(directory))
            self._flushing[directory] = task
            task.add_done_callback(lambda _: self._flushing.pop(directory, None))

    def _beside(self, work: Callable[[], T]) -> Awaitable[T]:
        """On a thread of its own; if its disk hangs, nobody else waits for it."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _flush_directory(self, directory: LogDirectory) -> None:
        """The syncs run beside the directory's thread, which goes on serving."""
        try:
            tasks = await directory.executor.submit(directory.begin_flushes, self._now_ms())
            for _, task in tasks:
                await self._beside(task.run)
            if tasks:
                await directory.executor.submit(directory.complete_flushes, tasks)
        except LogDirectoryFailed as failure:
            log.warning("flush: %s", failure)
        except OSError as error:
            directory.executor.fail(error)

    def _checkpoint_recovery_points(self, directory: LogDirectory) -> None:
        directory.executor.submit_nowait(directory.store.checkpoint_recovery_points)

    def _checkpoint_log_starts(self, directory: LogDirectory) -> None:
        directory.executor.submit_nowait(directory.store.checkpoint_log_starts)

    def _checkpoint_high_watermarks(self, directory: LogDirectory) -> None:
        directory.executor.submit_nowait(directory.store.checkpoint_high_watermarks)

    def _forget_producers(self, directory: LogDirectory) -> None:
        directory.executor.submit_nowait(directory.store.forget_producers, self._now_ms())

    def _delete_expired(self, directory: LogDirectory) -> None:
        directory.executor.submit_nowait(directory.store.delete_expired, self._now_ms())
