"""Peers that use much: large requests, slow readers, half frames, many connections.

Beside each of them a canary uses the node. Its answers must be right, and the node must not do much
other work before it answers. That work is measured in CPU time, because the machine may be busy.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from struct import pack

import pytest

from spindle.protocol.codec import encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.describe_configs import DescribeConfigsRequest
from spindle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from verification.fuzz.canary import Canary
from verification.fuzz.target import TargetNode
from verification.fuzz.wire import Finding, RawConnection, read_answer

StartNode = Callable[..., TargetNode]
MIB = 1024 * 1024
MAX_WORK_MS = 3_000.0
TOPIC = "heavy"


def framed(request: Message, version: int, correlation_id: int = 1) -> bytes:
    payload = request_prefix(request.API_KEY, version, correlation_id, "limits")
    payload += encode(request, version)
    return pack(">i", len(payload)) + payload


@asynccontextmanager
async def canary_beside(node: TargetNode) -> AsyncIterator[Canary]:
    """Yield a canary that runs during the block, and check its latencies afterwards."""
    canary = Canary(await RawConnection.connect(node.host, node.port), clock_s=node.cpu_s)
    await canary.prepare()
    canary.latencies_ms.clear()
    is_over = False

    async def check() -> None:
        while not is_over:
            await canary.check()
            await asyncio.sleep(0.005)

    song = asyncio.ensure_future(check())
    try:
        yield canary
        is_over = True
        await song
        await canary.check()
    finally:
        song.cancel()
        canary.close()
    node.check()
    assert max(canary.latencies_ms) < MAX_WORK_MS


async def closes(client: RawConnection) -> bool:
    try:
        return await asyncio.wait_for(client.reader.read(1), 20) == b""
    except ConnectionError:
        return True


@contextmanager
def connections(node: TargetNode, count: int) -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    try:
        while len(opened) < count:
            opened.append(socket.create_connection((node.host, node.port), 20))
        yield opened
    finally:
        for one in opened:
            one.close()


# ---------------------------------------------------------------- large requests

COUNT = 90_000
CreatableTopic = CreateTopicsRequest.CreatableTopic
AskedTopic = ListOffsetsRequest.ListOffsetsTopic
AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
Data = ProduceRequest.TopicProduceData
Resource = DescribeConfigsRequest.DescribeConfigsResource
FetchTopic = FetchRequest.FetchTopic


def large_requests() -> list[tuple[Message, int]]:
    """Return requests with very many elements, each of them cheap to send."""
    names = [f"unknown-{number}" for number in range(COUNT)]
    return [
        (
            MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=n) for n in names]),
            9,
        ),
        (
            CreateTopicsRequest(
                timeout_ms=1000,
                topics=[
                    CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names
                ],
            ),
            7,
        ),
        (
            CreateTopicsRequest(
                timeout_ms=1000,
                topics=[CreatableTopic(name="t", num_partitions=1_000_000, replication_factor=1)],
            ),
            7,
        ),
        (
            DescribeConfigsRequest(
                resources=[Resource(resource_type=4, resource_name="1")] * COUNT,
                include_documentation=True,
            ),
            4,
        ),
        (
            ListOffsetsRequest(
                topics=[
                    AskedTopic(
                        name="t",
                        partitions=[
                            AskedTopic.ListOffsetsPartition(partition_index=number, timestamp=-1)
                            for number in range(COUNT)
                        ],
                    )
                ]
            ),
            9,
        ),
        (OffsetFetchRequest(groups=[AskedGroup(group_id=name) for name in names]), 9),
        (FindCoordinatorRequest(coordinator_keys=names), 6),
        (
            DescribeUserScramCredentialsRequest(
                users=[DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
            ),
            0,
        ),
        (
            ProduceRequest(
                acks=1,
                topic_data=[
                    Data(
                        name="t",
                        partition_data=[
                            Data.PartitionProduceData(index=number, records=b"")
                            for number in range(COUNT)
                        ],
                    )
                ],
            ),
            9,
        ),
        (
            FetchRequest(
                session_epoch=0,
                topics=[
                    FetchTopic(
                        topic="t",
                        partitions=[
                            FetchTopic.FetchPartition(partition=number) for number in range(COUNT)
                        ],
                    )
                ],
            ),
            12,
        ),
    ]


@pytest.mark.full
async def test_requests_with_very_many_elements_hold_up_nobody(start_node: StartNode) -> None:
    node = start_node(auto_create_topics_enable="false")
    frames = [
        (request.API_KEY, version, framed(request, version))
        for request, version in large_requests()
    ]

    before = node.rss_bytes()
    async with canary_beside(node):
        for key, version, frame in frames:
            client = await RawConnection.connect(node.host, node.port)
            client.writer.write(frame)
            answer = await asyncio.wait_for(client.read_frame(), 30)
            read_answer(answer, key, version, 1)
            client.close()
    assert node.rss_bytes() - before < 300 * MIB


async def test_more_elements_than_a_request_may_have_close_the_connection(
    start_node: StartNode,
) -> None:
    node = start_node()
    names = [CreatableTopic(name="x")] * 100_001
    frame = framed(CreateTopicsRequest(topics=names, timeout_ms=1), 7)

    async with canary_beside(node):
        client = await RawConnection.connect(node.host, node.port)
        client.writer.write(frame)
        assert await closes(client)
        client.close()


async def test_a_large_produce_request_keeps_its_place(start_node: StartNode) -> None:
    """Pipeline a second request behind it; the offsets show the order of the appends."""
    node = start_node()

    client = await RawConnection.connect(node.host, node.port)
    await create_topic(client)
    missing = [Data.PartitionProduceData(index=-1, records=b"")] * 5_000
    first = Data.PartitionProduceData(index=0, records=batch(b"first"))
    large = ProduceRequest(acks=1, topic_data=[Data(name=TOPIC, partition_data=[*missing, first])])
    second = Data.PartitionProduceData(index=0, records=batch(b"second"))
    small = ProduceRequest(acks=1, topic_data=[Data(name=TOPIC, partition_data=[second])])
    client.writer.write(framed(large, 9, 1) + framed(small, 9, 2))
    answers = [read_answer(await client.read_frame(), 0, 9, number) for number in (1, 2)]
    parts = [answer.responses[0].partition_responses[-1] for answer in answers]
    assert [(part.error_code, part.base_offset) for part in parts] == [(0, 0), (0, 1)]
    client.close()


# ---------------------------------------------------------------- slow and half-open peers


def batch(value: bytes) -> bytes:
    return build_batch([SimpleRecord(value=value, timestamp_ms=1_700_000_000_000)])


async def create_topic(client: RawConnection) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    response = await client.ask(CreateTopicsRequest(timeout_ms=10_000, topics=[topic]))
    assert response.topics[0].error_code == 0


async def fill(node: TargetNode, mib: int) -> None:
    """Create a topic with that many bytes in it."""
    client = await RawConnection.connect(node.host, node.port)
    await create_topic(client)
    part = Data.PartitionProduceData(index=0, records=batch(os.urandom(1_000_000)))
    request = ProduceRequest(
        acks=1, timeout_ms=9_000, topic_data=[Data(name=TOPIC, partition_data=[part])]
    )
    for _ in range(mib):
        response = await client.ask(request, 9)
        assert response.responses[0].partition_responses[0].error_code == 0
    client.close()


def fetch(max_bytes: int, *, max_wait_ms: int = 100, min_bytes: int = 1) -> FetchRequest:
    part = FetchTopic.FetchPartition(
        partition=0, partition_max_bytes=max_bytes, current_leader_epoch=-1
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=TOPIC, partitions=[part])],
    )


async def read_into_memory(client: RawConnection) -> None:
    """Set a quota that nobody reaches: answers of clients with quotas are not sent from files."""
    quotas = AlterClientQuotasRequest.EntryData
    entry = quotas(
        entity=[quotas.EntityData(entity_type="client-id", entity_name=None)],
        ops=[quotas.OpData(key="consumer_byte_rate", value=1e12)],
    )
    answer = await client.ask(AlterClientQuotasRequest(entries=[entry]))
    assert answer.entries[0].error_code == 0


@pytest.mark.full
@pytest.mark.parametrize("is_read", [False, True], ids=["from-files", "from-memory"])
@pytest.mark.parametrize("max_bytes", [5_000, 2**31 - 1])
async def test_consumers_that_stop_reading_take_bounded_memory(
    start_node: StartNode, max_bytes: int, is_read: bool
) -> None:
    """A batch is given whole, however little is asked for; a client that reads goes on."""
    node = start_node()

    await fill(node, 8)
    reader = await RawConnection.connect(node.host, node.port)
    if is_read:
        await read_into_memory(reader)
    await reader.ask(fetch(2_000_000), 12)
    before = node.rss_bytes()
    async with canary_beside(node):
        with connections(node, 250) as deaf:
            for one in deaf:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.sendall(b"".join(framed(fetch(max_bytes), 12, n) for n in range(3)))
            for _ in range(20):
                answer = await reader.ask(fetch(2_000_000, max_wait_ms=5_000), 12)
                assert answer.responses[0].partitions[0].records
            # Without limits, they would take 250 MB and 2 GB.
            assert node.rss_bytes() - before < 180 * MIB
    reader.close()


async def test_a_fetch_is_never_answered_with_more_than_fetch_max_bytes(
    start_node: StartNode,
) -> None:
    node = start_node(fetch_max_bytes=3 * MIB)

    await fill(node, 6)
    client = await RawConnection.connect(node.host, node.port)
    response = await client.ask(fetch(2**31 - 1), 12)
    size = len(response.responses[0].partitions[0].records)
    assert 2_000_000 < size <= 3 * MIB
    # A fetch that can never have its `min_bytes` holds no memory and is answered in time.
    response = await client.ask(fetch(2**31 - 1, max_wait_ms=200, min_bytes=2**31 - 1), 12)
    assert len(response.responses[0].partitions[0].records) == size
    client.close()


async def test_producers_that_stop_within_a_frame_take_what_they_sent(
    start_node: StartNode,
) -> None:
    node = start_node()
    head = pack(">i", 100_000_000) + framed(ApiVersionsRequest(), 0)[4:]

    before = node.rss_bytes()
    async with canary_beside(node):
        with connections(node, 60) as stopped:
            for one in stopped:
                one.sendall(head + bytes(1_000_000))
            await asyncio.sleep(0.5)
            # The 60 frames announce 100 MB each.
            assert node.rss_bytes() - before < 250 * MIB


@pytest.mark.full
async def test_two_thousand_connections_that_do_nothing(start_node: StartNode) -> None:
    node = start_node()

    before = node.rss_bytes()
    async with canary_beside(node):
        with connections(node, 2_000) as idle:
            for one in idle[::20]:
                one.sendall(framed(ApiVersionsRequest(), 0))
            for one in idle[::20]:
                assert len(one.recv(4)) == 4
            assert node.rss_bytes() - before < 60 * MIB


# ---------------------------------------------------------------- limits of the property file


async def test_connections_above_a_limit_are_closed(start_node: StartNode) -> None:
    node = start_node(**{"max.connections.per.ip": 5, "max.connections": 8})

    clients = [await RawConnection.connect(node.host, node.port) for _ in range(5)]
    for client in clients:
        await client.ask(ApiVersionsRequest(), 0)
    refused = await RawConnection.connect(node.host, node.port)
    assert await closes(refused)
    clients.pop().close()
    await asyncio.sleep(0.2)
    again = await RawConnection.connect(node.host, node.port)
    await again.ask(ApiVersionsRequest(), 0)
    for client in [*clients, refused, again]:
        client.close()


@pytest.mark.full
async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(start_node: StartNode) -> None:
    node = start_node(connections_max_idle_ms=1_500)

    idle = await RawConnection.connect(node.host, node.port)
    halfway = await RawConnection.connect(node.host, node.port)
    halfway.writer.write(pack(">i", 1000) + b"never the rest")
    busy = await RawConnection.connect(node.host, node.port)
    ends = asyncio.gather(closes(idle), closes(halfway))
    while not ends.done():
        await busy.ask(ApiVersionsRequest(), 0)
        await asyncio.sleep(0.1)
    assert list(await ends) == [True, True]
    await busy.ask(ApiVersionsRequest(), 0)
    for client in (idle, halfway, busy):
        client.close()


async def test_frames_above_the_limit_close_the_connection(start_node: StartNode) -> None:
    node = start_node(socket_request_max_bytes=100_000)

    async with canary_beside(node):
        fits = await RawConnection.connect(node.host, node.port)
        key = FindCoordinatorRequest(coordinator_keys=["k" * 30_000] * 3)
        await fits.ask(key, 6)
        above = await RawConnection.connect(node.host, node.port)
        above.writer.write(pack(">i", 100_001) + b"x" * 1000)
        assert await closes(above)
        fits.close()
        above.close()


async def test_requests_wait_while_too_many_bytes_are_held(start_node: StartNode) -> None:
    """Send large frames one after the other: all are answered."""
    node = start_node(queued_max_request_bytes=1_000_000, socket_request_max_bytes=1_000_000)
    request = FindCoordinatorRequest(coordinator_keys=["k" * 30_000] * 20)

    async def one() -> None:
        client = await RawConnection.connect(node.host, node.port)
        with closing(client):
            for _ in range(5):
                response = await client.ask(request, 6)
                assert len(response.coordinators) == 20

    await asyncio.gather(*(one() for _ in range(8)))


async def test_a_canary_finds_a_wrong_answer(start_node: StartNode) -> None:
    """Another client writes to the canary's topic, and the canary must notice."""
    node = start_node()

    canary = Canary(await RawConnection.connect(node.host, node.port))
    await canary.prepare()
    await canary.check()
    intruder = await RawConnection.connect(node.host, node.port)
    part = Data.PartitionProduceData(index=0, records=batch(b"intruder"))
    data = Data(name="canary-topic", partition_data=[part])
    await intruder.ask(ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[data]), 9)
    with pytest.raises(Finding, match="produce gave"):
        await canary.check()
    canary.close()
    intruder.close()
