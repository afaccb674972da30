"""A share partition that this broker leads: its state, its locks and its writes (KIP-932)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed
from spindle.coordinator.share.delivery import UNINITIALIZED_OFFSET, UNKNOWN_COUNT
from spindle.coordinator.share.ports import ShareStateStore
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    DeadLetterRange,
    DeliverySettings,
    SharePartition,
    acknowledged_types,
)
from spindle.coordinator.share.state_records import ShareKey
from spindle.coordinator.share.state_shard import WrittenState
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime import background
from spindle.runtime.share.counts import ShareCounts
from spindle.runtime.share.dead_letter_writer import WriteDeadLetters
from spindle.runtime.share.offset_reset import first_offset
from spindle.runtime.share.settings import ShareDeliveryConfig

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
"""Pause before a failed write is tried again."""
_FENCED: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INVALID_REQUEST,
)
"""Errors of the coordinator after which the state must be read again."""
_NOT_STORED: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # The share partition has no state: its group has not initialized it, or was deleted.
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""The error for members, by the error of the coordinator."""


def member_error(error: ApiError) -> ApiError:
    """Return what a member gets for an error of the share coordinator."""
    return ApiError(_NOT_STORED.get(error.code, error.code), error.message)


class LedSharePartition:
    """One share partition while this broker leads its partition.

    Attributes:
        hosted: the partition.
        core: the records in flight; None until the state is read.
        error: why the state could not be read, or why it is not valid any more.
        is_fetching: a fetch reads records for a member; others wait for its end.
        fetch_time_s: sum of the times of such fetches.
        lock_timeouts: number of records whose locks have expired.
    """

    def __init__(
        self,
        key: ShareKey,
        hosted: Partition,
        replicas: ReplicaManager,
        store: ShareStateStore,
        config_of: Callable[[str], ShareDeliveryConfig],
        now_ms: Callable[[], int],
        write_dead_letters: WriteDeadLetters,
        counts: ShareCounts,
    ) -> None:
        """Begin to read the state."""
        self.key = key
        self.hosted = hosted
        self.leader_epoch = hosted.leader_epoch
        self.core: SharePartition | None = None
        self.error: ApiError | None = None
        self.is_fetching = False
        self._replicas = replicas
        self._store = store
        self._config_of = config_of
        self._now_ms = now_ms
        self._write_dead_letters = write_dead_letters
        self._counts = counts
        self.lock_timeouts = 0
        self.fetch_time_s = 0.0
        self._fetch_began_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._on_idle: Callable[[], None] | None = None
        self._watchers: dict[Callable[[], None], None] = {}
        self._unstored: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._letters: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._lock_timer: asyncio.TimerHandle | None = None
        self._loader = background.run_once(self._load(), f"reading share state of {key}")

    @property
    def config(self) -> ShareDeliveryConfig:
        """The settings that the group has now."""
        return self._config_of(self.key.group_id)

    @property
    def delivery(self) -> DeliverySettings:
        """The settings of records in flight that the group has now."""
        return self.config.delivery

    @property
    def is_idle(self) -> bool:
        """True if no member holds a record, and everything is stored."""
        core = self.core
        if core is None:
            return self._loader.done()
        is_busy = self._writer or self._letters or self.is_fetching
        return not (core.acquired_count or core.has_unsaved or core.has_dead_letters or is_busy)

    def steady_ms(self) -> int:
        """Return the time of the clock by which locks expire."""
        return int(self._loop.time() * 1000)

    # ------------------------------------------------------------ life

    async def _load(self) -> None:
        start_s = self._loop.time()
        try:
            core = await self._read_state()
        except ApiError as error:
            log.info("Share partition %s cannot be served: %s", self.key, error)
            self.end(member_error(error))
            return
        except LogDirectoryFailed as error:
            self.end(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            return
        except Exception:
            # Otherwise members would wait for this state forever.
            self.end(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
            raise
        if self.error is None:
            core.advance_log_start(self.hosted.log.log_start_offset)
            self.core = core
            self._counts.loads.observe(self._loop.time() - start_s)
            self.changed()

    async def _read_state(self) -> SharePartition:
        stored = await self._store.read(self.key, self.leader_epoch)
        start_offset = stored.start_offset
        if start_offset == UNINITIALIZED_OFFSET:
            start_offset = await first_offset(
                self._replicas, self.hosted, self.config, self._now_ms()
            )
            # Without this write, a restart would begin again at another offset.
            await self._store.write(
                self.key,
                WrittenState(stored.state_epoch, self.leader_epoch, start_offset, 0, ()),
            )
        return SharePartition(start_offset, stored.state_epoch, stored.batches)

    async def wait_loaded(self) -> SharePartition:
        """Return the records in flight when the state is read; raise ApiError if it cannot be."""
        if self.core is None and self.error is None:
            await asyncio.wait([self._loader])
        return self.active()

    def active(self) -> SharePartition:
        """Return the records in flight; raise ApiError unless the state is read and valid."""
        if self.error is not None:
            raise ApiError(self.error.code, self.error.message)
        if self.core is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.core

    def end(self, error: ApiError) -> None:
        """Refuse everything from now on: the leadership has ended, or the state is not valid."""
        if self.error is not None:
            return
        self.error = error
        self._loader.cancel()
        for task in (self._writer, self._letters):
            if task is not None:
                task.cancel()
        for timer in (self._retry, self._lock_timer):
            if timer is not None:
                timer.cancel()
        self._settle(self._unstored, error)
        self._unstored = []
        self._notify()

    # ------------------------------------------------------------ events

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back when records may be available, or the share partition has an error."""
        self._watchers[callback] = None

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Cancel `watch`."""
        self._watchers.pop(callback, None)

    def _notify(self) -> None:
        for callback in list(self._watchers):
            callback()

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back once, in place of an earlier callback, when `is_idle` is True."""
        self._on_idle = callback

    def fetch_began(self) -> None:
        """Make other fetches wait until `fetch_ended`."""
        self.is_fetching = True
        self._fetch_began_s = self._loop.time()

    def fetch_ended(self) -> None:
        """Let the next fetch read; store what this one has changed."""
        self.is_fetching = False
        self.fetch_time_s += self._loop.time() - self._fetch_began_s
        self.changed()

    def changed(self) -> None:
        """Store changes, set the timer of the next lock that expires, and wake fetches."""
        if self.error is not None or self.core is None:
            return
        self._set_lock_timer(self.core)
        if self._writer is None and self._retry is None:
            self._begin_write(self.core)
        if self._letters is None:
            self._begin_dead_letters(self.core)
        self._notify()
        if self._on_idle is not None and self.is_idle:
            on_idle, self._on_idle = self._on_idle, None
            on_idle()

    # ------------------------------------------------------------ members

    async def acknowledge(self, member_id: str, batches: Sequence[AcknowledgedBatch]) -> None:
        """Take a member's acknowledgements; return when they are stored.

        Raises:
            ApiError: the acknowledgements are refused, or could not be stored.
        """
        core = await self.wait_loaded()
        if core.acknowledge(member_id, batches, self.delivery, self.steady_ms()):
            stored: asyncio.Future[None] = self._loop.create_future()
            self._unstored.append(stored)
            if self._retry is not None:
                self._retry.cancel()
                self._retry = None
            self.changed()
            await stored
        else:
            self.changed()
        for first, end, kind in acknowledged_types(batches):
            self._counts.acknowledgements[kind] += end - first

    def release(self, member_id: str) -> None:
        """Release what a member holds."""
        if self.core is not None and self.core.release(member_id, self.delivery):
            self.changed()

    # ------------------------------------------------------------ locks

    def _set_lock_timer(self, core: SharePartition) -> None:
        if self._lock_timer is not None:
            self._lock_timer.cancel()
            self._lock_timer = None
        deadline_ms = core.next_deadline_ms()
        if deadline_ms is not None:
            delay_s = max(deadline_ms - self.steady_ms(), 1) / 1000
            self._lock_timer = self._loop.call_later(delay_s, self._expire_locks, core)

    def _expire_locks(self, core: SharePartition) -> None:
        self._lock_timer = None
        before = core.acquired_count
        core.expire(self.delivery, self.steady_ms())
        self.lock_timeouts += before - core.acquired_count
        self.changed()

    # ------------------------------------------------------------ dead letters

    def _begin_dead_letters(self, core: SharePartition) -> None:
        letters = core.dead_letters(self.delivery)
        if letters:
            work = self._archive(core, letters)
            self._letters = background.run_once(work, f"dead letters of {self.key}")

    async def _archive(self, core: SharePartition, letters: Sequence[DeadLetterRange]) -> None:
        """Write records to the dead-letter topic, and archive them even if that is impossible."""
        try:
            for part in letters:
                try:
                    await self._write_dead_letters(self.hosted, self.key.group_id, part)
                except ApiError as error:
                    log.error(
                        "Offsets %d to %d of %s are archived without dead letters: %s",
                        part.first_offset,
                        part.last_offset,
                        self.key,
                        error,
                    )
                except LogDirectoryFailed as failure:
                    log.info("The next leader of %s writes its dead letters: %s", self.key, failure)
                    return
                core.end_dead_letters(part)
        finally:
            self._letters = None
        self.changed()

    # ------------------------------------------------------------ storing

    def _begin_write(self, core: SharePartition) -> None:
        if core.must_write:
            self._writer = background.run_once(self._write(core), f"writing state of {self.key}")

    async def _write(self, core: SharePartition) -> None:
        failure: ApiError | None = None
        while failure is None and (write := core.begin_write()) is not None:
            waiting, self._unstored = self._unstored, []
            count = write.delivery_complete_count if write.start_offset >= 0 else UNKNOWN_COUNT
            written = WrittenState(
                core.state_epoch, self.leader_epoch, write.start_offset, count, write.batches
            )
            try:
                await self._store.write(self.key, written)
            except ApiError as error:
                failure = error
            except BaseException:
                # Cancelled by `end`, or a bug: nobody may wait for this write any more.
                unknown = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
                self._writer = None
                self._settle(waiting, self.error or unknown)
                self.end(unknown)
                raise
            core.end_write(is_stored=failure is None)
            self._settle(waiting, None if failure is None else member_error(failure))
        self._writer = None
        if failure is not None:
            log.info("The state of share partition %s is not stored: %s", self.key, failure)
            if failure.code in _FENCED:
                self.end(member_error(failure))
                return
            self._retry = self._loop.call_later(_RETRY_S, self._write_again)
        self.changed()

    def _write_again(self) -> None:
        self._retry = None
        self.changed()

    def _settle(self, waiting: list["asyncio.Future[None]"], error: ApiError | None) -> None:
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(ApiError(error.code, error.message))
