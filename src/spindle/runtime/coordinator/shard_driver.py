"""Runs one group coordinator shard: loading, timers, group commit of its appends.

Operations are decided at once, also while an append is under way; the records of all that were
decided meanwhile go into the next batch. One append at a time keeps the order of the log that of
the decisions. An exclusive operation waits until no append is under way, and what comes after it
waits until its own is committed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from spindle.common.errors import (
    ApiError,
    CorruptLog,
    CorruptRecords,
    ErrorCode,
    LogDirectoryFailed,
)
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.coordinator.append_errors import coordinator_error
from spindle.coordinator.outcome import Answer, Outcome, TimerChange, TimerKey, Token
from spindle.coordinator.records import CoordinatorRecord, encode_record, parse_record
from spindle.coordinator.shard import NO_PRODUCER_ID, GroupShard
from spindle.coordinator.timers import TimerQueue
from spindle.protocol.records.batch import HEADER_BYTES, BatchHeader, batches
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import read_end_transaction
from spindle.protocol.records.record import decode_records

log = logging.getLogger(__name__)

Clock = Callable[[], int]
"""Milliseconds since the epoch."""
Operation = Callable[[Token, int], Outcome]
"""Decides at a time, for the request that the token names."""

RECORD_OVERHEAD_BYTES: Final = 24
"""At most what a record adds to its key and value in a batch of less than 2 GiB."""
RECORDS_WITHOUT_REST: Final = 1_000
"""Loading replays about this many (6 ms) before other work of the event loop gets its turn."""
_BASE_SEQUENCE: Final = 0


class CoordinatorLog(Protocol):
    """The partitions of `__consumer_offsets` that this broker leads."""

    async def append(self, partition: TopicPartition, batch: bytes) -> int:
        """Append one batch and wait until it is committed; the offset of its last record.

        Raises:
            ApiError: it was not appended, or leadership was lost.
        """
        ...

    def read_batches(self, partition: TopicPartition) -> AsyncIterator[Bytes]:
        """Whole batches from the log start to the log end, in pieces of any size."""
        ...


class ShardState(Enum):
    """LOADING -> ACTIVE or FAILED; every state -> CLOSED."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class ShardSettings(NamedTuple):
    """Limits of one shard."""

    commit_timeout_ms: int = 5_000
    """`offsets.commit.timeout.ms`: after this a request is told to try again."""
    max_batch_bytes: int = 1_048_588
    """`max.message.bytes` of `__consumer_offsets`."""
    codec: int = 0
    """`offsets.topic.compression.codec`."""
    max_pending_bytes: int = 32 * 1024 * 1024
    """Records waiting for an append; beyond it requests get COORDINATOR_NOT_AVAILABLE."""
    max_waiting_operations: int = 10_000
    """Operations behind an exclusive one; more are refused with COORDINATOR_NOT_AVAILABLE."""


class _Work(NamedTuple):
    future: "asyncio.Future[Any] | None"
    operation: Operation
    is_exclusive: bool
    timer: TimerKey | None = None


class _Write(NamedTuple):
    outcome: Outcome
    encoded: list[tuple[bytes, bytes | None]]
    size_bytes: int


