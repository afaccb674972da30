"""A fetch of a share group's member: it waits until records are available, and acquires them.

Reads run on the I/O threads of the directories. While one fetch reads a share partition, others
wait for its end, so that no record is read twice.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from spindle.common.errors import (
    ApiError,
    CorruptLog,
    CorruptRecords,
    ErrorCode,
    LogDirectoryFailed,
    error_code,
)
from spindle.common.ids import TopicIdPartition
from spindle.common.ports import Bytes
from spindle.coordinator.share.share_partition import (
    AcquiredRange,
    AcquisitionRequest,
    FetchedBatch,
    SharePartition,
)
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.log import Log
from spindle.protocol.records.batch import batches
from spindle.runtime.share.counts import ShareCounts
from spindle.runtime.share.led_partition import LedSharePartition
from spindle.serving.fetch.fetch_memory import FetchMemory
from spindle.serving.fetch.log_reads import read_logs
from spindle.serving.fetch.partition_read import Found, ReadResult
from spindle.serving.share_ports import FetchedSharePartition, ShareFetchTerms

_MAX_READS: Final = 16
"""Reads of a partition in one turn that find nothing to deliver, such as markers."""

FindLed = Callable[[str, TopicIdPartition, str], LedSharePartition]
"""Returns the share partition of a group; raises ApiError."""


class ShareFetch:
    """One unanswered request."""

    def __init__(
        self,
        terms: ShareFetchTerms,
        find: FindLed,
        memory: FetchMemory,
        has_read: Callable[[str, int], None],
        counts: ShareCounts,
    ) -> None:
        self._terms = terms
        self._find = find
        self._memory = memory
        self._has_read = has_read
        self._counts = counts
        self._acquired_s: float | None = None
        self._loop = asyncio.get_running_loop()
        self._happened: asyncio.Future[None] = self._loop.create_future()
        self._results: dict[TopicIdPartition, FetchedSharePartition] = {}
        self._watched: dict[TopicIdPartition, LedSharePartition] = {}
        self._size_bytes = 0
        self._record_count = 0
        self._is_over = False

    async def run(self) -> dict[TopicIdPartition, FetchedSharePartition]:
        """Return records as soon as `min_bytes` are there, a partition has an error, or the time
        is over."""
        start_s = self._loop.time()
        timer = None
        if self._terms.max_wait_ms > 0:
            timer = self._loop.call_later(self._terms.max_wait_ms / 1000, self._time_is_over)
        else:
            self._is_over = True
        try:
            while True:
                self._happened = self._loop.create_future()
                has_error = await self._look()
                is_enough = self._size_bytes >= max(self._terms.min_bytes, 1)
                if has_error or is_enough or self._is_full or self._is_over:
                    return self._results
                await self._happened
        finally:
            if timer is not None:
                timer.cancel()
            for led in self._watched.values():
                self._unwatch(led)
            if self._acquired_s is not None:
                ratio = sum(bool(r.acquired) for r in self._results.values())
                self._counts.acquired(
                    self._terms.group_id,
                    self._acquired_s - start_s,
                    ratio / len(self._terms.partitions),
                )

    @property
    def _is_full(self) -> bool:
        return (
            self._size_bytes >= self._terms.max_bytes
            or self._record_count >= self._terms.acquisition.max_records
        )

    # ------------------------------------------------------------ events

    def _wake(self) -> None:
        if not self._happened.done():
            self._happened.set_result(None)

    def _time_is_over(self) -> None:
        self._is_over = True
        self._wake()

    def log_moved(self) -> None:
        """Ignore an append: members see committed records only."""

    def committed(self) -> None:
        """Look again, because the high watermark or the last stable offset has moved."""
        self._wake()

    def changed(self) -> None:
        """Look again, because the leadership has changed."""
        self._wake()

    def _watch(self, where: TopicIdPartition, led: LedSharePartition) -> None:
        before = self._watched.get(where)
        if before is led:
            return
        if before is not None:
            self._unwatch(before)
        self._watched[where] = led
        led.watch(self._wake)
        led.hosted.watch(self, appends=False)

    def _unwatch(self, led: LedSharePartition) -> None:
        led.unwatch(self._wake)
        led.hosted.unwatch(self)

    # ------------------------------------------------------------ reading

    async def _look(self) -> bool:
        """Read what is available; return True if a partition has an error."""
        has_error = False
        for where, topic in self._terms.partitions.items():
            if self._is_full:
                break
            if where in self._results:
                continue
            try:
                led = self._watched.get(where)
                if led is None or led.error is None:
                    led = self._find(self._terms.group_id, where, topic)
                self._watch(where, led)
                if led.core is None and led.error is None:
                    continue  # its state is being read
                read = await self._read(led)
            except ApiError as error:
                self._results[where] = FetchedSharePartition(error)
                has_error = True
                continue
            if read is not None:
                self._results[where] = read
                self._has_read(topic, len(read.records))
        return has_error

    async def _read(self, led: LedSharePartition) -> FetchedSharePartition | None:
        """Return records of a share partition; None if there are none, or another fetch reads.

        Raises:
            ApiError: the records cannot be read.
        """
        for _ in range(_MAX_READS):
            core = led.active()
            if core.advance_log_start(led.hosted.log.log_start_offset):
                led.changed()
            offset = core.next_fetch_offset(led.delivery)
            if led.is_fetching or offset is None or offset >= self._end_offset(led):
                return None
            led.fetch_began()
            try:
                fetched = await self._acquire(led, core, offset)
            except (LogDirectoryFailed, CorruptLog) as error:
                raise ApiError(error_code(error), str(error)) from None
            finally:
                led.fetch_ended()
            if fetched is not None or core.next_fetch_offset(led.delivery) == offset:
                return fetched  # there is no room for the next batch, if nothing was fetched
        return None

    def _end_offset(self, led: LedSharePartition) -> int:
        hosted = led.hosted
        return hosted.last_stable_offset if led.config.is_read_committed else hosted.high_watermark

    async def _acquire(
        self, led: LedSharePartition, core: SharePartition, offset: int
    ) -> FetchedSharePartition | None:
        """Read from an offset on and acquire; None if nothing there is to be delivered."""
        granted = self._memory.grant(max(self._terms.max_bytes - self._size_bytes, 1))
        hosted = led.hosted
        is_committed = led.config.is_read_committed
        items = [(hosted.log, offset, granted, self._end_offset(led))]
        try:
            (result,) = await _submitted(
                led, items, granted, has_any=bool(self._size_bytes), is_committed=is_committed
            )
        finally:
            self._memory.give_back(granted)
        if isinstance(result, ApiError):
            if result.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise result
            core.advance_log_start(hosted.log.log_start_offset)
            return None
        if led.active() is not core or result is None:
            return None
        return self._take(led, core, offset, result, is_committed=is_committed)

    def _take(
        self,
        led: LedSharePartition,
        core: SharePartition,
        offset: int,
        read: Found,
        *,
        is_committed: bool,
    ) -> FetchedSharePartition | None:
        records = read.records
        assert isinstance(records, memoryview), "read_logs was not asked for ranges of files"
        try:
            placed = _placed(records, read.aborted if is_committed else ())
        except CorruptRecords as error:
            raise ApiError(error_code(error), str(error)) from None
        terms = self._terms.acquisition
        request = AcquisitionRequest(
            terms.member_id, terms.max_records - self._record_count, terms.is_record_limit
        )
        acquired = core.acquire(
            request,
            [batch for _, batch in placed],
            offset,
            led.delivery,
            led.steady_ms(),
        )
        if not acquired:
            return None
        if self._acquired_s is None:
            self._acquired_s = self._loop.time()
        records = records[: _end_of(placed, acquired)]
        self._size_bytes += len(records)
        self._record_count += sum(a.last_offset - a.first_offset + 1 for a in acquired)
        return FetchedSharePartition(None, records, acquired)


async def _submitted(
    led: LedSharePartition,
    items: list[tuple[Log, int, int, int]],
    room: int,
    *,
    has_any: bool,
    is_committed: bool,
) -> list[ReadResult]:
    executor = led.hosted.directory.executor
    return await executor.submit(read_logs, items, room, has_any, is_committed)


def _placed(
    records: Bytes, aborted: Sequence[AbortedTransaction]
) -> list[tuple[int, FetchedBatch]]:
    """Return the end position of each batch, and its offsets."""
    placed = []
    for position, header in batches(records):
        is_hidden = header.is_control or (
            header.is_transactional
            and any(
                t.producer_id == header.producer_id
                and t.first_offset <= header.base_offset <= t.last_offset
                for t in aborted
            )
        )
        batch = FetchedBatch(header.base_offset, header.last_offset, is_hidden)
        placed.append((position + header.size_bytes, batch))
    return placed


def _end_of(placed: list[tuple[int, FetchedBatch]], acquired: list[AcquiredRange]) -> int:
    """Return the end position of the batch that holds the last acquired record."""
    last = acquired[-1].last_offset
    return next(end for end, batch in placed if batch.last_offset >= last)
