"""Native lanes of a node: what they serve, and when the event loop has everything back."""

import asyncio
import os
import threading
from fcntl import F_ADD_SEALS, F_SEAL_WRITE, fcntl
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from lane_harness import LANE, OK, in_lanes, leased_file, move_to_lane, node_with_lane, produce
from node_harness import (
    Client,
    Home,
    batch_of,
    connected,
    fetch_request,
    produce_request,
    records_in,
    running,
    thread_of,
)
from waiting import until

from spindle.common.errors import ErrorCode
from spindle.common.native import is_native_available
from spindle.protocol.api import PRODUCE
from spindle.protocol.codec import encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

if not is_native_available():
    pytest.skip("there is no native code", allow_module_level=True)
from spindle.runtime.lanes.lanes import Lanes


async def test_records_of_the_lane_survive_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path, 2, **LANE).format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("t")
        await move_to_lane(node, client)
        last = await produce(client, b"a", b"b")
    async with running(home) as node, connected(node) as client:
        answer = await client.fetch("t", 0, last.base_offset)
        assert [record.value for record in records_in(answer.records)] == [b"a", b"b"]
        assert (await produce(client, b"c")).base_offset == last.base_offset + 2


async def test_a_fetch_that_waits_in_python_is_woken_by_an_append_of_the_lane(
    tmp_path: Path,
) -> None:
    async with node_with_lane(tmp_path) as (node, client), connected(node) as consumer:
        end = (await produce(client, b"x")).base_offset + 1
        request = fetch_request("t", 0, end)
        request.session_epoch = 0  # sessions are Python's
        request.max_wait_ms = 60_000
        waiting = asyncio.ensure_future(consumer.ask(request, version=12))
        assert node.broker is not None
        partition = node.broker.replicas.lookup("t", 0)
        assert partition is not None
        await until(lambda: bool(partition.has_watchers))
        await until(lambda: in_lanes(node) == 1)
        await produce(client, b"y")
        response = await waiting
        assert [r.value for r in records_in(response.responses[0].partitions[0].records)] == [b"y"]


async def test_a_fetch_that_waits_in_the_lane_is_woken_by_an_append_of_python(
    tmp_path: Path,
) -> None:
    async with node_with_lane(tmp_path) as (node, consumer), connected(node) as client:
        end = (await produce(consumer, b"x")).base_offset + 1
        waiting = asyncio.ensure_future(consumer.fetch("t", 0, end, max_wait_ms=60_000))
        # An unknown producer is not the lane's.
        await produce(client, b"y", producer_id=5, producer_epoch=0, base_sequence=0)
        assert [r.value for r in records_in((await waiting).records)] == [b"y"]


async def test_an_idempotent_producer_stays_in_the_lane_and_its_errors_are_those_of_python(
    tmp_path: Path,
) -> None:
    async with node_with_lane(tmp_path) as (node, client):

        async def send(sequence: int) -> Any:
            options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            return await produce(client, b"v", acks=-1, **options)

        base = (await send(0)).base_offset
        for sequence in range(1, 6):
            assert (await send(sequence)).base_offset == base + sequence
        await until(lambda: in_lanes(node) == 1)
        again = await send(5)
        assert (again.error_code, again.base_offset) == (OK, base + 5)
        assert (await send(9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await send(6)).base_offset == base + 6


async def test_a_changed_limit_of_the_topic_holds_for_the_next_append(tmp_path: Path) -> None:
    async with node_with_lane(tmp_path) as (node, client), connected(node) as admin:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = resource.AlterableConfig(name="max.message.bytes", value="200")
        changed = resource(resource_type=2, resource_name="t", configs=[config])
        response = await admin.ask(IncrementalAlterConfigsRequest(resources=[changed]))
        assert response.responses[0].error_code == OK
        assert node.broker is not None
        partition = node.broker.replicas.lookup("t", 0)
        assert partition is not None
        await until(lambda: partition.log.config.max_message_bytes == 200)
        answer = await produce(client, b"x" * 1000)
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await produce(client, b"x")).error_code == OK


