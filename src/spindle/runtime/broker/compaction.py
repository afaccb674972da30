"""Compaction in all directories of a broker: one pass at a time in each of them.

The copying runs beside the directories' I/O threads, in steps with pauses that keep it below
`log.cleaner.io.max.bytes.per.second`.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from spindle.common.errors import LogDirectoryFailed
from spindle.common.text import size_text
from spindle.config.broker_values import BrokerValues
from spindle.disks.cleaner import CleanerCounts
from spindle.disks.cleaning_rate import CleaningRate
from spindle.disks.log_directory import LogDirectory
from spindle.log.cleaning.cleaning import Cleaning, CleaningResult, CleaningSettings
from spindle.log.errors import CleaningAborted
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime import background

log = logging.getLogger(__name__)

_MIN_MAP_BYTES: Final = 1024 * 1024
_MAX_SLEEP_S: Final = 86_400.0


class Compaction:
    """The compaction tasks of a broker, a task for each directory."""

    def __init__(
        self, replicas: ReplicaManager, now_ms: Callable[[], int], *, is_native: bool
    ) -> None:
        """Start no task; see `follow_directories`.

        Args:
            is_native: use the native code where it is available.
        """
        self._replicas = replicas
        self._now_ms = now_ms
        self._is_native = is_native
        self._tasks: dict[LogDirectory, asyncio.Task[None]] = {}
        self._rate = CleaningRate()
        self._backoff_ms = 0
        self._map_bytes = self._buffer_bytes = 0
        self._load_factor = 0.0
        self._has_changed = asyncio.Event()

    def update(self, values: BrokerValues) -> None:
        """Apply new settings: the rate now, the others at the next pass."""
        self._backoff_ms = values.integer("log.cleaner.backoff.ms")
        self._map_bytes = values.integer("log.cleaner.dedupe.buffer.size")
        self._buffer_bytes = values.integer("log.cleaner.io.buffer.size")
        self._load_factor = values.decimal("log.cleaner.io.buffer.load.factor")
        self._rate.set_limit(values.decimal("log.cleaner.io.max.bytes.per.second"))
        self._has_changed.set()
        self._has_changed = asyncio.Event()

    def follow_directories(self) -> None:
        """Compact from now on in exactly the broker's present directories."""
        for gone in [d for d in self._tasks if d not in self._replicas.directories]:
            self._tasks.pop(gone).cancel()
        for directory in self._replicas.directories:
            if directory not in self._tasks:
                self._tasks[directory] = background.run_forever(
                    partial(self._compact, directory), f"compaction in {directory.path}"
                )

    async def stop(self) -> None:
        """End all tasks; return when none of them submits anything more."""
        await background.end(*self._tasks.values())

    @property
    def ended_tasks(self) -> int:
        """The number of tasks that have ended although their directory is online."""
        return sum(task.done() for task in self._tasks.values())

    def counts(self) -> dict[str, CleanerCounts]:
        """Return the numbers of each directory, by path."""
        return {d.path: d.cleaner.counts for d in self._replicas.directories}

    @property
    def _settings(self) -> CleaningSettings:
        """Return the settings of one pass: each directory gets its share of the memory."""
        count = max(1, len(self._tasks))
        return CleaningSettings(
            max(self._map_bytes // count, _MIN_MAP_BYTES),
            min(max(self._load_factor, 0.01), 0.99),
            self._buffer_bytes // count,
            self._is_native,
        )

    async def _compact(self, directory: LogDirectory) -> None:
        """Compact the dirtiest log of a directory; wait if there is none."""
        has_compacted = False
        if not directory.is_offline:
            try:
                has_compacted = await self._compact_one(directory)
            except LogDirectoryFailed as failure:
                log.warning("compaction failed: %s", failure)
        if not has_compacted:
            await self._pause(self._backoff_ms / 1000)

    async def _pause(self, duration_s: float) -> None:
        """Wait for a time, or until a setting changes."""
        try:
            async with asyncio.timeout(min(duration_s, _MAX_SLEEP_S)):
                await self._has_changed.wait()
        except TimeoutError:
            return

    async def _compact_one(self, directory: LogDirectory) -> bool:
        """Compact the dirtiest log; return False if there was none, or its pass was aborted.

        Raises:
            LogDirectoryFailed: the directory is offline.
        """
        executor, cleaner = directory.executor, directory.cleaner
        began_ms = self._now_ms()
        cleaning = await executor.submit(cleaner.next_pass, began_ms, self._settings)
        if cleaning is None:
            return False
        try:
            cleaned = await self._run(cleaning, directory)
            now_ms = self._now_ms()
            is_done = await executor.submit(cleaner.finish, cleaned, now_ms, now_ms - began_ms)
        except CleaningAborted as aborted:
            log.info("%s", aborted)
            await executor.submit(cleaner.cancel, cleaning.plan)
            return False
        except LogDirectoryFailed:
            raise
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            # A pass without an end would keep retention from this log, too.
            await executor.submit(cleaner.give_up_failed, cleaning, error, self._now_ms())
            return False
        if is_done:
            log.info(
                "%s is compacted below offset %d: %s of %s are left, %d of %d records, in %.1f s",
                cleaning.plan.path,
                cleaned.end_offset,
                size_text(cleaned.stats.written_bytes),
                size_text(cleaned.stats.read_bytes),
                cleaned.stats.records_kept,
                cleaned.stats.records_read,
                (now_ms - began_ms) / 1000,
            )
        return is_done

    async def _run(self, cleaning: Cleaning, directory: LogDirectory) -> CleaningResult:
        """Run the pass beside the directory's thread; abort it when this broker stops."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                used_bytes = await directory.executor.submit_beside(
                    cleaning.advance, self._rate.step_bytes
                )
                pause_s = self._rate.pause_s(used_bytes, loop.time())
                if cleaning.result is not None:
                    return cleaning.result
                if cleaning.plan.signal.is_aborted:
                    raise CleaningAborted(cleaning.plan.path)
                await self._pause(pause_s)
        except asyncio.CancelledError:
            cleaning.plan.signal.abort()
            raise
