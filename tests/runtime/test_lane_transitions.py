"""Changes while a lane serves: of leaders, replicas, transactions, disks and connections."""

import asyncio
from pathlib import Path
from struct import pack, unpack
from typing import Any

import pytest
from fake_broker import create_replicated
from lane_harness import LANE, OK, in_lanes, leased_file, move_to_lane, node_with_lane, produce
from leader_pair import Pair, pair
from node_harness import (
    Client,
    Home,
    batch_of,
    connected,
    fetch_request,
    produce_request,
    records_in,
    running,
)
from waiting import until

from spindle.common.errors import ErrorCode
from spindle.common.native import is_native_available
from spindle.protocol.codec import encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.records.batch import batches
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.validation import AppendOrigin
from spindle.replicas.partition import Partition
from spindle.runtime.node import Node

if not is_native_available():
    pytest.skip("there is no native code", allow_module_level=True)
from spindle.runtime.lanes import lanes

MIB = 1 << 20
NOW_MS = 1_700_000_000_000


def partition_of(node: Node, index: int = 0) -> Partition:
    assert node.broker is not None
    partition = node.broker.replicas.lookup("t", index)
    assert partition is not None
    return partition


def framed(request: Message, version: int = 12) -> bytes:
    body = request_prefix(request.API_KEY, version, 1, "test") + encode(request, version)
    return pack(">i", len(body)) + body


async def test_acks_all_waits_for_a_replica_that_was_added_while_the_lane_served(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, **LANE) as p:
        p.topic_id = await create_replicated(p.client, "t", [1])
        await move_to_lane(p.node, p.client, acks=-1)
        end = (await produce(p.client, b"alone", acks=-1)).base_offset + 1
        await p.reassign([1, 2])
        await p.follow(end)
        await p.until(lambda r: set(r.isr) == {1, 2})
        waiting = asyncio.ensure_future(produce(p.client, b"together", acks=-1))
        data = await p.follow(end, max_wait_ms=50_000)
        assert [record.value for record in records_in(data.records)] == [b"together"]
        assert not waiting.done()
        assert partition_of(p.node).high_watermark == end
        await p.follow(end + 1)
        assert ((await waiting).error_code, (await waiting).base_offset) == (OK, end)


async def change_epoch(p: Pair) -> None:
    """Have the other broker lead, and then this one again."""
    for replicas in ([2, 1], [1, 2]):
        await p.reassign(replicas)
        await p.elect_preferred()
        await p.until(lambda r, leader=replicas[0]: r.leader == leader)  # type: ignore[misc]  # a default


async def test_a_lane_appends_in_the_new_epoch_of_its_partition(tmp_path: Path) -> None:
    async with pair(tmp_path, **LANE) as p, connected(p.node) as consumer:
        await p.create()
        await move_to_lane(p.node, p.client)
        before = await produce(p.client, b"before")
        end = before.base_offset + 1
        await p.follow(end)
        # A fetch of the former epoch waits in the lane.
        request = fetch_request("t", 0, end)
        request.topics[0].partitions[0].current_leader_epoch = 0
        assert (await consumer.fetch("t", 0, 0)).error_code == OK
        while in_lanes(p.node) < 2:
            assert (await consumer.fetch("t", 0, 0)).error_code == OK
        request.max_wait_ms = 50_000
        waiting = asyncio.ensure_future(consumer.ask(request, version=12))
        await change_epoch(p)
        part = (await waiting).responses[0].partitions[0]
        assert part.error_code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        epoch = p.registration.leader_epoch
        assert epoch > 0
        await move_to_lane(p.node, p.client)
        last = await produce(p.client, b"after")
        assert in_lanes(p.node)
        data = await p.follow(end, leader_epoch=epoch, last_epoch=0)
        written = [(h.base_offset, h.leader_epoch) for _, h in batches(data.records or b"")]
        assert written[0] == (end, epoch)
        assert written[-1] == (last.base_offset, epoch)


