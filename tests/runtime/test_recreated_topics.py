"""Fetches by topic id that outlive their topic (KIP-516), as Apache Kafka 4.3.1 answers them."""

import asyncio
from pathlib import Path

from node_harness import Client, Home, batch_of, connected, fetch_request, running

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.fetch import FetchRequest


def by_id(topic_id: bytes, offset: int, *, epoch: int = -1, wait_ms: int = 0) -> FetchRequest:
    request = fetch_request("", 0, offset)
    request.topics[0].topic_id = topic_id
    request.session_epoch, request.max_wait_ms = epoch, wait_ms
    return request


async def code(client: Client, request: FetchRequest) -> int:
    """Return the error of the one partition that the answer names."""
    return int((await client.ask(request)).responses[0].partitions[0].error_code)


async def delete(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=5_000
    )
    assert (await client.ask(request)).responses[0].error_code == 0


async def test_a_waiting_fetch_gets_an_error_for_the_name(tmp_path: Path) -> None:
    async with (
        running(Home(tmp_path).format()) as node,
        connected(node) as client,
        connected(node) as other,
    ):
        topic_id = await client.create_topic("t")
        await client.produce("t", 0, batch_of(b"one"))
        waiting = asyncio.create_task(code(client, by_id(topic_id, 1, wait_ms=20_000)))
        # Answered by the other connection only after the node has begun to wait.
        assert await code(other, by_id(topic_id, 1, wait_ms=1)) == 0
        await delete(other, "t")
        assert await waiting == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await code(other, by_id(topic_id, 1)) == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_session_remembers_the_name_of_an_id(tmp_path: Path) -> None:
    async with running(Home(tmp_path).format()) as node, connected(node) as client:
        topic_id = await client.create_topic("t")
        await client.produce("t", 0, batch_of(b"one"))
        opened = await client.ask(by_id(topic_id, 0, epoch=0))
        assert opened.session_id > 0
        again = FetchRequest(session_id=opened.session_id, max_bytes=1 << 20)
        await delete(client, "t")
        again.session_epoch = 1
        assert await code(client, again) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.create_topic("t") != topic_id
        await client.produce("t", 0, batch_of(b"two"))
        again.session_epoch = 2
        assert await code(client, again) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert await code(client, by_id(topic_id, 0)) == ErrorCode.UNKNOWN_TOPIC_ID
