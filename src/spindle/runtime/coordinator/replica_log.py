"""The partitions of internal topics that this broker leads, as the coordinators use them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.coordinator.coordinator_result import EndOfTransaction, Transaction
from spindle.log.log import Log
from spindle.log.log_values import AppendInfo, FetchedRecords
from spindle.log.producers.verification import NO_TRANSACTION, TransactionContext
from spindle.protocol.records.batch import batches
from spindle.protocol.records.validation import AppendOrigin
from spindle.protocol.sentinels import ACKS_ALL
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager

_READ_BYTES: Final = 1024 * 1024
_DEFAULT_BATCH_BYTES: Final = 1024 * 1024
"""Maximum batch size for a partition that is no longer here; its append fails in any case."""


class ReplicaCoordinatorLog:
    """Appends and reads through the replicas of this broker."""

    def __init__(self, replicas: ReplicaManager, now_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._now_ms = now_ms

    async def append(
        self, partition: TopicPartition, batch: bytes, transaction: Transaction = None
    ) -> int:
        """Append a batch, wait until it is committed, and return its last offset.

        Raises:
            ApiError: not the leader, too few replicas, or the directory failed.
        """
        hosted = self._hosted(partition)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def appended(info: AppendInfo | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if info is not None:
                done.set_result(info.last_offset)
            elif isinstance(error, ApiError):
                done.set_exception(error)
            else:
                done.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

        terms = NO_TRANSACTION
        if isinstance(transaction, EndOfTransaction):
            terms = TransactionContext(transaction_version=transaction.transaction_version)
        hosted.append(
            bytearray(batch),
            ACKS_ALL,
            self._now_ms(),
            AppendOrigin.COORDINATOR,
            appended,
            terms=terms,
        )
        return await done

    def max_batch_bytes(self, partition: TopicPartition) -> int:
        """Return the maximum size of a batch, the topic's present `max.message.bytes`."""
        hosted = self._replicas.lookup(partition.topic, partition.partition)
        return _DEFAULT_BATCH_BYTES if hosted is None else hosted.log.config.max_message_bytes

    async def read_batches(self, partition: TopicPartition) -> AsyncIterator[Bytes]:
        """Yield whole batches from the log start to the log end, once they are committed.

        A new leader may have records that its predecessor did not commit. This waits until the high
        watermark has passed them, or another broker is elected leader.
        """
        hosted = self._hosted(partition)
        offset = hosted.log.log_start_offset
        while offset < hosted.log.log_end_offset:
            await self._wait_committed(partition, hosted, offset)
            end_offset = hosted.high_watermark
            fetched: FetchedRecords = await hosted.directory.executor.submit(
                _read, hosted.log, offset, end_offset
            )
            last = None
            for _, header in batches(fetched.records):
                last = header
            if last is None:
                # After a kill, the high watermark may be older than the last compaction and lie in
                # a gap.
                offset = end_offset
            else:
                offset = last.next_offset
                yield fetched.records

    async def delete_below(self, partition: TopicPartition, offset: int) -> None:
        """Move the log start to an offset of a committed record.

        Raises:
            ApiError: not the leader, or the directory failed.
        """
        hosted = self._hosted(partition)
        if offset > hosted.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def changed(_: None, error: BaseException | None) -> None:
            if moved.done():
                return
            if error is None:
                moved.set_result(None)
            else:
                moved.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

        hosted.change_log(lambda log: _move_start(log, offset), changed)
        await moved
        hosted.log_start_moved()

    async def _wait_committed(
        self, partition: TopicPartition, hosted: Partition, offset: int
    ) -> None:
        """Return when the record at the offset is committed.

        Raises:
            ApiError: this broker does not lead the partition any more, or its directory failed.
        """
        while hosted.high_watermark <= offset:
            progress = _Progress()
            hosted.watch(progress, appends=False)
            try:
                await progress.happened
            finally:
                hosted.unwatch(progress)
            if self._hosted(partition) is not hosted:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if hosted.is_offline:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    def _hosted(self, partition: TopicPartition) -> Partition:
        hosted = self._replicas.lookup(partition.topic, partition.partition)
        if hosted is None or hosted.leader is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return hosted


class _Progress:
    """Watches a partition for the next change of its high watermark or leadership."""

    def __init__(self) -> None:
        self.happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def log_moved(self) -> None:
        """Ignore an append: only the high watermark shows the committed records."""

    def committed(self) -> None:
        if not self.happened.done():
            self.happened.set_result(None)

    def changed(self) -> None:
        self.committed()


def _move_start(log: Log, offset: int) -> None:
    # The high watermark that the directory's thread knows may be a moment old.
    log.update_high_watermark(max(log.high_watermark, offset))
    log.increment_log_start_offset(offset)


def _read(log: Log, offset: int, end_offset: int) -> FetchedRecords:
    # Retention may have moved the log start since the last read.
    start_offset = max(offset, log.log_start_offset)
    return log.read(start_offset, _READ_BYTES, end_offset, min_one_batch=True)
