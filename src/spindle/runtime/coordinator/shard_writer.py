"""The appends of one coordinator shard: many writes in one batch, each with a time limit.

There is one append at a time, so the log has the order of the decisions; writes that arrive
meanwhile go into the next batch. Writes of different transactions do not share a batch, and a
marker has its own. The time limit of a write starts when its request arrives, so a request is
answered although an append hangs; its records may still be committed later.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.coordinator.append_errors import coordinator_error
from spindle.coordinator.coordinator_result import (
    CoordinatorResult,
    EndOfTransaction,
    InTransaction,
    Transaction,
)
from spindle.coordinator.ports import ShardRecordFormat
from spindle.protocol.records.batch import HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import build_end_transaction
from spindle.runtime import background

log = logging.getLogger(__name__)

Clock = Callable[[], int]
"""Milliseconds since the epoch."""

RECORD_OVERHEAD_BYTES: Final = 24
"""Upper bound of a record's size without key and value, in a batch of less than 2 GiB."""

AnyResult: TypeAlias = CoordinatorResult[Any, Any, Any]
"""The result of an operation of any kind of shard."""


class CoordinatorLog(Protocol):
    """The partitions of internal topics that this broker leads."""

    async def append(
        self, partition: TopicPartition, batch: bytes, transaction: Transaction
    ) -> int:
        """Append one batch, wait until it is committed, and return the offset of its last record.

        Raises:
            ApiError: it was not appended, or leadership was lost.
        """
        ...

    def max_batch_bytes(self, partition: TopicPartition) -> int:
        """Return the maximum size of a batch, the topic's present `max.message.bytes`."""
        ...

    def read_batches(self, partition: TopicPartition) -> AsyncIterator[Bytes]:
        """Yield whole batches from the log start to the log end, once they are committed."""
        ...


class ShardSettings(NamedTuple):
    """Limits of one shard."""

    commit_timeout_ms: int = 5_000
    """Time after which a waiting request gets a retriable error.

    `offsets.commit.timeout.ms` for groups, `request.timeout.ms` for transactions.
    """
    codec: int = 0
    """Codec of the records; `offsets.topic.compression.codec` for groups."""
    max_pending_bytes: int = 32 * 1024 * 1024
    """Limit of the records that wait for an append; above it requests get
    COORDINATOR_NOT_AVAILABLE."""
    max_waiting_operations: int = 10_000
    """Maximum number of operations that wait for an exclusive one; further ones get
    COORDINATOR_NOT_AVAILABLE."""
    retry_ms: int = 1_000
    """Pause before failed background work or a failed timer is tried again."""


class EncodedRecord(NamedTuple):
    """A record with its key and value as they stand in the log."""

    record: Any
    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """Upper bound of the record's size in a batch."""
        return len(self.key) + len(self.value or b"") + RECORD_OVERHEAD_BYTES


class _Write:
    """The records of one operation. `is_finished` is True when its requests are answered."""

    __slots__ = ("deadline", "is_finished", "records", "result", "size_bytes")

    def __init__(self, result: AnyResult, records: list[EncodedRecord]) -> None:
        self.result = result
        self.records = records
        self.size_bytes = sum([record.size_bytes for record in records])
        self.deadline: asyncio.TimerHandle | None = None
        self.is_finished = False


class ShardOwner(Protocol):
    """The driver of the shard, as the writer sees it."""

    def batch_committed(
        self, records: Sequence[Any], base_offset: int, transaction: Transaction
    ) -> None:
        """Apply a batch that is committed in the log from `base_offset` on."""
        ...

    def batch_failed(self, records: Sequence[Any]) -> None:
        """Handle records that will never be appended."""
        ...

    def write_finished(self, result: AnyResult, code: ErrorCode) -> None:
        """Answer the requests of a write, whose records are committed if `code` is NONE."""
        ...

    def writer_became_idle(self) -> None:
        """Continue, because a batch is finished and nothing is being appended."""
        ...