async def append(partition: Partition, records: bytes) -> Any:
    """Append as the transaction coordinator; return the result."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    origin = AppendOrigin.COORDINATOR
    partition.append(records, 1, NOW_MS, origin, lambda *result: done.set_result(result))
    info, error = await done
    assert error is None
    return info


async def test_consumers_of_committed_records_read_on_behind_a_transaction(tmp_path: Path) -> None:
    options = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    async with node_with_lane(tmp_path) as (node, client), connected(node) as consumer:
        partition = partition_of(node)
        begun = (await append(partition, batch_of(b"open", **options))).first_offset
        await produce(client, b"behind")
        request = fetch_request("t", 0, begun)
        request.isolation_level, request.max_wait_ms = 1, 0

        async def stable_offset() -> int:
            response = await consumer.ask(request, version=12)
            offset: int = response.responses[0].partitions[0].last_stable_offset
            return offset

        assert await stable_offset() == begun
        marker = build_end_transaction(EndTransactionMarker(True, 0), 9, 0, NOW_MS)
        await append(partition, marker)
        await move_to_lane(node, client)
        for _ in range(3):
            last = await produce(client, b"more")
            assert await stable_offset() == last.base_offset + 1


async def test_a_clean_stop_leaves_no_bytes_of_an_append_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, 1, **LANE).format()
    with monkeypatch.context() as full:
        leased_file(full, "/dev/full", (1,), place=1)
        async with running(home) as node, connected(node) as client:
            await client.create_topic("t", 2, {"index.interval.bytes": "0"})
            for index in (0, 1):
                assert (await client.produce("t", index, batch_of(b"first"))).error_code == OK
            request = produce_request("t", 0, batch_of(b"v"), acks=1)
            request.topic_data[0].partition_data += (
                produce_request("t", 1, batch_of(b"w")).topic_data[0].partition_data
            )
            errors = {OK}
            while errors == {OK}:
                response = await client.ask(request, version=12)
                errors = {part.error_code for part in response.responses[0].partition_responses}
            assert errors == {OK, ErrorCode.KAFKA_STORAGE_ERROR}
            end_offset = partition_of(node, 1).log.log_end_offset
    async with running(home) as node:
        assert partition_of(node, 1).log.log_end_offset == end_offset


async def test_more_partitions_than_leases_are_served(tmp_path: Path) -> None:
    count = 2 * 64 + 3
    async with running(Home(tmp_path, 1, **LANE).format()) as node:
        async with connected(node) as admin:
            await admin.create_topic("t", count)
        clients = [await stack_client(node) for _ in range(4)]
        ends = dict.fromkeys(range(count), 0)
        was_in_lane = 0

        async def fill(client: Client, indexes: range) -> None:
            nonlocal was_in_lane
            for index in indexes:
                for _ in range(4):
                    value = b"%d-%d" % (index, ends[index])
                    answer = await client.produce("t", index, batch_of(value), acks=1)
                    assert (answer.error_code, answer.base_offset) == (OK, ends[index])
                    ends[index] += 1
                    was_in_lane += in_lanes(node)

        for _ in range(2):
            await asyncio.gather(
                *(fill(client, range(at, count, 4)) for at, client in enumerate(clients))
            )
        assert was_in_lane
        for index in range(count):
            answer = await clients[0].fetch("t", index, 0)
            values = [record.value for record in records_in(answer.records)]
            assert values == [b"%d-%d" % (index, at) for at in range(8)]
        for client in clients:
            client.close()


async def stack_client(node: Node) -> Client:
    assert node.broker is not None
    return Client(*await asyncio.open_connection("127.0.0.1", node.broker.listeners[0].port))


async def test_a_client_that_leaves_in_the_middle_of_a_frame_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    frame = framed(produce_request("t", 0, batch_of(b"v"), acks=1))
    half = len(frame) // 2
    async with node_with_lane(tmp_path) as (node, _), connected(node) as client:
        client.send_bytes(frame[:half])
        while in_lanes(node) < 2:
            client.send_bytes(frame[half:] + frame[:half])
            await client.receive()
        assert node.broker is not None
        await until(lambda: node.broker is not None and node.broker.held_bytes == half)
        end_offset = partition_of(node).log.log_end_offset
        client.close()
        await until(lambda: in_lanes(node) == 1)
        assert node.broker.held_bytes == 0
        assert partition_of(node).log.log_end_offset == end_offset


async def test_a_client_that_leaves_while_its_request_goes_up_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async with node_with_lane(tmp_path) as (node, client):
        assert node.broker is not None
        # An unknown producer is not the lane's.
        options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        end_offset = partition_of(node).log.log_end_offset
        client.send_bytes(framed(produce_request("t", 0, batch_of(b"v", **options), acks=1)))
        client.close()
        await until(lambda: in_lanes(node) == 0)
        await until(lambda: node.request_metrics.connections == 0)
        assert node.broker.held_bytes == 0
        assert partition_of(node).log.log_end_offset in (end_offset, end_offset + 1)


async def test_a_response_that_was_begun_is_read_whole_although_the_node_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_LAST_RESPONSES_S", 50.0)
    home = Home(tmp_path, 1, **LANE).format()
    async with running(home) as node, connected(node) as client, connected(node) as consumer:
        await client.create_topic("t")
        await move_to_lane(node, client)
        batch = batch_of(bytes(MIB // 2))
        for _ in range(48):
            assert (await client.produce("t", 0, batch, acks=1)).error_code == OK
        while in_lanes(node) < 2:
            assert (await consumer.fetch("t", 0, 0)).error_code == OK
        consumer.send_bytes(framed(fetch_request("t", 0, 0)))
        begin = await consumer.receive_bytes(100)
        stopping = asyncio.ensure_future(node.stop())
        await until(lambda: in_lanes(node) == 1)  # the other one is idle, and returns
        size = unpack(">i", begin[:4])[0] + 4
        assert size > 20 * MIB
        rest = await consumer.receive_bytes(size - len(begin))
        assert len(rest) == size - len(begin)
        await stopping


async def test_bytes_count_once_if_a_connection_moves_to_the_lane_and_back(tmp_path: Path) -> None:
    options = {"producer_id": 5, "producer_epoch": 0}
    async with node_with_lane(tmp_path) as (node, client):
        assert node.broker is not None
        node.broker.take_lane_counts()
        metrics = node.request_metrics
        before = metrics.bytes_in, metrics.bytes_out
        sent_bytes = received_bytes = 0
        for sequence in range(20):
            # The first batch goes up, and so does each one that is sent again.
            for request in (
                produce_request("t", 0, batch_of(b"v", base_sequence=sequence, **options), acks=1),
                produce_request("t", 0, batch_of(b"v", base_sequence=sequence, **options), acks=1),
                fetch_request("t", 0, 0),
            ):
                frame = framed(request)
                client.send_bytes(frame)
                sent_bytes += len(frame)
                received_bytes += 4 + len(await client.receive())
        node.broker.take_lane_counts()
        after = metrics.bytes_in, metrics.bytes_out
        assert after[0] - before[0] == sent_bytes
        assert after[1] - before[1] == received_bytes
