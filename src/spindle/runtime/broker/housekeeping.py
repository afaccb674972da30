"""Periodic work of a broker: checkpoints, flushes, retention, deletions; it also starts compaction.

Flushing runs beside the directories' I/O threads, all the rest on them; the event loop only keeps
the time.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from spindle.common.errors import LogDirectoryFailed
from spindle.config.broker_keys.spindle import NATIVE_ENABLE
from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.disks.log_directory import LogDirectory
from spindle.log.flushing import FlushTask
from spindle.log.log import Log
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime import background
from spindle.runtime.broker.compaction import Compaction

log = logging.getLogger(__name__)

_DELETION_CHECK_MS: Final = 1000
_FLUSH_CHECK_MS: Final = 1000
"""Interval for flushes of rolled segments; log.flush.scheduler.interval.ms is for the active
segment."""
_NEW_EPOCHS_CHECK_MS: Final = 1000
_NEW_EPOCHS_PAUSE_S: Final = 0.02
"""Pause after the files of a few logs, so that a directory's thread does other work in between."""
_MAX_SLEEP_S: Final = 86_400.0


class Housekeeping:
    """Periodic tasks.

    Most of them begin `log.initial.task.delay.ms` after the start; compaction begins at once.
    """

    def __init__(
        self, replicas: ReplicaManager, config: NodeConfig, now_ms: Callable[[], int]
    ) -> None:
        self._replicas = replicas
        self._now_ms = now_ms
        initial_ms = config.integer("log.initial.task.delay.ms")
        integer = config.integer
        self._schedule = (
            (initial_ms, integer("log.retention.check.interval.ms"), self._retain),
            (initial_ms, integer("log.flush.scheduler.interval.ms"), self._flush),
            (0, _FLUSH_CHECK_MS, self._flush_finished_segments),
            (0, _NEW_EPOCHS_CHECK_MS, self._store_new_epochs),
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
        self._is_cleaner_enabled = config.flag("log.cleaner.enable")
        self.compaction = Compaction(replicas, now_ms, is_native=config.flag(NATIVE_ENABLE))
        self._tasks: list[asyncio.Task[None]] = []
        self._flushing: dict[LogDirectory, asyncio.Task[None]] = {}
        self._storing_epochs: dict[LogDirectory, asyncio.Task[None]] = {}
        self._is_started = False

        self.update(BrokerValues(config))

    def update(self, values: BrokerValues) -> None:
        """Use these values from now on."""
        self.compaction.update(values)

    def start(self) -> None:
        """Start all periodic tasks."""
        self._tasks = [
            background.run_forever(
                partial(self._turn, period_ms, function),
                f"housekeeping: {function.__name__}",
                delay_s=delay_ms / 1000,
            )
            for delay_ms, period_ms, function in self._schedule
        ]
        self._is_started = True
        self.follow_directories()

    def follow_directories(self) -> None:
        """Compact from now on in exactly the broker's present directories."""
        if self._is_started and self._is_cleaner_enabled:
            self.compaction.follow_directories()

    async def stop(self) -> None:
        """End all tasks; return when none of them submits anything more."""
        self._is_started = False
        await self.compaction.stop()
        await background.end(*self._tasks, *self._flushing.values(), *self._storing_epochs.values())

    async def _turn(self, period_ms: int, function: Callable[[LogDirectory], None]) -> None:
        await asyncio.sleep(min(period_ms / 1000, _MAX_SLEEP_S))
        for directory in list(self._replicas.directories):
            if not directory.is_offline:
                function(directory)

    # Flushes.

    def _flush(self, directory: LogDirectory) -> None:
        self._start_flush(directory, partial(directory.store.begin_flushes, self._now_ms()))

    def _flush_finished_segments(self, directory: LogDirectory) -> None:
        self._start_flush(directory, directory.store.begin_flushes_of_finished_segments)

    def _start_flush(
        self, directory: LogDirectory, begin: Callable[[], list[tuple[Log, FlushTask]]]
    ) -> None:
        """Flush a directory unless it is being flushed; the next check then flushes the rest."""
        if directory not in self._flushing:
            task = background.run_once(
                self._flush_directory(directory, begin), f"flush of {directory.path}"
            )
            self._flushing[directory] = task
            task.add_done_callback(lambda _: self._flushing.pop(directory, None))

    async def _flush_directory(
        self, directory: LogDirectory, begin: Callable[[], list[tuple[Log, FlushTask]]]
    ) -> None:
        executor = directory.executor
        try:
            tasks = await executor.submit(begin)
            for _, task in tasks:
                await executor.submit_beside(task.run)
            if tasks:
                await executor.submit(directory.store.complete_flushes, tasks)
        except LogDirectoryFailed as failure:
            log.warning("a flush failed: %s", failure)

    # Leader epochs that have begun.

    def _store_new_epochs(self, directory: LogDirectory) -> None:
        if directory.store.new_epochs.is_empty or directory in self._storing_epochs:
            return
        task = background.run_once(
            self._store_epochs_of(directory), f"leader epochs of {directory.path}"
        )
        self._storing_epochs[directory] = task
        task.add_done_callback(lambda _: self._storing_epochs.pop(directory, None))

    async def _store_epochs_of(self, directory: LogDirectory) -> None:
        try:
            are_left = True
            while are_left:
                are_left = await directory.executor.submit(directory.store.new_epochs.write_some)
                await asyncio.sleep(_NEW_EPOCHS_PAUSE_S)
        except LogDirectoryFailed as failure:
            log.warning("leader epochs were not stored: %s", failure)

    # The rest: short work on the directories' threads.

    def _retain(self, directory: LogDirectory) -> None:
        directory.executor.submit_nowait(directory.store.apply_retention, self._now_ms())

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