class ShardWriter:
    """The queue of writes of one shard."""

    def __init__(
        self,
        owner: ShardOwner,
        partition: TopicPartition,
        record_format: ShardRecordFormat[Any],
        coordinator_log: CoordinatorLog,
        clock: Clock,
        settings: ShardSettings,
    ) -> None:
        self.pending_bytes = 0
        """Size of the records that wait for an append or are in one."""
        self._owner = owner
        self._partition = partition
        self._format = record_format
        self._log = coordinator_log
        self._clock = clock
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Write] = deque()
        self._in_flight: list[_Write] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """True if no write waits or is being appended."""
        return not self._queue and not self._in_flight

    def submit(self, result: AnyResult, submitted_s: float) -> None:
        """Queue the batch of a result whose request arrived at `submitted_s` (loop time).

        Raises:
            struct.error: a record cannot be encoded. Nothing is queued.
        """
        encode = self._format.encode
        encoded = [EncodedRecord(record, *encode(record)) for record in result.records]
        write = _Write(result, encoded)
        deadline_s = submitted_s + self._settings.commit_timeout_ms / 1000
        write.deadline = self._loop.call_at(deadline_s, self._time_out, write)
        self._queue.append(write)
        self.pending_bytes += write.size_bytes
        if self._task is None:
            self._task = background.run_once(self._run(), f"writing {self._partition}")

    def close(self) -> list[AnyResult]:
        """Stop at once, and return the results whose requests are not answered yet."""
        if self._task is not None:
            self._task.cancel()
        open_writes = [w for w in (*self._in_flight, *self._queue) if not w.is_finished]
        self._queue.clear()
        for write in open_writes:
            self._settle(write)
        return [write.result for write in open_writes]

    # ------------------------------------------------------------ appending

    async def _run(self) -> None:
        try:
            while self._queue:
                writes = self._in_flight = self._take_writes()
                code = await self._append_all(writes)
                self._in_flight = []
                self.pending_bytes -= sum([write.size_bytes for write in writes])
                for write in writes:
                    self._finish(write, code)
                self._owner.writer_became_idle()
        finally:
            self._task = None

    def _take_writes(self) -> list[_Write]:
        """Take as many writes as fit into one batch, or a single write for several batches."""
        taken = [self._queue.popleft()]
        transaction = taken[0].result.transaction
        if isinstance(transaction, EndOfTransaction):
            return taken
        left = self._max_record_bytes() - taken[0].size_bytes
        while (
            self._queue
            and self._queue[0].result.transaction == transaction
            and self._queue[0].size_bytes <= left
        ):
            left -= self._queue[0].size_bytes
            taken.append(self._queue.popleft())
        return taken

    def _max_record_bytes(self) -> int:
        return self._log.max_batch_bytes(self._partition) - HEADER_BYTES

    async def _append_all(self, writes: list[_Write]) -> ErrorCode:
        records = [record for write in writes for record in write.records]
        first = writes[0].result
        done = 0
        for batch in [records] if first.is_atomic else self._split(records):
            code = await self._append(batch, first.transaction)
            if code is not ErrorCode.NONE:
                self._owner.batch_failed([r.record for r in records[done:]])
                return code
            done += len(batch)
        return ErrorCode.NONE

    def _split(self, records: list[EncodedRecord]) -> Iterator[list[EncodedRecord]]:
        """Yield the records in order, grouped into batches."""
        limit = self._max_record_bytes()
        batch: list[EncodedRecord] = []
        left = limit
        for record in records:
            if batch and record.size_bytes > left:
                yield batch
                batch, left = [], limit
            batch.append(record)
            left -= record.size_bytes
        yield batch

    async def _append(self, records: list[EncodedRecord], transaction: Transaction) -> ErrorCode:
        batch = self._build(records, transaction)
        try:
            last_offset = await self._log.append(self._partition, batch, transaction)
        except ApiError as error:
            log.warning("Append to %s failed: %s", self._partition, error)
            return coordinator_error(error.code)
        except LogDirectoryFailed as error:
            log.warning("Append to %s failed: %s", self._partition, error)
            return ErrorCode.NOT_COORDINATOR
        base_offset = last_offset - len(records) + 1
        self._owner.batch_committed([r.record for r in records], base_offset, transaction)
        return ErrorCode.NONE

    def _build(self, records: list[EncodedRecord], transaction: Transaction) -> bytes:
        now_ms = self._clock()
        if isinstance(transaction, EndOfTransaction):
            producer_id, producer_epoch, marker, _ = transaction
            return build_end_transaction(marker, producer_id, producer_epoch, now_ms)
        producer = transaction or InTransaction(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        return build_batch(
            [SimpleRecord(record.key, record.value, now_ms) for record in records],
            codec=self._settings.codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=self._format.base_sequence,
            is_transactional=transaction is not None,
        )

    # ------------------------------------------------------------ answers

    def _time_out(self, write: _Write) -> None:
        # Only the requests are answered with an error; the records may still be committed.
        log.warning(
            "An append to %s takes more than %d ms",
            self._partition,
            self._settings.commit_timeout_ms,
        )
        self._finish(write, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _finish(self, write: _Write, code: ErrorCode) -> None:
        if not write.is_finished:
            self._settle(write)
            self._owner.write_finished(write.result, code)

    def _settle(self, write: _Write) -> None:
        write.is_finished = True
        if write.deadline is not None:
            write.deadline.cancel()
