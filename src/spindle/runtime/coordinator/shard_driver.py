"""Runs one shard of a coordinator: loading, operations, timers.

An operation is decided at once, also during an append; `ShardWriter` appends its records. An
exclusive operation waits for the end of the running append, and later operations wait until its
records are committed. Requests also wait while the shard is loaded. No request waits longer than
`offsets.commit.timeout.ms`, except where it waits for other members of its group.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from struct import error as StructError
from typing import Any, Final, Generic, TypeVar

from spindle.common.errors import (
    ApiError,
    CorruptLog,
    CorruptRecords,
    ErrorCode,
    LogDirectoryFailed,
)
from spindle.common.ids import TopicPartition
from spindle.coordinator.coordinator_result import (
    Answer,
    CoordinatorResult,
    TimerChange,
    Transaction,
)
from spindle.coordinator.ports import Shard, ShardRecordFormat
from spindle.coordinator.timers import TimerQueue
from spindle.protocol.records.batch import NO_PRODUCER_ID, BatchHeader, batches
from spindle.protocol.records.compression import Codec, in_turn
from spindle.protocol.records.control import read_end_transaction
from spindle.protocol.records.record import Record, decode_bounded
from spindle.runtime import background
from spindle.runtime.coordinator.shard_work import Exclusivity, Operation, ResponseT, ShardWork
from spindle.runtime.coordinator.shard_writer import (
    AnyResult,
    Clock,
    CoordinatorLog,
    ShardSettings,
    ShardWriter,
)

log = logging.getLogger(__name__)

ShardT = TypeVar("ShardT", bound=Shard[Any, Any, Any])

MAX_RECORDS_PER_TURN: Final = 1_000
"""Records that loading replays (in about 6 ms) before it yields to the event loop."""
INLINE_BATCH_BYTES: Final = 64 * 1024
"""An uncompressed batch of at most this is decoded on the event loop."""
MAX_TIMERS_PER_TURN: Final = 1_000
"""Timers that fire before the event loop gets its turn."""
MAX_OPERATIONS_PER_TURN: Final = 10
"""Waiting operations that run before the event loop gets its turn.

