"""What a broker does on a schedule: checkpoints, flushes, retention, deferred deletions.

All of it runs on the directories' I/O threads; the event loop only keeps the time.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from spindle.broker.directories import BrokerDirectory
from spindle.broker.replicas import Replicas
from spindle.common.errors import LogDirectoryFailed
from spindle.config.node_config import NodeConfig

log = logging.getLogger(__name__)

_DELETION_CHECK_MS: Final = 1000


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
                0,
                integer("replica.high.watermark.checkpoint.interval.ms"),
                self._checkpoint_high_watermarks,
            ),
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._flushing: dict[BrokerDirectory, asyncio.Task[None]] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._repeat(delay_ms, period_ms, function))
            for delay_ms, period_ms, function in self._schedule
        ]

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._flushing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(
        self, delay_ms: int, period_ms: int, function: Callable[[BrokerDirectory], None]
    ) -> None:
        await asyncio.sleep(delay_ms / 1000)
        while True:
            await asyncio.sleep(min(period_ms / 1000, 86_400.0))
            for directory in self._replicas.directories:
                if not directory.is_offline:
                    function(directory)

    def _retain(self, directory: BrokerDirectory) -> None:
        directory.executor.submit_nowait(directory.store.apply_retention, self._now_ms())

    def _flush(self, directory: BrokerDirectory) -> None:
        if directory not in self._flushing:
            task = asyncio.create_task(self._flush_directory(directory))
            self._flushing[directory] = task
            task.add_done_callback(lambda _: self._flushing.pop(directory, None))

    async def _flush_directory(self, directory: BrokerDirectory) -> None:
        """The syncs run beside the directory's thread, which goes on serving."""
        try:
            tasks = await directory.executor.submit(directory.begin_flushes, self._now_ms())
            for _, task in tasks:
                await asyncio.to_thread(task.run)
            if tasks:
                await directory.executor.submit(directory.complete_flushes, tasks)
        except LogDirectoryFailed as failure:
            log.warning("flush: %s", failure)
        except OSError as error:
            directory.executor.fail(error)

    def _checkpoint_recovery_points(self, directory: BrokerDirectory) -> None:
        directory.executor.submit_nowait(directory.store.checkpoint_recovery_points)

    def _checkpoint_log_starts(self, directory: BrokerDirectory) -> None:
        directory.executor.submit_nowait(directory.store.checkpoint_log_starts)

    def _checkpoint_high_watermarks(self, directory: BrokerDirectory) -> None:
        directory.executor.submit_nowait(directory.store.checkpoint_high_watermarks)

    def _delete_expired(self, directory: BrokerDirectory) -> None:
        directory.executor.submit_nowait(directory.store.delete_expired, self._now_ms())
