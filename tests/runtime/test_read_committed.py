"""Consumers that read finished transactions only."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from node_harness import Home, batch_of, connected, fetch_request, running

from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.log import Log
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.validation import AppendOrigin
from spindle.protocol.sentinels import ACKS_ALL
from spindle.replicas.partition import Partition

NOW_MS = 1_700_000_000_000


async def append(partition: Partition, records: bytes) -> None:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    origin = AppendOrigin.COORDINATOR
    partition.append(records, ACKS_ALL, NOW_MS, origin, lambda *result: done.set_result(result))
    _, error = await done
    assert error is None


async def abort_one(partition: Partition) -> None:
    """Append a transaction of producer 7 that is aborted."""
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    await append(partition, batch_of(b"no", is_transactional=True, **fields))
    marker = build_end_transaction(EndTransactionMarker(False, 0), 7, 0, NOW_MS)
    await append(partition, marker)


async def test_a_commit_during_a_read_hides_no_aborted_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running(Home(tmp_path, directories=1).format()) as node,
        connected(node) as client,
    ):
        await client.create_topic("t", 2)
        for index in (0, 1):  # answered when the partition is led
            assert (await client.produce("t", index, batch_of(b"yes"))).error_code == 0
        assert node.broker is not None
        hosted = [node.broker.replicas.lookup("t", index) for index in (0, 1)]
        partitions = [partition for partition in hosted if partition is not None]
        for partition in partitions:
            await abort_one(partition)
        loop = asyncio.get_running_loop()
        look_up = Log.aborted_transactions

        def disturbed(log: Log, start: int, end: int) -> list[AbortedTransaction]:
            for partition in partitions:
                loop.call_soon_threadsafe(partition.follower_advanced)
            return look_up(log, start, end)

        monkeypatch.setattr(Log, "aborted_transactions", disturbed)
        request = fetch_request("t", 0, 0)
        request.isolation_level, request.max_wait_ms = 1, 50_000
        part = FetchRequest.FetchTopic.FetchPartition
        request.topics[0].partitions.append(
            part(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
        )
        response = await client.ask(request, version=12)
        answers = response.responses[0].partitions
        assert [len(answer.records) > 0 for answer in answers] == [True, True]
        for answer in answers:
            aborted = [(t.producer_id, t.first_offset) for t in answer.aborted_transactions]
            assert aborted == [(7, 1)]