A commit of a hundred offsets takes 3 ms.
"""


class ShardState(Enum):
    """LOADING -> ACTIVE or FAILED; every state -> CLOSED."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class ShardDriver(Generic[ShardT]):
    """Owns a shard while this broker leads its partition."""

    def __init__(
        self,
        partition: TopicPartition,
        leader_epoch: int,
        shard: ShardT,
        record_format: ShardRecordFormat[Any],
        coordinator_log: CoordinatorLog,
        clock: Clock,
        settings: ShardSettings,
        on_loaded: Callable[["ShardDriver[ShardT]"], None],
    ) -> None:
        """Start to load the shard; call `on_loaded` once, when loading has succeeded or failed."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.state = ShardState.LOADING
        self.loaded_records = 0
        """Records that loading has replayed."""
        self.loading_s = 0.0
        """Time that loading has taken."""
        self._format = record_format
        self._log = coordinator_log
        self._clock = clock
        self._settings = settings
        self._on_loaded = on_loaded
        self._loop = asyncio.get_running_loop()
        self._timers: TimerQueue[Any] = TimerQueue()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._waiting: deque[ShardWork] = deque()
        self._next_turn: asyncio.Handle | None = None
        self._is_exclusive = False
        self._writer = ShardWriter(self, partition, record_format, coordinator_log, clock, settings)
        self._loader = background.run_once(self._load(), f"loading {partition}")

    # ------------------------------------------------------------ life

    async def _load(self) -> None:
        began_s = self._loop.time()
        try:
            await self._read_log()
        except (ApiError, LogDirectoryFailed, CorruptRecords, CorruptLog) as error:
            log.error("Loading %s failed: %s", self.partition, error)
            self._loading_failed()
            return
        except Exception:
            # Otherwise the shard would stay in LOADING, and clients would retry forever.
            self._loading_failed()
            raise
        if self.state is not ShardState.LOADING:
            return
        self.state = ShardState.ACTIVE
        self.loading_s = self._loop.time() - began_s
        out = self._result()
        self.shard.loaded(out)
        self._execute(out, self._loop.time())
        self._on_loaded(self)
        self._run_waiting()

    def _loading_failed(self) -> None:
        if self.state is ShardState.LOADING:
            self.state = ShardState.FAILED
            self._fail_waiting()
            self._on_loaded(self)

    async def _read_log(self) -> None:
        async for piece in self._log.read_batches(self.partition):
            for position, header in batches(piece):
                if header.codec == Codec.NONE and header.size_bytes <= INLINE_BATCH_BYTES:
                    records = decode_bounded(piece, position, header)
                else:
                    # The batch may come from a client, so its decompressed size is not trusted.
                    records = await self._loop.run_in_executor(
                        None, in_turn, decode_bounded, piece, position, header
                    )
                await self._replay(header, records)

    async def _replay(self, header: BatchHeader, records: Sequence[Record]) -> None:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            if header.is_control:
                marker = read_end_transaction(record)
                if marker is not None:
                    self.shard.replay_marker(header.producer_id, marker.is_commit)
            else:
                parsed = self._format.parse(record.key, record.value, record.offset)
                if parsed is not None:
                    self.shard.replay(parsed, producer_id)
            self.loaded_records += 1
            if self.loaded_records % MAX_RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def wait_loaded(self) -> None:
        """Return when loading has succeeded or failed."""
        await asyncio.wait([self._loader])

    def close(self) -> None:
        """Stop at once, because this broker no longer leads the partition."""
        if self.state is ShardState.CLOSED:
            return
        was_active = self.state is ShardState.ACTIVE
        self.state = ShardState.CLOSED
        self._loader.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        self._fail_waiting()
        for unwritten in self._writer.close():
            self._fail_answers(unwritten.answers_after_commit, ErrorCode.NOT_COORDINATOR)
        if was_active:
            out = self._result()
            self.shard.unloaded(out)
            self._answer(out.answers)

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for work in waiting:
            if work.deadline is not None:
                work.deadline.cancel()
            _fail(work.future, ErrorCode.NOT_COORDINATOR)

    # ------------------------------------------------------------ operations

    def check_active(self) -> None:
        """Raise ApiError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS unless ACTIVE."""
        if self.state is ShardState.LOADING:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is not ShardState.ACTIVE:
            raise ApiError(ErrorCode.NOT_COORDINATOR)

    def submit(
        self, operation: Operation[ResponseT], *, is_exclusive: Exclusivity = False
    ) -> "asyncio.Future[ResponseT]":
        """Run an operation now, or when the shard is loaded and no exclusive one is running.

        A condition for `is_exclusive` is evaluated again when the operation's turn comes.

        Return a future of the response. It fails with COORDINATOR_LOAD_IN_PROGRESS if loading takes
        longer than a request may wait, with COORDINATOR_NOT_AVAILABLE if an append does.

        Raises:
            ApiError: the shard is not usable, or the operation refuses the request.
        """
        if self.state is not ShardState.LOADING:
            self.check_active()
        if self._writer.pending_bytes > self._settings.max_pending_bytes:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many records wait")
        future: asyncio.Future[ResponseT] = self._loop.create_future()
        now_s = self._loop.time()
        work = ShardWork(future, operation, now_s, is_exclusive=is_exclusive)
        is_exclusive_now = work.is_exclusive
        if self._must_wait(is_exclusive_now):
            if len(self._waiting) >= self._settings.max_waiting_operations:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too many requests wait")
            deadline_s = now_s + self._settings.commit_timeout_ms / 1000
            work.deadline = self._loop.call_at(deadline_s, self._give_up, work)
            self._waiting.append(work)
        else:
            out = self._decide(operation, future)
            self._execute(out, now_s, is_exclusive=is_exclusive_now)
        return future

    def submit_background(self, operation: Operation[Any]) -> None:
        """Run an exclusive operation without a request; retry it until it is committed.

        The operation returns a response. It has no time limit.
        """
        done: asyncio.Future[Any] = self._loop.create_future()
        done.add_done_callback(lambda done: self._background_done(done, operation))
        work = ShardWork(done, operation, self._loop.time(), is_exclusive=True)
        if self._must_wait(is_exclusive=True):
            self._waiting.append(work)
        else:
            self._run(work)

    def _background_done(self, done: "asyncio.Future[Any]", operation: Operation[Any]) -> None:
        error = done.exception()
        if error is not None and self.state is ShardState.ACTIVE:
            log.warning("Background work of %s is tried again: %s", self.partition, error)
            self._loop.call_later(self._settings.retry_ms / 1000, self._retry_background, operation)

    def _retry_background(self, operation: Operation[Any]) -> None:
        if self.state is ShardState.ACTIVE:
            self.submit_background(operation)

    def _give_up(self, work: ShardWork) -> None:
        is_loading = self.state is ShardState.LOADING
        _fail(
            work.future,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if is_loading
            else ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )

    def _must_wait(self, is_exclusive: bool) -> bool:
        if self._waiting or self._is_exclusive or self.state is ShardState.LOADING:
            return True
        return is_exclusive and not self._writer.is_idle

    def _run_waiting(self) -> None:
        """Run the waiting operations, unless this method is already running."""
        if self._next_turn is None:
            self._run_some()

    def _run_some(self) -> None:
        self._next_turn = None
        for _ in range(MAX_OPERATIONS_PER_TURN):
            if not self._waiting or self._is_exclusive:
                return
            if self._waiting[0].is_exclusive and not self._writer.is_idle:
                return
            self._run(self._waiting.popleft())
        self._next_turn = self._loop.call_soon(self._run_some)

    def _run(self, work: ShardWork) -> None:
        if work.deadline is not None:
            work.deadline.cancel()
        if work.future is not None and work.future.done():
            return
        if work.timer is not None and work.timer in self._timers:
            # The timer was set again meanwhile: the member showed in time that it is alive.
            return
        # Evaluate the condition before the operation runs, because the operation may change it.
        is_exclusive = work.is_exclusive
        try:
            out = self._decide(work.operation, work.future)
        except (
            Exception
        ) as error:  # the exception concerns this operation only; the next one must run
            if work.future is not None:
                if isinstance(error, ApiError):
                    # The traceback refers to the future, which would keep the request in memory.
                    error.__traceback__ = None
                work.future.set_exception(error)
            elif work.timer is not None:
                log.exception("Timer %s of %s failed", work.timer, self.partition)
                retry_ms = self._steady_ms() + self._settings.retry_ms
                self._timers.apply(TimerChange(work.timer, retry_ms))
                self._set_alarm()
            return
        self._execute(out, work.submitted_s, is_exclusive=is_exclusive)

    def _result(self) -> AnyResult:
        return CoordinatorResult(self._clock())

    def _decide(self, operation: Operation[Any], future: "asyncio.Future[Any] | None") -> AnyResult:
        out: AnyResult = CoordinatorResult(self._clock())
        response = operation(future, out)
        if response is not None:
            out.answer_after_commit(future, response)
        return out

    def _execute(self, out: AnyResult, submitted_s: float, *, is_exclusive: bool = False) -> None:
        code = ErrorCode.NONE
        if out.is_appended:
            try:
                self._writer.submit(out, submitted_s)
            except StructError as error:
                # Nothing was queued, so treat this like a failed append.
                log.error("Records for %s cannot be encoded: %s", self.partition, error)
                code = ErrorCode.UNKNOWN_SERVER_ERROR
                self.batch_failed(out.records)
            else:
                self._is_exclusive = is_exclusive
        self._set_timers(out)
        self._answer(out.answers)
        if code is not ErrorCode.NONE:
            self.write_finished(out, code)

    # ------------------------------------------------------------ appends

    def batch_committed(
        self, records: Sequence[Any], base_offset: int, transaction: Transaction
    ) -> None:
        """Apply a committed batch to the shard."""
        out = self._result()
        self.shard.committed(records, base_offset, transaction, out)
        self._set_timers(out)

    def batch_failed(self, records: Sequence[Any]) -> None:
        """Report to the shard that records will never be appended."""
        out = self._result()
        self.shard.failed(records, out)
        self._set_timers(out)

    def write_finished(self, written: AnyResult, code: ErrorCode) -> None:
        """Answer the requests that waited for the append, and report its result to the shard."""
        if code is ErrorCode.NONE:
            self._answer(written.answers_after_commit)
        else:
            self._fail_answers(written.answers_after_commit, code)
        for completion in written.completions:
            out = self._result()
            self.shard.complete(completion, code, out)
            self._execute(out, self._loop.time())

    def writer_became_idle(self) -> None:
        """Run the operations that waited for the append."""
        self._is_exclusive = False
        self._run_waiting()

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

    def _set_timers(self, out: AnyResult) -> None:
        """Set the timers of an operation.

        Deadlines are converted from the wall clock to the event loop's clock, so that setting the
        time of day neither expires a member nor keeps a silent one.
        """
        if not out.timers:
            return
        ahead_ms = self._steady_ms() - out.now_ms
        for key, at_ms in out.timers:
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
        self._alarm = self._loop.call_later(delay_s, self._fire_due_timers)

    def _fire_due_timers(self) -> None:
        self._alarm = None
        now_ms = self._steady_ms()
        try:
            # A timer that is set for now while this runs fires in the next iteration.
            for _ in range(min(len(self._timers), MAX_TIMERS_PER_TURN)):
                key = self._timers.pop_due(now_ms)
                if key is None:
                    break
                self._fire(key)
        finally:
            self._set_alarm()

    def _fire(self, key: Any) -> None:
        work = ShardWork(
            None,
            lambda _, out: self.shard.on_timer(key, out),
            self._loop.time(),
            is_exclusive=self.shard.is_exclusive_timer(key),
            timer=key,
        )
        if self._must_wait(work.is_exclusive):
            self._waiting.append(work)
        else:
            self._run(work)


def _fail(future: "asyncio.Future[Any] | None", code: ErrorCode) -> None:
    if future is not None and not future.done():
        future.set_exception(ApiError(code))
