"""Requests that reach a leader before its metadata: they wait, in order."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_broker import create_replicated
from leader_pair import pair
from node_harness import (
    batch_of,
    connected,
    produce_request,
    records_in,
)

from spindle.common.errors import ErrorCode
from spindle.metadata.image import EMPTY_IMAGE


async def test_a_follower_that_knows_of_a_topic_first_waits_for_the_leader_to_learn_of_it(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as p, connected(p.node) as probe:
        assert p.node.broker is not None
        image = p.node.broker.metadata.image
        await p.create()
        topic_id = p.topic_id
        # As if the leader had not heard of the topic yet.
        p.node.broker.metadata.image = image
        waiting = asyncio.create_task(p.follow(0, max_wait_ms=50_000))
        impatient = await probe.ask(p.other.fetch(topic_id, 0))
        code = impatient.responses[0].partitions[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_ID
        assert not waiting.done()
        await create_replicated(p.client, "u", [1])
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        assert len(records_in((await waiting).records)) == 1


async def test_an_impossible_offset_of_a_topic_that_nobody_knows_is_answered_beside_others(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        request = p.other.fetch(p.topic_id, 0, max_wait_ms=50_000)
        request.topics += p.other.fetch(bytes(15) + b"x", -5).topics
        response = await p.link.ask(request)
        codes = [topic.partitions[0].error_code for topic in response.responses]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_fetch_for_a_topic_unknown_to_the_leader_counts_after_its_metadata(
    tmp_path: Path,
) -> None:
    """The follower says it once: the next request of its session does not repeat it."""

    async with pair(tmp_path) as p:
        known_id = await create_replicated(p.client, "known", [1, 2])
        begin = p.other.fetch(known_id, 0)
        begin.session_epoch = 0
        session_id = (await p.link.ask(begin)).session_id
        await p.client.produce("known", 0, batch_of(b"a"), acks=1)
        assert p.node.broker is not None
        image = p.node.broker.metadata.image
        await p.create()
        # As if the leader had not heard of the topic yet.
        p.node.broker.metadata.image = image
        first = p.other.fetch(p.topic_id, 0, max_wait_ms=50_000)
        first.session_id, first.session_epoch = session_id, 1
        answer = await p.link.ask(first)
        assert [topic.topic_id for topic in answer.responses] == [known_id]
        await create_replicated(p.client, "u", [1])
        second = p.other.fetch(known_id, 1, max_wait_ms=50_000)
        second.session_id, second.session_epoch = session_id, 2
        waiting = asyncio.create_task(p.link.ask(second))
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        await waiting
        partition = p.node.broker.replicas.lookup("t", 0)
        assert partition is not None
        assert partition.leader is not None
        follower = partition.leader.follower(2)
        assert follower is not None
        assert follower.log_end_offset == 0


async def test_a_follower_in_a_newer_epoch_waits_for_the_leader_to_begin_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        epoch = p.registration.leader_epoch
        waiting = asyncio.create_task(p.follow(0, leader_epoch=epoch + 2, max_wait_ms=50_000))
        await p.reassign([2, 1])
        await p.elect_preferred()
        await p.until(lambda r: r.leader == 2)
        await p.reassign([1, 2])
        await p.elect_preferred()
        await p.until(lambda r: r.leader == 1)
        assert p.registration.leader_epoch == epoch + 2
        assert len(records_in((await waiting).records)) == 1


async def test_a_request_without_time_for_replicas_waits_for_its_leader_to_begin(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        broker = p.node.broker
        assert broker is not None
        partition = broker.replicas.lookup("t", 0)
        assert partition is not None
        # As it is while this broker takes over the leadership.
        state, partition.leader = partition.leader, None
        broker.metadata.applied = EMPTY_IMAGE
        request = produce_request("t", 0, batch_of(b"a"), 1)
        request.timeout_ms = 0
        waiting = asyncio.create_task(p.client.ask(request, version=12))
        await p.link.ask(p.other.fetch(p.topic_id, 0))  # the request has been looked at
        partition.leader = state
        await create_replicated(p.link, "u", [1])
        part = (await waiting).responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset) == (0, 0)


async def test_requests_that_wait_for_a_leadership_are_served_before_those_that_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a producer's batches get mixed up, which it takes for lost records."""

    def numbered(sequence: int) -> bytes:
        return batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence)

    async with pair(tmp_path) as p, connected(p.node) as second:
        await p.create()
        broker = p.node.broker
        assert broker is not None
        partition = broker.replicas.lookup("t", 0)
        assert partition is not None
        # As it is while this broker takes over the leadership.
        state, partition.leader = partition.leader, None
        broker.metadata.applied = EMPTY_IMAGE
        is_waiting = asyncio.Event()
        when_hosted = broker.replicas.when_hosted

        def noted(topic: str, index: int, callback: Callable[[], None]) -> None:
            is_waiting.set()
            when_hosted(topic, index, callback)

        monkeypatch.setattr(broker.replicas, "when_hosted", noted)
        early = asyncio.create_task(p.client.produce("t", 0, numbered(0), acks=1))
        await is_waiting.wait()
        partition.leader = state
        late = asyncio.create_task(second.produce("t", 0, numbered(1), acks=1))
        await create_replicated(p.link, "u", [1])
        answers = [await early, await late]
        assert [(a.error_code, a.base_offset) for a in answers] == [(0, 0), (0, 1)]


async def test_records_for_a_topic_made_again_do_not_go_to_its_predecessor(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        broker = p.node.broker
        assert broker is not None
        partition = broker.replicas.lookup("t", 0)
        assert partition is not None
        # As it is while the predecessor is still there.
        partition.topic_id = bytes(15) + b"x"
        request = produce_request("t", 0, batch_of(b"a"), acks=1)
        request.topic_data[0].topic_id = p.topic_id
        response = await p.client.ask(request)
        part = response.responses[0].partition_responses[0]
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert partition.log.log_end_offset == 0
