"""aiokafka: the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from peers.clients import create
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair
from peers.node import Node
from peers.samples import samples_with_content, seen
from waiting import until

LIMIT_S = 30.0


def run(steps: Coroutine[object, object, Answer]) -> Answer:
    return asyncio.run(asyncio.wait_for(steps, LIMIT_S))


async def send(node: Node, topic: str, **config: object) -> list[int]:
    producer = AIOKafkaProducer(bootstrap_servers=node.bootstrap, linger_ms=20, **config)
    await producer.start()
    try:
        futures = [
            await producer.send(
                topic, one.value, one.key, partition=0, timestamp_ms=one.timestamp_ms,
                headers=[(name, value or b"") for name, value in one.headers],
            )
            for one in samples_with_content()
        ]  # fmt: skip
        return [(await future).offset for future in futures]
    finally:
        await producer.stop()


async def read(node: Node, topic: str, count: int) -> list[Answer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=node.bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        records: list[Answer] = []
        while len(records) < count:
            one = await consumer.getone()
            records.append([one.offset, *seen(one.key, one.value, one.headers, one.timestamp)])
        return records
    finally:
        await consumer.stop()


async def until_assigned(consumer: AIOKafkaConsumer, partitions: int) -> None:
    await until(lambda: len(consumer.assignment()) == partitions, pause_s=0.05)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(
    pair: Pair, codec: str | None, idempotent: bool
) -> None:
    topic = f"aio-{codec}-{idempotent}"

    async def steps(node: Node) -> Answer:
        offsets = await send(node, topic, compression_type=codec, enable_idempotence=idempotent)
        return [offsets, await read(node, topic, len(samples_with_content()))]

    def script(node: Node) -> Answer:
        create(node, topic)
        return run(steps(node))

    offsets, records = pair.compare(script)
    assert offsets == list(range(len(samples_with_content())))
    assert len(records) == len(samples_with_content())


def test_two_members_share_and_resume(pair: Pair) -> None:
    async def steps(node: Node) -> Answer:
        settings = {
            "bootstrap_servers": node.bootstrap,
            "group_id": "aio-members",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 300,
        }
        first = AIOKafkaConsumer("aio-group", **settings)
        second = AIOKafkaConsumer("aio-group", **settings)
        answers: list[Answer] = []
        await first.start()
        try:
            answers.append(len(first.assignment()))
            await second.start()
            try:
                await until_assigned(first, 2)
                answers.append([len(first.assignment()), len(second.assignment())])
                overlap = first.assignment() & second.assignment()
                answers.append(len(overlap))
            finally:
                await second.stop()
            await until_assigned(first, 4)
            offsets = {TopicPartition("aio-group", number): number + 1 for number in range(4)}
            await first.commit(offsets)
        finally:
            await first.stop()
        third = AIOKafkaConsumer("aio-group", **settings)
        await third.start()
        try:
            for number in range(4):
                place = TopicPartition("aio-group", number)
                answers.append(await third.committed(place))
        finally:
            await third.stop()
        return answers

    def script(node: Node) -> Answer:
        create(node, "aio-group", 4)
        return run(steps(node))

    answers = pair.compare(script)
    assert answers == [4, [2, 2], 0, 1, 2, 3, 4]


def test_offsets_by_time(pair: Pair) -> None:
    async def steps(node: Node) -> Answer:
        await send(node, "aio-times")
        consumer = AIOKafkaConsumer(bootstrap_servers=node.bootstrap)
        await consumer.start()
        try:
            place = TopicPartition("aio-times", 0)
            offsets = [
                await consumer.offsets_for_times({place: FIRST_TIMESTAMP_MS + step})
                for step in (-99_999, 0, 7_000, 99_999)
            ]
            ends = [await consumer.beginning_offsets([place]), await consumer.end_offsets([place])]
            return repr([offsets, ends])
        finally:
            await consumer.stop()

    def script(node: Node) -> Answer:
        create(node, "aio-times")
        return run(steps(node))

    assert "OffsetAndTimestamp(offset=0" in pair.compare(script)


def test_administration(pair: Pair) -> None:
    async def steps(node: Node) -> Answer:
        admin = AIOKafkaAdminClient(bootstrap_servers=node.bootstrap)
        await admin.start()
        answers: list[Answer] = []
        try:
            for _ in range(2):
                response = await admin.create_topics([NewTopic("aio-admin", 2, 1)])
                answers.append([(name, code) for name, code, *_ in response.topic_errors])
            await asyncio.sleep(0.2)
            described = await admin.describe_topics(["aio-admin"])
            answers.append([(one["topic"], len(one["partitions"])) for one in described])
            for _ in range(2):
                try:
                    response = await admin.delete_topics(["aio-admin"])
                    answers.append(list(response.topic_error_codes))
                except KafkaError as failure:
                    answers.append(type(failure).__name__)
        finally:
            await admin.close()
        return answers

    answers = pair.compare(lambda node: run(steps(node)))
    assert answers[0] == [["aio-admin", 0]]
    assert answers[1] == [["aio-admin", 36]]
