"""Large answers to fetches: the directory's thread sends them from the file to the socket."""

import asyncio
import errno
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from node_harness import (
    LANE_KEY,
    Client,
    Home,
    batch_of,
    connected,
    fetch_request,
    records_in,
    running,
)

from spindle.common.errors import ErrorCode
from spindle.common.filesystem import OsFile
from spindle.log import locating
from spindle.log.segments.file_range import FileRange
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.replicas.partition import Partition
from spindle.runtime.disks.serial_executor import SerialExecutor
from spindle.runtime.node import Node
from spindle.serving.fetch.sendfile_response import StreamedResponse

PYTHON_SENDS = {LANE_KEY.replace(".", "_"): "false"}
BATCH_BYTES = 200_000
BATCHES = 16


def value_of(number: int) -> bytes:
    return bytes([number]) * BATCH_BYTES


class Sends:
    """Counts what goes from files to sockets, and lets a test interfere with it.

    With `max_bytes`, a job sends at most so many from a file: then the socket seems to be full.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent_bytes = 0
        self.calls = 0
        self.max_bytes = 0
        self.before: Callable[[OsFile, int], None] = lambda file, descriptor: None
        self._was_full = True
        send = OsFile.send

        def counted(file: OsFile, descriptor: int, size_bytes: int, position: int) -> int:
            self.calls += 1
            self.before(file, descriptor)
            if self.max_bytes:
                self._was_full = not self._was_full
                if self._was_full:
                    raise BlockingIOError
                size_bytes = min(size_bytes, self.max_bytes)
            count = send(file, descriptor, size_bytes, position)
            self.sent_bytes += count
            return count

        monkeypatch.setattr(OsFile, "send", counted)


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> Sends:
    return Sends(monkeypatch)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def node_with_batches(
    folder: Path, directories: int = 1, segment_bytes: int = 1 << 30
) -> AsyncIterator[tuple[Node, Client]]:
    """A node with a topic `t` of `BATCHES` batches, and a client of it."""
    home = Home(folder, directories=directories, **PYTHON_SENDS).format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", configs={"segment.bytes": str(segment_bytes)})
        for number in range(BATCHES):
            assert not (await client.produce("t", 0, batch_of(value_of(number)))).error_code
        yield node, client


async def read_all(client: Client, max_bytes: int = 1 << 20) -> list[bytes]:
    """Read the topic as a consumer does; every checksum is checked."""
    values: list[bytes] = []
    while len(values) < BATCHES:
        request = fetch_request("t", 0, len(values))
        request.topics[0].partitions[0].partition_max_bytes = max_bytes
        answer = (await client.ask(request, version=12)).responses[0].partitions[0]
        assert answer.error_code == 0
        records = records_in(answer.records)
        assert records, answer
        values += [record.value or b"" for record in records]
    return values


EXPECTED = [value_of(number) for number in range(BATCHES)]


async def test_large_answers_go_from_the_file_to_the_socket(tmp_path: Path, sends: Sends) -> None:
    async with node_with_batches(tmp_path) as (_, client):
        open_before = descriptors()
        for _ in range(3):
            assert await read_all(client) == EXPECTED
        await client.fetch("t", 0, BATCHES, max_wait_ms=1)  # the thread has counted all by now
        assert sends.sent_bytes > 3 * BATCH_BYTES
        assert descriptors() <= open_before + 2


async def test_answers_of_every_version_and_isolation_are_whole(
    tmp_path: Path, sends: Sends
) -> None:
    async with node_with_batches(tmp_path) as (_, client):
        for version in range(4, 13):
            for isolation_level in (0, 1):
                request = fetch_request("t", 0, 3)
                request.isolation_level = isolation_level
                request.topics[0].partitions[0].partition_max_bytes = 2 * BATCH_BYTES + 1000
                calls = sends.calls
                answer = (await client.ask(request, version)).responses[0].partitions[0]
                values = [record.value for record in records_in(answer.records)]
                assert values == EXPECTED[3:5]
                assert answer.high_watermark == BATCHES
                assert answer.aborted_transactions == (None, [])[isolation_level]
                assert sends.calls > calls


async def test_the_answers_of_a_session_and_of_several_directories(
    tmp_path: Path, sends: Sends
) -> None:
    async with node_with_batches(tmp_path, directories=2) as (_, client):
        topic_id = await client.create_topic("u", 4)
        for number in range(4):
            for index in range(4):
                await client.produce("u", index, batch_of(value_of(number)))
        wanted = FetchRequest.FetchTopic
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 25,
            session_epoch=0,
            topics=[
                wanted(
                    topic_id=topic_id,
                    partitions=[
                        wanted.FetchPartition(partition=index, partition_max_bytes=1 << 24)
                        for index in range(4)
                    ],
                )
            ],
        )
        answer = await client.ask(request)
        assert sends.sent_bytes > BATCH_BYTES
        partitions = answer.responses[0].partitions
        assert {p.partition_index for p in partitions} == set(range(4))
        for partition in partitions:
            assert [r.value for r in records_in(partition.records)] == EXPECTED[:4]
        request.session_id, request.session_epoch = answer.session_id, 1
        for partition in request.topics[0].partitions:
            partition.fetch_offset = 4
        request.max_wait_ms = 1
        assert (await client.ask(request)).responses == []


async def test_a_client_that_reads_late_gets_everything_and_holds_up_nobody(
    tmp_path: Path, sends: Sends
) -> None:
    async with node_with_batches(tmp_path) as (node, client), connected(node) as slow:
        request = request_prefix(1, 12, 1, "slow") + encode(fetch_request("t", 0, 0), 12)
        for _ in range(5):  # the later ones wait for the first
            await slow.send(request)
        assert await read_all(client) == EXPECTED
        for _ in range(5):
            frame = await slow.receive()
            answer, end = decode(FetchResponse, 12, frame, 5)
            assert end == len(frame)
            records = answer.responses[0].partitions[0].records
            assert [record.value for record in records_in(memoryview(records or b""))] == EXPECTED


def change_between_jobs(
    monkeypatch: pytest.MonkeyPatch, node: Node, change: Callable[[Partition], object]
) -> None:
    """Change the log once after an answer has begun, before the rest of it is sent."""
    assert node.broker is not None
    partition = node.broker.replicas.lookup("t", 0)
    assert partition is not None
    start, changes = StreamedResponse.start_next_job, [change]

    def start_after_change(rest: StreamedResponse, done: Any, loan: Any) -> None:
        if changes:
            partition.directory.executor.submit_nowait(changes.pop(), partition)
        start(rest, done, loan)

    monkeypatch.setattr(StreamedResponse, "start_next_job", start_after_change)


def remove_all(partition: Partition) -> None:
    """Move the log start to the end, and remove the segments at once."""
    partition.log.increment_log_start_offset(partition.log.log_end_offset)
    partition.log.delete_old_segments(1)
    assert partition.directory.store.delete_expired(1 << 60)


def rename(partition: Partition) -> None:
    partition.log.rename("t-0.00000000000000000000000000000000-stray")


def delete(partition: Partition) -> None:
    partition.log.mark_deleted("t-0.00000000000000000000000000000000-delete")
    partition.log.delete()


def truncate_above(partition: Partition) -> None:
    partition.log.truncate_to(BATCHES - 1)


def replace_records(partition: Partition) -> None:
    """Put other records in the place of those that are on their way."""
    log = partition.log
    log.truncate_to(6)
    for number in range(6, BATCHES):
        log.append_as_leader(batch_of(value_of(100 + number)), leader_epoch=1, now_ms=1 << 42)


@pytest.mark.parametrize("change", [remove_all, rename, delete, truncate_above])
async def test_an_answer_continues_while_its_file_is_renamed_removed_or_cut_behind_it(
    tmp_path: Path,
    sends: Sends,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Partition], object],
) -> None:
    async with node_with_batches(tmp_path) as (node, client):
        open_before = descriptors()
        sends.max_bytes = BATCH_BYTES // 2
        change_between_jobs(monkeypatch, node, change)
        request = fetch_request("t", 0, 0)
        request.topics[0].partitions[0].partition_max_bytes = 15 * BATCH_BYTES + 10_000
        answer = (await client.ask(request, version=12)).responses[0].partitions[0]
        assert [record.value for record in records_in(answer.records)] == EXPECTED[:15]
        assert sends.calls > 20
        await client.fetch("t", 0, BATCHES, max_wait_ms=1)  # the thread has closed all by now
        assert descriptors() <= open_before + 2


async def test_an_answer_is_cut_off_if_its_records_are_truncated(
    tmp_path: Path, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_with_batches(tmp_path) as (node, _):
        sends.max_bytes = BATCH_BYTES
        change_between_jobs(monkeypatch, node, replace_records)
        async with connected(node) as other:
            with pytest.raises(asyncio.IncompleteReadError):
                await other.fetch("t", 0, 0)
        assert node.broker is not None
        assert not any(d.is_offline for d in node.broker.replicas.directories)


async def test_requests_behind_an_answer_are_answered_in_order(
    tmp_path: Path, sends: Sends
) -> None:
    async with node_with_batches(tmp_path) as (node, _):
        sends.max_bytes = BATCH_BYTES
        frames = [
            request_prefix(1, 12, number, "c") + encode(fetch_request("t", 0, 0), 12)
            for number in range(4)
        ]
        async with connected(node) as other:
            for frame in frames:
                await other.send(frame)
            for number in range(4):
                frame = await other.receive()
                assert int.from_bytes(frame[:4]) == number
                answer, _ = decode(FetchResponse, 12, frame, 5)
                records = memoryview(answer.responses[0].partitions[0].records or b"")
                assert [record.value for record in records_in(records)] == EXPECTED


async def test_clients_that_leave_in_the_middle_harm_nobody(tmp_path: Path, sends: Sends) -> None:
    async with node_with_batches(tmp_path) as (node, client):
        assert node.broker is not None
        address = ("127.0.0.1", node.broker.listeners[0].port)
        request = request_prefix(1, 12, 1, "gone") + encode(fetch_request("t", 0, 0), 12)
        before = descriptors() + 2  # the thread's set of sockets and its bell, once it waits
        for _ in range(10):
            with socket.create_connection(address) as gone:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                gone.sendall(pack(">i", len(request)) + request)
                await asyncio.sleep(0)
                await client.fetch("t", 0, BATCHES, max_wait_ms=1)
        assert await read_all(client) == EXPECTED
        assert not any(d.is_offline for d in node.broker.replicas.directories)
        for _ in range(1000):  # the loop has yet to hear of the last ones
            if descriptors() <= before:
                break
            await client.fetch("t", 0, BATCHES, max_wait_ms=1)
        assert descriptors() <= before


async def test_without_a_free_descriptor_answers_are_read(
    tmp_path: Path, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor(_: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    async with node_with_batches(tmp_path) as (_, client):
        monkeypatch.setattr(os, "dup", no_descriptor)
        assert await read_all(client) == EXPECTED
        assert sends.calls == 0


async def test_a_file_that_ends_too_early_cuts_only_the_connection(
    tmp_path: Path, sends: Sends
) -> None:
    async with node_with_batches(tmp_path) as (node, _):
        sends.before = lambda file, _: os.truncate(file.path, 5 * BATCH_BYTES)
        async with connected(node) as other:
            with pytest.raises(asyncio.IncompleteReadError):
                await other.fetch("t", 0, 0)
        assert node.broker is not None
        assert not any(d.is_offline for d in node.broker.replicas.directories)


async def test_a_disk_that_dies_in_an_answer_goes_offline_and_the_answer_is_cut(
    tmp_path: Path, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_with_batches(tmp_path, directories=2) as (node, client):

        def die(file: OsFile, _: int) -> None:
            monkeypatch.setattr(OsFile, "pread", dead)
            raise OSError(errno.EIO, "dead", file.path)

        def dead(*_: object) -> bytes:
            raise OSError(errno.EIO, "dead")

        sends.before = die
        async with connected(node) as other:
            with pytest.raises(asyncio.IncompleteReadError):
                await other.fetch("t", 0, 0)
        assert (await client.fetch("t", 0, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@asynccontextmanager
async def hanging(node: Node) -> AsyncIterator[tuple[Callable[[], None], asyncio.Event]]:
    """Yield a function that hangs on the disk of topic `t`, and what tells that it does.

    The directory is given up at the end, and the disk goes on after that.
    """
    assert node.broker is not None
    partition = node.broker.replicas.lookup("t", 0)
    assert partition is not None
    executor = partition.directory.executor
    assert isinstance(executor, SerialExecutor)
    loop, begun, may_continue = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hang() -> None:
        loop.call_soon_threadsafe(begun.set)
        may_continue.wait(30)

    executor.wait_at_most(1.0)
    try:
        yield hang, begun
    finally:
        may_continue.set()


def give_up(node: Node) -> None:
    """Let the watch look often enough to see that a thread hangs."""
    assert node.broker is not None
    for directory in node.broker.replicas.directories:
        assert isinstance(directory.executor, SerialExecutor)
        for _ in range(2):
            directory.executor.watch.look()


async def test_an_answer_that_hangs_on_its_disk_is_cut(tmp_path: Path, sends: Sends) -> None:
    async with node_with_batches(tmp_path, directories=2) as (node, client):
        async with hanging(node) as (hang, begun), connected(node) as other:
            before = descriptors()
            sends.before = lambda file, descriptor: hang()
            fetch = asyncio.ensure_future(other.fetch("t", 0, 0))
            await begun.wait()
            give_up(node)
            with pytest.raises(asyncio.IncompleteReadError):
                await fetch
            answer = await client.fetch("t", 0, 0)
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for _ in range(1000):
            if descriptors() <= before:
                break
            await client.fetch("t", 0, 0, max_wait_ms=1)
        assert descriptors() <= before


async def test_a_connection_ends_although_a_thread_hangs_with_its_socket(
    tmp_path: Path, sends: Sends
) -> None:
    async with (
        node_with_batches(tmp_path, directories=2) as (node, _),
        hanging(node) as (hang, begun),
        connected(node) as other,
    ):
        sends.before = lambda file, descriptor: hang()
        fetch = asyncio.ensure_future(other.fetch("t", 0, 0))
        await begun.wait()
        await other.send(b"")  # no frame may be empty
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(fetch, 5)


async def test_a_thread_that_hung_before_it_sent_sends_nothing(
    tmp_path: Path, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_with_batches(tmp_path, directories=2) as (node, client):
        async with hanging(node) as (hang, begun), connected(node) as other:
            find = locating.locate

            def slow_find(*arguments: Any, **named: Any) -> FileRange | None:
                hang()
                return find(*arguments, **named)

            monkeypatch.setattr("spindle.serving.fetch.log_reads.locate", slow_find)
            fetch = asyncio.ensure_future(other.fetch("t", 0, 0))
            await begun.wait()
            give_up(node)
            assert (await fetch).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("t", 0, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert sends.calls == 0


@pytest.mark.parametrize("max_bytes", [0, BATCH_BYTES // 3])
async def test_nothing_wrong_is_sent_while_segments_come_go_and_move(
    tmp_path: Path, sends: Sends, max_bytes: int
) -> None:
    """Records tell their offset, and every checksum is checked, while files change all the time."""
    sends.max_bytes = max_bytes

    async with node_with_batches(tmp_path, directories=2, segment_bytes=1 << 20) as (node, client):
        assert node.broker is not None
        replicas = node.broker.replicas
        partition = replicas.lookup("t", 0)
        assert partition is not None
        end = BATCHES
        is_over = False

        async def consume(reader: Client) -> None:
            while not is_over:
                offset = max(partition.log.log_start_offset, end - BATCHES)
                answer = await reader.fetch("t", 0, offset, max_wait_ms=1)
                for record in records_in(answer.records):
                    assert record.value == value_of(record.offset % 256)

        async with connected(node) as one, connected(node) as two:
            readers = [asyncio.ensure_future(consume(reader)) for reader in (one, two)]
            for round_number in range(6):
                for _ in range(4):
                    await client.produce("t", 0, batch_of(value_of(end % 256)))
                    end += 1
                log, executor = partition.log, partition.directory.executor
                await executor.submit(log.increment_log_start_offset, end - BATCHES)
                await executor.submit(log.delete_old_segments, 1 << 60)
                await executor.submit(partition.directory.store.delete_expired, 1 << 60)
                if round_number % 2:
                    await move(client, tmp_path, partition)
            is_over = True
            await asyncio.gather(*readers)
        assert sends.sent_bytes > 20 * BATCH_BYTES


async def move(client: Client, folder: Path, partition: Partition) -> None:
    """Move the only replica to the other directory, and wait for the end."""
    before = partition.directory.path
    target = next(d for d in (folder / "disk1", folder / "disk2") if str(d) != before)
    part = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    request = AlterReplicaLogDirsRequest(
        dirs=[
            part(
                path=str(target),
                topics=[part.AlterReplicaLogDirTopic(name="t", partitions=[0])],
            )
        ]
    )
    assert (await client.ask(request)).results[0].partitions[0].error_code == 0
    while partition.directory.path == before:
        await client.fetch("t", 0, partition.log.log_end_offset, max_wait_ms=5)
