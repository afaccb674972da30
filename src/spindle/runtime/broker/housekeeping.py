"""Periodic work of a broker: checkpoints, flushes, retention, compaction, deletions.

Flushing and the copying of a compaction run beside the directories' I/O threads, all the rest on
them; the event loop only keeps the time.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from spindle.common.errors import LogDirectoryFailed
from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.disks.log_directory import LogDirectory
from spindle.log.cleaning.cleaning import Cleaning, CleaningResult
from spindle.log.errors import CleaningAborted, UncleanableLog
from spindle.log.flushing import FlushTask
from spindle.log.log import Log
from spindle.replicas.replica_manager import Replicas
from spindle.runtime import background

log = logging.getLogger(__name__)

_DELETION_CHECK_MS: Final = 1000
_FLUSH_CHECK_MS: Final = 1000
"""How soon a finished segment is flushed; log.flush.scheduler.interval.ms is for the active one."""
_LONGEST_SLEEP_S: Final = 86_400.0


class Housekeeping:
    """Periodic tasks. Most of them begin `log.initial.task.delay.ms` after the start."""

    def __init__(self, replicas: Replicas, config: NodeConfig, now_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._now_ms = now_ms
        initial_ms = config.integer("log.initial.task.delay.ms")
        integer = config.integer
        self._schedule = (
            (initial_ms, integer("log.retention.check.interval.ms"), self._retain),
            (initial_ms, integer("log.flush.scheduler.interval.ms"), self._flush),
            (0, _FLUSH_CHECK_MS, self._flush_finished_segments),
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
        self._initial_delay_ms = initial_ms
        self._tasks: list[asyncio.Task[None]] = []
        self._compacting: dict[LogDirectory, asyncio.Task[None]] = {}
        self._flushing: dict[LogDirectory, asyncio.Task[None]] = {}
        self._is_started = False

        self.update(BrokerValues(config))

    def update(self, values: BrokerValues) -> None:
        """Use these values from the next compaction on."""
        self._cleaner_backoff_ms = values.integer("log.cleaner.backoff.ms")
        self._cleaner_map_bytes = values.integer("log.cleaner.dedupe.buffer.size")

    def start(self) -> None:
        """Begin all periodic tasks."""
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
        """Compact in every directory of the broker, and in no other any more."""
        if not self._is_started or not self._is_cleaner_enabled:
            return
        for gone in [d for d in self._compacting if d not in self._replicas.directories]:
            self._compacting.pop(gone).cancel()
        for directory in self._replicas.directories:
            if directory not in self._compacting:
                self._compacting[directory] = background.run_forever(
                    partial(self._compact, directory),
                    f"compaction in {directory.path}",
                    delay_s=self._initial_delay_ms / 1000,
                )

    async def stop(self) -> None:
        """End all tasks; return when none of them submits anything more."""
        self._is_started = False
        await background.end(*self._tasks, *self._compacting.values(), *self._flushing.values())

    async def _turn(self, period_ms: int, function: Callable[[LogDirectory], None]) -> None:
        await asyncio.sleep(min(period_ms / 1000, _LONGEST_SLEEP_S))
        for directory in list(self._replicas.directories):
            if not directory.is_offline:
                function(directory)

    # Compaction.

    async def _compact(self, directory: LogDirectory) -> None:
        """Compact the dirtiest log of a directory; wait if there is none."""
        has_compacted = False
        if not directory.is_offline:
            try:
                has_compacted = await self._compact_one(directory)
            except LogDirectoryFailed as failure:
                log.warning("compaction: %s", failure)
        if not has_compacted:
            await asyncio.sleep(min(self._cleaner_backoff_ms / 1000, _LONGEST_SLEEP_S))

    async def _compact_one(self, directory: LogDirectory) -> bool:
        """Compact the dirtiest log; return False if there was none, or its pass was given up.

        Raises:
            LogDirectoryFailed: the directory is offline.
        """
        executor, cleaner = directory.executor, directory.cleaner
        cleaning = await executor.submit(cleaner.next_pass, self._now_ms(), self._cleaner_map_bytes)
        if cleaning is None:
            return False
        try:
            result = await self._run(cleaning, directory)
        except CleaningAborted as aborted:
            log.info("%s", aborted)
            await executor.submit(cleaner.give_up, cleaning.plan)
            return False
        except UncleanableLog as error:
            log.error("%s; it is not compacted until the next start", error)
            await executor.submit(cleaner.give_up_uncleanable, cleaning.plan)
            return False
        except LogDirectoryFailed:
            raise
        except Exception:
            # A pass without an end would keep retention from this log, too.
            await executor.submit(cleaner.give_up_uncleanable, cleaning.plan)
            raise
        return await executor.submit(cleaner.finish, result, self._now_ms())

    async def _run(self, cleaning: Cleaning, directory: LogDirectory) -> CleaningResult:
        """Do the pass beside the directory's thread; abort it when this broker stops."""
        try:
            return await directory.executor.submit_beside(cleaning.run)
        except asyncio.CancelledError:
            cleaning.plan.signal.abort()
            raise

    # Flushes.

    def _flush(self, directory: LogDirectory) -> None:
        self._start_flush(directory, partial(directory.store.begin_flushes, self._now_ms()))

    def _flush_finished_segments(self, directory: LogDirectory) -> None:
        self._start_flush(directory, directory.store.begin_flushes_of_finished_segments)

    def _start_flush(
        self, directory: LogDirectory, begin: Callable[[], list[tuple[Log, FlushTask]]]
    ) -> None:
        """Flush a directory unless a flush of it is under way; the next check finds the rest."""
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
            log.warning("flush: %s", failure)

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
