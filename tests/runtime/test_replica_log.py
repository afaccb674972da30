"""A coordinator's partition, in the log of a real node: what is read of it and appended to it."""

import asyncio
from pathlib import Path

import pytest
from node_harness import Home, batch_of, connected, records_in, running

from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.coordinator.coordinator_result import EndOfTransaction, InTransaction
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.protocol.records.batch import patch_offset_and_epoch
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.runtime.coordinator.replica_log import ReplicaCoordinatorLog


async def test_loading_continues_where_retention_has_moved_the_log_start(tmp_path: Path) -> None:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    deletion = DeleteRecordsRequest(
        timeout_ms=5_000,
        topics=[
            kind(
                name="t",
                partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=2)],
            )
        ],
    )

    async with running(Home(tmp_path, 1).format()) as node, connected(node) as client:
        await client.create_topic("t")
        for name in (b"a", b"b", b"c"):
            # One piece holds one of them.
            await client.produce("t", 0, batch_of(name * 600_000))
        assert node.broker is not None
        log = ReplicaCoordinatorLog(node.broker.replicas, lambda: 0)
        pieces = log.read_batches(TopicPartition("t", 0))
        first = records_in(await anext(pieces))
        assert (await client.ask(deletion)).topics[0].partitions[0].error_code == 0
        rest = [record.offset async for piece in pieces for record in records_in(piece)]
        assert ([record.offset for record in first], rest) == ([0], [2])


async def test_loading_continues_when_the_high_watermark_was_inside_a_compacted_gap(
    tmp_path: Path,
) -> None:
    """After a kill, the stored high watermark may be older than the last compaction."""

    async with running(Home(tmp_path, 1).format()) as node, connected(node) as client:
        await client.create_topic("t")
        await client.produce("t", 0, batch_of(b"a"))
        await client.produce("t", 0, batch_of(b"b"))
        assert node.broker is not None
        hosted = node.broker.replicas.lookup("t", 0)
        assert hosted is not None
        assert hosted.leader is not None
        # Offsets 2 to 9 are a gap.
        batch = bytearray(batch_of(b"c"))
        patch_offset_and_epoch(batch, 0, 10, hosted.leader_epoch)
        await hosted.directory.executor.submit(hosted.log.append_as_follower, batch, 0)
        hosted.leader.high_watermark = 5
        log = ReplicaCoordinatorLog(node.broker.replicas, lambda: 0)
        pieces = log.read_batches(TopicPartition("t", 0))
        first = records_in(await anext(pieces))

        async def load() -> list[int]:
            return [record.offset async for piece in pieces for record in records_in(piece)]

        rest = asyncio.create_task(load())
        await asyncio.sleep(0)
        # Moves the high watermark, as the first fetches of followers do.
        await client.produce("t", 0, batch_of(b"d"))
        assert ([record.offset for record in first], await rest) == ([0, 1], [10, 11])


async def test_a_marker_of_version_2_needs_an_epoch_above_its_transaction(tmp_path: Path) -> None:
    async with running(Home(tmp_path, 1).format()) as node, connected(node) as client:
        await client.create_topic("t")
        await client.produce("t", 0, batch_of(b"z"))  # answered when the partition is led
        assert node.broker is not None
        log = ReplicaCoordinatorLog(node.broker.replicas, lambda: 0)
        at = TopicPartition("t", 0)
        opened = InTransaction(7, 3)
        fields = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0}
        await log.append(at, batch_of(b"a", is_transactional=True, **fields), opened)
        marker = EndTransactionMarker(True, 1)

        async def end(epoch: int) -> int:
            batch = build_end_transaction(marker, 7, epoch, 0)
            return await log.append(at, batch, EndOfTransaction(7, epoch, marker, 2))

        with pytest.raises(ApiError, match="INVALID_PRODUCER_EPOCH"):
            await end(3)
        assert await end(4) == 2
