"""Client quotas over the wire: answered at once, then not read from."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from node_harness import (
    Client,
    Home,
    batch_of,
    connected,
    fetch_request,
    produce_request,
    running,
)
from test_server_connection import METADATA, PRODUCE, Session, frame

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.runtime.network.connection import ConnectionState

Entry = AlterClientQuotasRequest.EntryData


async def alter(client: Client, key: str, value: float | None) -> None:
    """Set a quota of the client id that the harness uses, or remove it."""
    response = await client.ask(
        AlterClientQuotasRequest(
            entries=[
                Entry(
                    entity=[Entry.EntityData(entity_type="client-id", entity_name="test")],
                    ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None)],
                )
            ]
        )
    )
    assert response.entries[0].error_code == 0, response


async def produce(client: Client, topic: str, records: bytes, acks: int = 1) -> Any:
    return await client.ask(produce_request(topic, 0, records, acks), version=12)


async def test_a_muted_connection_is_not_read_from() -> None:
    session = Session()
    connection = session.connection
    session.receive(frame(PRODUCE, b"1") + frame(PRODUCE, b"2"))
    connection.mute(3600)
    assert not session.transport.is_reading()
    await session.answer(0, b"one")
    await session.answer(1, b"two")
    assert session.transport.sent == [b"one", b"two"]
    session.receive(frame(METADATA, b"3"))
    assert len(session.server.frames) == 2
    connection.mute(1)
    connection.unmute()
    assert len(session.server.frames) == 3
    await session.answer(2, b"three")
    assert session.transport.is_reading()


async def test_a_muted_connection_can_be_idle() -> None:
    session = Session()
    # Its peer may be gone: nobody would notice while it is not read from.
    session.connection.mute(10**6)
    session.receive(frame(METADATA, b"1"))
    assert session.connection.is_idle_since(float("inf"))
    session.connection.unmute()
    assert not session.connection.is_idle_since(float("inf"))


async def test_the_longer_of_two_waits_holds() -> None:
    session = Session()
    session.connection.mute(3600)
    session.connection.mute(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not session.transport.is_reading()
    session.connection.unmute()
    session.connection.mute(0)
    await asyncio.sleep(0.001)
    assert session.transport.is_reading()


async def test_a_lost_connection_is_not_unmuted() -> None:
    session = Session()
    session.receive(frame(PRODUCE, b"1"))
    session.connection.mute(0.0)
    session.connection.connection_lost(None)
    await asyncio.sleep(0.001)
    assert session.connection.state is ConnectionState.CLOSED


async def test_a_producer_over_its_quota_is_answered_and_then_waits(tmp_path: Path) -> None:
    async with running(Home(tmp_path).format()) as node, connected(node) as client:
        await client.create_topic("a")
        assert (await produce(client, "a", batch_of(b"x" * 5000))).throttle_time_ms == 0
        await alter(client, "producer_byte_rate", 100.0)
        async with connected(node) as producer:
            response = await produce(producer, "a", batch_of(b"x" * 5000))
            assert response.responses[0].partition_responses[0].error_code == 0
            assert 30_000 < response.throttle_time_ms < 50_000
            waiting = asyncio.create_task(producer.ask(ApiVersionsRequest(), 0))
            # Other connections go on; this one is heard when the quota is gone.
            assert (await client.ask(ApiVersionsRequest(), 2)).throttle_time_ms == 0
            assert not waiting.done()
            await alter(client, "producer_byte_rate", None)
            assert (await waiting).error_code == 0
            assert (await produce(producer, "a", batch_of(b"x" * 5000))).throttle_time_ms == 0


async def test_a_consumer_over_its_quota_gets_nothing_for_a_while(tmp_path: Path) -> None:
    async with running(Home(tmp_path).format()) as node, connected(node) as client:
        await client.create_topic("a")
        for _ in range(6):
            await produce(client, "a", batch_of(b"x" * 3000))
        await alter(client, "consumer_byte_rate", 1000.0)
        async with connected(node) as consumer:
            request = fetch_request("a", 0, 0)
            first = await consumer.ask(request, 12)
            assert first.throttle_time_ms == 0
            assert 9_000 < len(first.responses[0].partitions[0].records) <= 10_000
            second = await consumer.ask(request, 12)
            assert second.throttle_time_ms > 0
            assert second.responses == []
            await alter(client, "consumer_byte_rate", None)
            third = await consumer.ask(request, 12)
            assert len(third.responses[0].partitions[0].records) > 18_000


async def test_a_session_outlives_throttling(tmp_path: Path) -> None:
    async with running(Home(tmp_path).format()) as node, connected(node) as client:
        await client.create_topic("a")
        for _ in range(3):
            await produce(client, "a", batch_of(b"x" * 3000))
        assert node.broker is not None
        sessions = node.broker.services.fetch_sessions
        request = fetch_request("a", 0, 0)
        request.session_epoch = 0
        opened = await client.ask(request, 12)
        assert opened.session_id > 0
        await alter(client, "consumer_byte_rate", 400.0)
        async with connected(node) as consumer:
            paid = await consumer.ask(fetch_request("a", 0, 0), 12)
            assert paid.throttle_time_ms == 0
        async with connected(node) as consumer:
            # A session that begins is not kept when its first answer is withheld.
            refused = await consumer.ask(request, 12)
            assert (refused.session_id, refused.throttle_time_ms > 0) == (0, True)
            assert len(sessions) == 1
        request.session_id, request.session_epoch, request.topics = opened.session_id, 1, []
        withheld = await client.ask(request, 12)
        assert withheld.session_id == opened.session_id
        assert withheld.throttle_time_ms > 0
        assert withheld.responses == []
        async with connected(node) as other:
            await alter(other, "consumer_byte_rate", None)
        request.session_epoch = 2
        served = await client.ask(request, 12)
        assert len(served.responses[0].partitions[0].records) > 9_000


async def test_creating_partitions_has_a_rate(tmp_path: Path) -> None:
    async with running(Home(tmp_path).format()) as node, connected(node) as client:
        await alter(client, "controller_mutation_rate", 1.0)
        topic = CreateTopicsRequest.CreatableTopic
        wanted = [topic(name=n, num_partitions=8, replication_factor=1) for n in "abcd"]
        async with connected(node) as creator:
            response = await creator.ask(
                CreateTopicsRequest(topics=wanted, timeout_ms=5_000), version=7
            )
            codes = {result.name: result.error_code for result in response.topics}
            refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert codes == {"a": 0, "b": 0, "c": refused, "d": refused}
            assert [result.error_message for result in response.topics] == [None] * 4
            assert 4_000 < response.throttle_time_ms <= 5_000
            # The connection is muted for that time, too.
            waiting = asyncio.create_task(creator.ask(ApiVersionsRequest(), 0))
            await client.ask(ApiVersionsRequest(), 0)
            assert not waiting.done()
            await alter(client, "controller_mutation_rate", 1_000.0)
            assert (await waiting).error_code == 0
        assert node.publisher.image.topics.partition_count() == 16


async def test_connections_that_come_too_fast_are_closed_unheard(tmp_path: Path) -> None:
    home = Home(tmp_path, quota_window_num="2").format()
    async with running(home) as node, connected(node) as client:
        entry = Entry(
            entity=[Entry.EntityData(entity_type="ip", entity_name="127.0.0.1")],
            ops=[Entry.OpData(key="connection_creation_rate", value=2.0)],
        )
        response = await client.ask(AlterClientQuotasRequest(entries=[entry]))
        assert response.entries[0].error_code == 0, response
        for _ in range(2):
            async with connected(node) as quick:
                assert (await quick.ask(ApiVersionsRequest(), 0)).error_code == 0
        async with connected(node) as late:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await late.ask(ApiVersionsRequest(), 0)
        assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
