"""Operations whose batch belongs to a producer's transaction, through driver and log and back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from coordinator_log import CONFIG, MemoryLog, standing_clock

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, TopicPartition
from spindle.coordinator.coordinator_result import (
    EndOfTransaction,
    InTransaction,
    Token,
    Transaction,
)
from spindle.coordinator.records import CommittedOffset, OffsetRecord
from spindle.coordinator.shard import GROUP_RECORDS, GroupShard
from spindle.protocol.messages.heartbeat import HeartbeatResponse
from spindle.protocol.records.batch import BatchHeader, read_header
from spindle.protocol.records.control import EndTransactionMarker
from spindle.runtime.coordinator.shard_driver import ShardDriver
from spindle.runtime.coordinator.shard_work import Operation
from spindle.runtime.coordinator.shard_writer import AnyResult, ShardSettings

AT = TopicPartition(OFFSETS_TOPIC, 0)
OF_SEVEN = InTransaction(7, 3)
OF_EIGHT = InTransaction(8, 0)
COMMIT_OF_SEVEN = EndOfTransaction(7, 3, EndTransactionMarker(is_commit=True, coordinator_epoch=5))
ABORT_OF_EIGHT = EndOfTransaction(8, 0, EndTransactionMarker(is_commit=False, coordinator_epoch=5))


def operation(
    transaction: Transaction, partition: int | None = None
) -> Operation[HeartbeatResponse]:
    """Return an operation that commits offset 10 for a partition of t, or only ends."""

    def decide(_: Token, out: AnyResult) -> HeartbeatResponse:
        out.transaction = transaction
        if partition is not None:
            out.records.append(
                OffsetRecord("g", TopicPartition("t", partition), CommittedOffset(10))
            )
        return HeartbeatResponse()

    return decide


async def load(log: MemoryLog) -> ShardDriver[GroupShard]:
    shard = GroupShard(CONFIG, lambda: bytes(16))
    driver = ShardDriver(
        AT, 0, shard, GROUP_RECORDS, log, standing_clock, ShardSettings(), lambda _: None
    )
    await driver.wait_loaded()
    return driver


def offsets(shard: GroupShard) -> dict[int, bool]:
    """Return the partitions with an offset; the value is True if it is still pending."""
    shard.check()
    committed = {at.partition: False for at in shard.offsets.of_group("g")}
    return committed | {at.partition: True for at in shard.offsets.open_partitions("g")}


def headers(log: MemoryLog) -> list[BatchHeader]:
    return [read_header(batch, 0) for batch in log.batches[AT]]


@asynccontextmanager
async def loaded_driver() -> AsyncIterator[tuple[ShardDriver[GroupShard], MemoryLog]]:
    log = MemoryLog()
    driver = await load(log)
    yield driver, log
    driver.close()


async def test_records_of_a_transaction_are_pending_until_its_marker() -> None:
    async with loaded_driver() as (driver, log):
        await driver.submit(operation(OF_SEVEN, 0))
        await driver.submit(operation(OF_EIGHT, 1))
        assert offsets(driver.shard) == {0: True, 1: True}
        await driver.submit(operation(COMMIT_OF_SEVEN))
        assert offsets(driver.shard) == {0: False, 1: True}
        await driver.submit(operation(ABORT_OF_EIGHT))
        assert offsets(driver.shard) == {0: False}
        again = await load(log)
        assert offsets(again.shard) == {0: False}
        again.close()


async def test_batches_carry_the_producer_and_the_marker() -> None:
    async with loaded_driver() as (driver, log):
        await driver.submit(operation(OF_SEVEN, 0))
        await driver.submit(operation(COMMIT_OF_SEVEN))
        await driver.submit(operation(None, 0))
        fields = [
            (h.producer_id, h.producer_epoch, h.base_sequence, h.is_transactional, h.is_control)
            for h in headers(log)
        ]
        assert fields == [(7, 3, 0, True, False), (7, 3, -1, True, True), (-1, -1, 0, False, False)]


async def test_only_writes_of_one_transaction_share_a_batch() -> None:
    async with loaded_driver() as (driver, log):
        log.gate = asyncio.Event()
        steps = [
            operation(None, 9),
            operation(OF_SEVEN, 0),
            operation(OF_SEVEN, 1),
            operation(OF_EIGHT, 2),
            operation(COMMIT_OF_SEVEN),
            operation(ABORT_OF_EIGHT),
            operation(None, 3),
            operation(None, 4),
        ]
        waiting = [driver.submit(step) for step in steps]
        log.gate.set()
        await asyncio.gather(*waiting)
        assert [h.record_count for h in headers(log)] == [1, 2, 1, 1, 1, 2]
        assert offsets(driver.shard) == {0: False, 1: False, 3: False, 4: False, 9: False}


async def test_a_marker_that_is_not_appended_changes_nothing() -> None:
    async with loaded_driver() as (driver, log):
        await driver.submit(operation(OF_SEVEN, 0))
        log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
            await driver.submit(operation(COMMIT_OF_SEVEN))
        assert offsets(driver.shard) == {0: True}
