"""Members of a consumer group that take their steps side by side, on the event loop."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from coordinator_log import CONFIG, Broker, settle, start_broker, topic

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, TopicPartition
from spindle.coordinator.config import ConsumerGroupConfig
from spindle.coordinator.consumer.member import ConsumerMember
from spindle.coordinator.coordinator_result import Client
from spindle.metadata.features import GROUP_VERSION
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from spindle.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from spindle.protocol.records.batch import read_header

CLIENT = Client("app", "/127.0.0.1", 1)
GROUP = "orders"
WHERE = TopicPartition(OFFSETS_TOPIC, 0)
TOPIC_ID = b"t" * 16


async def start_group() -> Broker:
    """Start a broker and a group whose member `d` has left; `b` and `c` have not seen it yet."""
    config = replace(CONFIG, consumer=ConsumerGroupConfig(assignment_interval_ms=0))
    broker = start_broker(topic("t", TOPIC_ID, 6), partitions=1, config=config)
    image = broker.metadata.image
    features = replace(image.features, levels={GROUP_VERSION: 1})
    broker.metadata.image = replace(image, features=features)
    await broker.groups.wait_loaded()
    for member_id in "abcd":
        await beat(broker, member_id, 0, subscribed_topic_names=["t"], rebalance_timeout_ms=1_000)
    for member_id in "abcdabcd":
        await step(broker, member_id)
    await beat(broker, "d", -1)
    # The first heartbeat after the change computes the assignment.
    await step(broker, "a")
    return broker


def member(broker: Broker, member_id: str) -> ConsumerMember:
    return broker.groups.shards[0].shard.groups.consumer[GROUP].members[member_id]


async def beat(
    broker: Broker, member_id: str, epoch: int, *owned: int, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    claim = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=TOPIC_ID, partitions=[*owned])
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        topic_partitions=[claim] if owned else [],
        **fields,
    )
    return await broker.groups.consumer_heartbeat(request, CLIENT)


def step(broker: Broker, member_id: str) -> Coroutine[Any, Any, ConsumerGroupHeartbeatResponse]:
    """Send the heartbeat of a member that owns what it was given."""
    known = member(broker, member_id)
    return beat(broker, member_id, known.epoch, *known.assigned.get(TOPIC_ID, ()))


def commit_of_another_group(broker: Broker) -> Coroutine[Any, Any, OffsetCommitResponse]:
    wanted = OffsetCommitRequest.OffsetCommitRequestTopic
    part = wanted.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(group_id="other", topics=[wanted(name="t", partitions=[part])])
    return broker.groups.commit_offsets(request, CLIENT)


async def appended(broker: Broker, *requests: Coroutine[Any, Any, Any]) -> list[int]:
    """Send requests while an append hangs; return the sizes of the batches behind it."""
    before = len(broker.log.batches[WHERE])
    broker.log.gate = asyncio.Event()
    hanging = asyncio.ensure_future(commit_of_another_group(broker))
    await settle()
    tasks = [asyncio.ensure_future(request) for request in requests]
    await settle()
    broker.log.gate.set()
    await asyncio.gather(hanging, *tasks)
    batches = broker.log.batches[WHERE][before:]
    return [read_header(batch).record_count for batch in batches][1:]


async def test_steps_of_several_members_share_an_append() -> None:
    broker = await start_group()
    assert await appended(broker, step(broker, "b"), step(broker, "c")) == [2]
    assert {member(broker, name).epoch for name in "abc"} == {6}
    owned = [p for name in "abc" for p in member(broker, name).assigned[TOPIC_ID]]
    assert sorted(owned) == [0, 1, 2, 3, 4, 5]
    broker.groups.close()


async def test_member_takes_one_step_at_a_time() -> None:
    broker = await start_group()
    assert await appended(broker, step(broker, "b"), step(broker, "b")) == [1]
    broker.groups.close()


async def test_change_of_the_group_waits_for_the_steps_before_it() -> None:
    broker = await start_group()
    leaving = beat(broker, "c", -1)
    first, last = await appended(broker, step(broker, "b"), leaving)
    assert first == 1
    assert last > 1
    assert "c" not in broker.groups.shards[0].shard.groups.consumer[GROUP].members
    broker.groups.close()


async def test_step_that_was_not_appended_is_taken_again() -> None:
    broker = await start_group()
    broker.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(ApiError):
        await step(broker, "b")
    broker.log.failure = None
    assert member(broker, "b").epoch == 5
    assert await appended(broker, step(broker, "b"), step(broker, "c")) == [2]
    assert member(broker, "b").epoch == 6
    broker.groups.close()