async def test_a_deleted_topic_is_unknown_to_a_connection_of_the_lane(tmp_path: Path) -> None:
    async with node_with_lane(tmp_path) as (node, client), connected(node) as admin:
        await admin.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), version=5)
        assert node.broker is not None
        replicas = node.broker.replicas
        await until(lambda: replicas.lookup("t", 0) is None)
        answer = await produce(client, b"x")
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_late_counts_of_a_lane_for_a_deleted_topic_go_to_the_total_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_with_lane(tmp_path) as (node, client), connected(node) as admin:
        broker = node.broker
        assert broker is not None
        broker.take_lane_counts()
        before = broker.traffic.snapshot().total().messages_in
        with monkeypatch.context() as late:
            late.setattr(Lanes, "take_progress", lambda _: None)
            await produce(client, b"last")
            await admin.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), version=5)
            await until(lambda: "t" not in broker.traffic.by_topic)
        broker.take_lane_counts()
        assert "t" not in broker.traffic.by_topic
        assert broker.traffic.snapshot().total().messages_in == before + 1


async def test_deleted_records_are_out_of_range_in_the_lane(tmp_path: Path) -> None:
    async with node_with_lane(tmp_path) as (node, client), connected(node) as admin:
        end = (await produce(client, b"x")).base_offset + 1
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = topic.DeleteRecordsPartition(partition_index=0, offset=end)
        request = DeleteRecordsRequest(
            topics=[topic(name="t", partitions=[part])], timeout_ms=10_000
        )
        response = await admin.ask(request)
        assert response.topics[0].partitions[0].low_watermark == end
        assert (await client.fetch("t", 0, end - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await produce(client, b"y")).log_start_offset == end


def session_fetch(
    offsets: dict[int, int], session_id: int, epoch: int, max_wait_ms: int = 0
) -> FetchRequest:
    """Return a fetch of partitions of topic `t` from these offsets, in a session."""
    topic = FetchRequest.FetchTopic
    parts = [
        topic.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 25,
        session_id=session_id,
        session_epoch=epoch,
        topics=[topic(topic="t", partitions=parts)] if parts else [],
    )


async def test_a_fetch_session_continues_in_the_lane_and_back(tmp_path: Path) -> None:
    home = Home(tmp_path, 1, **LANE).format()
    async with running(home) as node, connected(node) as producer, connected(node) as consumer:
        await producer.create_topic("t", partitions=3)
        for index in (0, 1, 2):
            assert (await producer.produce("t", index, batch_of(b"0"))).error_code == OK
        await move_to_lane(node, producer)
        first = await consumer.ask(session_fetch({0: 0, 1: 0}, 0, 0), version=12)
        session_id, epoch = first.session_id, 1

        async def fetch(
            offsets: dict[int, int], max_wait_ms: int = 0
        ) -> dict[int, list[bytes | None]]:
            nonlocal epoch
            request = session_fetch(offsets, session_id, epoch, max_wait_ms)
            response = await consumer.ask(request, version=12)
            assert (response.error_code, response.session_id) == (OK, session_id)
            epoch += 1
            parts = [part for topic in response.responses for part in topic.partitions]
            assert all(part.error_code == OK for part in parts)
            return {p.partition_index: [r.value for r in records_in(p.records)] for p in parts}

        end = (await produce(producer, b"last")).base_offset + 1
        await fetch({0: end, 1: 1})
        while in_lanes(node) < 2:
            assert await fetch({}) == {}
        assert await fetch({}) == {}
        await produce(producer, b"a")
        assert await fetch({}) == {0: [b"a"]}
        waiting = asyncio.ensure_future(fetch({0: end + 1}, 60_000))
        await producer.produce("t", 1, batch_of(b"b"), acks=1)
        assert await waiting == {1: [b"b"]}
        # A new partition is for Python, which continues with the offsets of the lane.
        assert await fetch({2: 0, 1: 2}) == {2: [b"0"]}
        await produce(producer, b"c")
        assert await fetch({2: 1}) == {0: [b"c"]}


async def test_connections_leave_the_lane_when_a_quota_begins(tmp_path: Path) -> None:
    async with node_with_lane(tmp_path) as (node, client), connected(node) as admin:
        entry = AlterClientQuotasRequest.EntryData
        quota = entry(
            entity=[entry.EntityData(entity_type="client-id", entity_name="other")],
            ops=[entry.OpData(key="producer_byte_rate", value=1e9)],
        )
        await admin.ask(AlterClientQuotasRequest(entries=[quota]))
        await until(lambda: in_lanes(node) == 0)
        assert (await produce(client, b"x")).error_code == OK
        assert in_lanes(node) == 0


async def test_without_native_code_python_serves_all(tmp_path: Path) -> None:
    home = Home(tmp_path, 1, **LANE, spindle_native_enable="false").format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("t")
        for _ in range(8):
            assert (await produce(client, b"v")).error_code == OK
        assert in_lanes(node) == 0


async def test_a_closed_connection_leaves_the_lane(tmp_path: Path) -> None:
    async with node_with_lane(tmp_path) as (node, client):
        client.close()
        await until(lambda: in_lanes(node) == 0)


async def test_a_byte_counts_once_if_its_connection_moves_within_a_frame(tmp_path: Path) -> None:
    async with node_with_lane(tmp_path) as (node, _), connected(node) as client:
        assert node.broker is not None
        request = produce_request("t", 0, batch_of(b"v"), acks=1)
        body = request_prefix(PRODUCE, 12, 1, "test") + encode(request, 12)
        frame = pack(">i", len(body)) + body
        half = len(frame) // 2
        node.broker.take_lane_counts()
        before, sent_bytes = node.request_metrics.bytes_in, 0
        client.send_bytes(frame[:half])
        while in_lanes(node) < 2:
            client.send_bytes(frame[half:] + frame[:half])
            sent_bytes += len(frame)
            await client.receive()
        client.send_bytes(frame[half:])
        await client.receive()
        node.broker.take_lane_counts()
        assert node.request_metrics.bytes_in - before == sent_bytes + len(frame)


async def test_other_requests_are_answered_in_their_turn(tmp_path: Path) -> None:
    async with node_with_lane(tmp_path) as (_, client):
        end = (await produce(client, b"x")).base_offset + 1
        await client.create_topic("other")
        assert (await produce(client, b"y")).base_offset == end


async def test_requests_that_arrive_together_are_answered_in_order(tmp_path: Path) -> None:
    async with node_with_lane(tmp_path) as (_, client):
        first = (await produce(client, b"x")).base_offset + 1
        answers = await asyncio.gather(*(pipelined(client, 20)))
        assert [answer.base_offset for answer in answers] == list(range(first, first + 20))


def pipelined(client: Client, count: int) -> list[Any]:
    """Produce requests one after another; the client reads their responses in this order."""
    lock = asyncio.Lock()

    async def one() -> Any:
        async with lock:
            return await produce(client, b"p")

    return [one() for _ in range(count)]


async def test_python_appends_where_the_lane_finds_the_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased_file(monkeypatch, "/dev/full")
    async with node_with_lane(tmp_path) as (node, client):
        answer = await produce(client, b"a")
        assert answer.error_code == OK
        first = answer.base_offset
        second = await produce(client, b"b")
        assert (second.error_code, second.base_offset) == (OK, first + 1)
        assert node.broker is not None
        assert not any(directory.is_offline for directory in node.broker.replicas.directories)


async def test_a_partition_that_the_lane_cannot_write_behind_another_counts_as_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased_file(monkeypatch, "/dev/full", (1,))
    async with running(Home(tmp_path, 1, **LANE).format()) as node, connected(node) as client:
        broker = node.broker
        assert broker is not None
        await client.create_topic("t", partitions=2)
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
        broker.take_lane_counts()
        traffic = broker.traffic.of("t")
        assert traffic.failed_produces == 1
        assert traffic.produces == traffic.messages_in + 1


async def test_a_write_that_fails_in_the_lane_takes_the_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
    fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE)
    leased_file(monkeypatch, f"/proc/self/fd/{sealed}")
    home = Home(tmp_path, 2, **LANE)
    home.properties["metadata.log.dir"] = str(tmp_path / "metadata")
    home.write_properties()
    async with running(home.format()) as node, connected(node) as client:
        await client.create_topic("t")
        await move_to_lane(node, client)
        assert (await produce(client, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.broker is not None
        partition = node.broker.replicas.lookup("t", 0)
        assert partition is None or partition.is_offline
    os.close(sealed)


async def test_a_lane_behind_a_thread_that_hangs_returns_its_connections(tmp_path: Path) -> None:
    home = Home(tmp_path, 2, **LANE)
    home.properties["metadata.log.dir"] = str(tmp_path / "metadata")
    home.write_properties()
    async with running(home.format()) as node, connected(node) as client:
        await client.create_topic("t")
        await move_to_lane(node, client)
        assert node.broker is not None
        partition = node.broker.replicas.lookup("t", 0)
        assert partition is not None
        thread = thread_of(node, partition.directory.path)
        begun, may_end = threading.Event(), threading.Event()

        def hang() -> None:
            begun.set()
            may_end.wait()

        thread.submit_nowait(hang)
        await until(begun.is_set)
        waiting = asyncio.ensure_future(produce(client, b"x"))
        await asyncio.sleep(0)
        thread.fail("it hangs")
        await until(lambda: in_lanes(node) == 0)
        may_end.set()
        assert (await waiting).error_code == ErrorCode.KAFKA_STORAGE_ERROR