class ShardDriver:
    """Owns a `GroupShard` from this broker's election for its partition until it resigns."""

    def __init__(
        self,
        partition: TopicPartition,
        leader_epoch: int,
        shard: GroupShard,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        settings: ShardSettings,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = ShardState.LOADING
        self._log = coordinator_log
        self._clock = clock
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._timers = TimerQueue()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._waiting: deque[_Work] = deque()
        self._writes: deque[_Write] = deque()
        self._in_flight: list[_Write] = []
        self._pending_bytes = 0
        self._is_exclusive = False
        self._writer: asyncio.Task[None] | None = None
        self._loader = self._loop.create_task(self._load())

    # ------------------------------------------------------------ life

    async def _load(self) -> None:
        count = rested = 0
        try:
            async for piece in self._log.read_batches(self.partition):
                for position, header in batches(piece):
                    count += self._replay(piece, position, header)
                    if count - rested >= RECORDS_WITHOUT_REST:
                        rested = count
                        await asyncio.sleep(0)
        except (ApiError, LogDirectoryFailed, CorruptRecords, CorruptLog) as error:
            if self.state is ShardState.LOADING:
                self.state = ShardState.FAILED
            log.error("Loading groups of %s failed: %s", self.partition, error)
            return
        if self.state is not ShardState.LOADING:
            return
        self.state = ShardState.ACTIVE
        log.info(
            "Loaded %d groups of %s (%d records)", len(self.shard.groups), self.partition, count
        )
        now_ms = self._clock()
        self._execute(self.shard.loaded(now_ms), now_ms, is_exclusive=False)

    def _replay(self, piece: Bytes, position: int, header: BatchHeader) -> int:
        records = decode_records(piece, position, header)
        if header.is_control:
            for record in records:
                marker = read_end_transaction(record)
                if marker is not None:
                    self.shard.replay_marker(header.producer_id, marker.is_commit)
            return len(records)
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            parsed = parse_record(record.key, record.value, record.offset)
            if parsed is not None:
                self.shard.replay(parsed, producer_id)
        return len(records)

    async def wait_loaded(self) -> None:
        """Return when loading has ended, one way or the other."""
        await asyncio.wait([self._loader])

    def close(self) -> None:
        """Stop at once: this broker does not lead the partition any more."""
        if self.state is ShardState.CLOSED:
            return
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.CLOSED
        self._loader.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._writer is not None:
            self._writer.cancel()
        for work in self._waiting:
            _fail(work.future, ErrorCode.NOT_COORDINATOR)
        self._waiting.clear()
        for write in [*self._in_flight, *self._writes]:
            self._fail_answers(write.outcome.answers_after_commit, ErrorCode.NOT_COORDINATOR)
        self._writes.clear()
        if was_active:
            self._answer(self.shard.unloaded(self._clock()).answers)

    # ------------------------------------------------------------ operations

    def check_active(self) -> None:
        """Raises ApiError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS unless usable."""
        if self.state is ShardState.LOADING:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is not ShardState.ACTIVE:
            raise ApiError(ErrorCode.NOT_COORDINATOR)

    def submit(self, operation: Operation, *, is_exclusive: bool = False) -> "asyncio.Future[Any]":
        """Decide now, or as soon as an exclusive operation lets it; the answer as a future.

        Raises:
            ApiError: the shard is not usable, or the operation refuses the request.
        """
        self.check_active()
        if self._pending_bytes > self._settings.max_pending_bytes:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many records wait")
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._must_wait(is_exclusive):
            if len(self._waiting) >= self._settings.max_waiting_operations:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many requests wait")
            self._waiting.append(_Work(future, operation, is_exclusive))
        else:
            now_ms = self._clock()
            self._execute(operation(future, now_ms), now_ms, is_exclusive=is_exclusive)
        return future

    def submit_background(self, operation: Operation, *, is_exclusive: bool) -> None:
        """As `submit`, for an operation that nobody waits for and no limit applies to."""
        work = _Work(None, operation, is_exclusive)
        if self._must_wait(is_exclusive):
            self._waiting.append(work)
        else:
            self._run(work)

    def _must_wait(self, is_exclusive: bool) -> bool:
        if self._waiting or self._is_exclusive:
            return True
        return is_exclusive and (bool(self._writes) or bool(self._in_flight))

    def _run_waiting(self) -> None:
        while self._waiting and not self._is_exclusive:
            if self._waiting[0].is_exclusive and (self._writes or self._in_flight):
                return
            self._run(self._waiting.popleft())

    def _run(self, work: _Work) -> None:
        if work.future is not None and work.future.done():
            return
        if work.timer is not None and work.timer in self._timers:
            # Set anew while it waited: the member showed itself alive in time.
            return
        now_ms = self._clock()
        try:
            outcome = work.operation(work.future, now_ms)
        except Exception as error:
            if work.future is None:
                raise
            work.future.set_exception(error)
            return
        self._execute(outcome, now_ms, is_exclusive=work.is_exclusive)

    def _execute(self, outcome: Outcome, now_ms: int, *, is_exclusive: bool) -> None:
        self._set_timers(outcome.timers, now_ms)
        self._answer(outcome.answers)
        if not outcome.records:
            return
        self._is_exclusive = is_exclusive
        encoded = [encode_record(record) for record in outcome.records]
        size = sum([len(key) + len(value or b"") for key, value in encoded])
        size += RECORD_OVERHEAD_BYTES * len(encoded)
        self._writes.append(_Write(outcome, encoded, size))
        self._pending_bytes += size
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())

    # ------------------------------------------------------------ appends

    async def _write(self) -> None:
        try:
            while self._writes:
                self._in_flight = self._take_writes()
                code, base_offset = await self._append(self._in_flight)
                writes, self._in_flight = self._in_flight, []
                self._is_exclusive = False
                self._pending_bytes -= sum([write.size_bytes for write in writes])
                self._finish(writes, code, base_offset)
                self._run_waiting()
        finally:
            self._writer = None

    def _take_writes(self) -> list[_Write]:
        taken = [self._writes.popleft()]
        left = self._settings.max_batch_bytes - HEADER_BYTES - taken[0].size_bytes
        while self._writes and self._writes[0].size_bytes <= left:
            left -= self._writes[0].size_bytes
            taken.append(self._writes.popleft())
        return taken

    async def _append(self, writes: list[_Write]) -> tuple[ErrorCode, int]:
        now_ms = self._clock()
        records = [
            SimpleRecord(key, value, now_ms) for write in writes for key, value in write.encoded
        ]
        batch = build_batch(records, codec=self._settings.codec, base_sequence=_BASE_SEQUENCE)
        deadline = self._loop.call_later(
            self._settings.commit_timeout_ms / 1000, self._time_out, writes
        )
        try:
            last_offset = await self._log.append(self.partition, batch)
        except ApiError as error:
            log.warning("Append to %s failed: %s", self.partition, error)
            return coordinator_error(error.code), -1
        except LogDirectoryFailed as error:
            log.warning("Append to %s failed: %s", self.partition, error)
            return ErrorCode.NOT_COORDINATOR, -1
        finally:
            deadline.cancel()
        return ErrorCode.NONE, last_offset - len(records) + 1

    def _time_out(self, writes: list[_Write]) -> None:
        # The records may still be committed: only the answers are given up.
        for write in writes:
            self._fail_answers(
                write.outcome.answers_after_commit, ErrorCode.COORDINATOR_NOT_AVAILABLE
            )

    def _finish(self, writes: list[_Write], code: ErrorCode, base_offset: int) -> None:
        for write in writes:
            outcome = write.outcome
            if code is ErrorCode.NONE:
                self.shard.committed(outcome.records, base_offset)
                base_offset += len(outcome.records)
                self._answer(outcome.answers_after_commit)
            else:
                self._fail_answers(outcome.answers_after_commit, code)
            for completion in outcome.completions:
                now_ms = self._clock()
                self._execute(
                    self.shard.complete(completion, code, now_ms), now_ms, is_exclusive=False
                )

    def _answer(self, answers: list[Answer]) -> None:
        for token, response in answers:
            assert isinstance(token, asyncio.Future)
            if not token.done():
                token.set_result(response)

    def _fail_answers(self, answers: list[Answer], code: ErrorCode) -> None:
        for token, _ in answers:
            assert isinstance(token, asyncio.Future)
            _fail(token, code)

    # ------------------------------------------------------------ timers

    def _set_timers(self, changes: list[TimerChange], now_ms: int) -> None:
        """Set timers of an operation that took place at `now_ms` of the wall clock.

        They are measured by the event loop: setting the time of day expires no member and lets no
        silent one stay.
        """
        if not changes:
            return
        ahead_ms = self._steady_ms() - now_ms
        for key, at_ms in changes:
            self._timers.apply(TimerChange(key, None if at_ms is None else at_ms + ahead_ms))
        self._set_alarm()

    def _steady_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _set_alarm(self) -> None:
        next_ms = self._timers.next_ms()
        if next_ms is None or (self._alarm is not None and self._alarm_ms <= next_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = next_ms
        delay_s = max(next_ms - self._steady_ms(), 0) / 1000
        self._alarm = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now_ms = self._steady_ms()
        while (key := self._timers.pop_due(now_ms)) is not None:
            work = _Work(None, self._timer_operation(key), key.kind == "expiration", key)
            if self._must_wait(work.is_exclusive):
                self._waiting.append(work)
            else:
                self._run(work)
        self._set_alarm()

    def _timer_operation(self, key: TimerKey) -> Operation:
        return lambda _, now_ms: self.shard.on_timer(key, now_ms)


def _fail(future: "asyncio.Future[Any] | None", code: ErrorCode) -> None:
    if future is not None and not future.done():
        future.set_exception(ApiError(code))


__all__ = [
    "Clock",
    "CoordinatorLog",
    "CoordinatorRecord",
    "ShardDriver",
    "ShardSettings",
    "ShardState",
]
