"""Transactions of the clients that applications use: the new and two old Java clients, librdkafka,
aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from kafka.errors import KafkaError as PythonError
from kafka.structs import OffsetAndMetadata
from peers.clients import LIMIT_S, create, settings
from peers.compare import Answer, Pair
from peers.java_tools import run_with_client
from peers.node import Node

from kafka import KafkaProducer
from kafka import TopicPartition as PythonPartition

NODE_OVERRIDES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
SCRIPTS = ["outcomes", "offsets", "fencing", "restart", "timeout", "errors"]
pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("script", SCRIPTS)
def test_java(pair: Pair, script: str) -> None:
    def play(node: Node) -> Answer:
        topic = f"java-{script}"
        create(node, topic, 2, {"max.message.bytes": "20000"})
        run = pair.java_tools.run("TransactionalClient", script, node.bootstrap, topic)
        return run.check().lines

    assert len(pair.compare(play)) >= 4


@pytest.mark.parametrize(
    ("release", "script"),
    [("2.1", "outcomes"), ("2.1", "offsets"), ("2.1", "fencing"), ("2.1", "timeout"),
     ("3.9", "offsets"), ("3.9", "fencing"), ("3.9", "restart"), ("3.9", "timeout")],
)  # fmt: skip
def test_old_java_clients(pair: Pair, release: str, script: str) -> None:
    """Clients of before transaction.version 2 add each partition before they write to it."""

    def play(node: Node) -> Answer:
        topic = f"java-{release}-{script}"
        create(node, topic, 2, {"max.message.bytes": "20000"})
        run = run_with_client(release, "TransactionalClient", script, node.bootstrap, topic)
        return run.check().lines

    assert len(pair.compare(play)) >= 4


def seen(node: Node, topic: str, isolation: str, partitions: int = 2) -> list[list[Any]]:
    """Return what a reader of librdkafka gets, up to the end that it is shown."""
    consumer = Consumer(
        settings(node, group_id="reader", isolation_level=isolation, enable_partition_eof=True)
    )
    lines: list[list[Any]] = []
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        ended = 0
        while ended < partitions:
            record = consumer.poll(LIMIT_S)
            assert record is not None, f"no end of {topic}: {lines}"
            error = record.error()
            if error is None:
                value = record.value()
                assert value is not None
                lines.append([record.partition(), record.offset(), value.decode()])
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    finally:
        consumer.close()
    return sorted(lines)


def committed(node: Node, group: str, topic: str) -> list[int]:
    consumer = Consumer(settings(node, group_id=group))
    try:
        places = [TopicPartition(topic, partition) for partition in range(2)]
        return [place.offset for place in consumer.committed(places, LIMIT_S)]
    finally:
        consumer.close()


def attempt(step: Callable[[], object]) -> str:
    """Return the name of librdkafka's error and what the application may do about it."""
    try:
        step()
    except KafkaException as failure:
        error = failure.args[0]
        kinds = {
            "fatal": error.fatal(),
            "retriable": error.retriable(),
            "abort": error.txn_requires_abort(),
        }
        return " ".join([error.name(), *(kind for kind, is_so in kinds.items() if is_so)])
    return "done"


def rdkafka_producer(node: Node, name: str, timeout_ms: int = 60_000) -> Producer:
    return Producer(settings(node, transactional_id=name, transaction_timeout_ms=timeout_ms))


def test_librdkafka(pair: Pair) -> None:
    topic, group = "rdkafka", "rdkafka-group"

    def play(node: Node) -> Answer:
        create(node, topic, 2)
        producer = rdkafka_producer(node, "rdkafka")
        answers: list[Any] = [attempt(lambda: producer.init_transactions(LIMIT_S))]
        member = Consumer(settings(node, group_id=group, auto_offset_reset="earliest"))
        try:
            member.subscribe([topic])
            for number, is_committed in enumerate((True, False, True, False, True)):
                producer.begin_transaction()
                for index in range(4):
                    producer.produce(topic, f"{number}-{index}".encode(), partition=index % 2)
                while not member.assignment():
                    member.poll(0.1)
                answers.append(
                    attempt(
                        partial(
                            producer.send_offsets_to_transaction,
                            [TopicPartition(topic, 0, number + 1)],
                            member.consumer_group_metadata(),
                            LIMIT_S,
                        )
                    )
                )
                if is_committed:
                    answers.append(attempt(lambda: producer.commit_transaction(LIMIT_S)))
                else:
                    assert producer.flush(LIMIT_S) == 0
                    answers.append(attempt(lambda: producer.abort_transaction(LIMIT_S)))
                answers.append(committed(node, group, topic))
        finally:
            member.close()
        levels = ("read_committed", "read_uncommitted")
        return [*answers, *(seen(node, topic, isolation) for isolation in levels)]

    answers = pair.compare(play)
    assert [value for _, _, value in answers[-2]][:2] == ["0-0", "0-2"]
    assert len(answers[-2]) == 12
    assert len(answers[-1]) == 20
    assert answers[-3] == [5, -1001]


def test_librdkafka_is_fenced(pair: Pair) -> None:
    topic = "rdkafka-fenced"

    def play(node: Node) -> Answer:
        create(node, topic, 2)
        first = rdkafka_producer(node, "fenced")
        first.init_transactions(LIMIT_S)
        first.begin_transaction()
        first.produce(topic, b"first", partition=0)
        assert first.flush(LIMIT_S) == 0
        second = rdkafka_producer(node, "fenced")
        answers = [attempt(lambda: second.init_transactions(LIMIT_S))]
        answers.append(attempt(lambda: first.commit_transaction(LIMIT_S)))
        second.begin_transaction()
        second.produce(topic, b"second", partition=0)
        answers.append(attempt(lambda: second.commit_transaction(LIMIT_S)))
        return [*answers, *seen(node, topic, "read_committed")]

    assert pair.compare(play)[-1] == [0, 2, "second"]


def test_librdkafka_is_too_slow(pair: Pair) -> None:
    """The coordinator aborts the transaction; after a new start the producer goes on."""
    topic = "rdkafka-slow"

    def play(node: Node) -> Answer:
        create(node, topic, 2)
        slow = rdkafka_producer(node, "slow", 1000)
        slow.init_transactions(LIMIT_S)
        slow.begin_transaction()
        slow.produce(topic, b"slow", partition=0)
        assert slow.flush(LIMIT_S) == 0
        reader = Consumer(settings(node, group_id="ends", isolation_level="read_committed"))
        while reader.get_watermark_offsets(TopicPartition(topic, 0), LIMIT_S)[1] < 2:
            slow.poll(0.05)
        reader.close()
        answers = [attempt(lambda: slow.commit_transaction(LIMIT_S))]
        heir = rdkafka_producer(node, "slow")
        heir.init_transactions(LIMIT_S)
        heir.begin_transaction()
        heir.produce(topic, b"quick", partition=0)
        answers.append(attempt(lambda: heir.commit_transaction(LIMIT_S)))
        return [*answers, *seen(node, topic, "read_committed")]

    assert pair.compare(play)[-1] == [0, 2, "quick"]


def test_aiokafka(pair: Pair) -> None:
    topic, group = "aio", "aio-group"

    async def play_async(node: Node) -> Answer:
        answers: list[Any] = []
        first = AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id="aio")
        await first.start()
        try:
            for number, is_committed in enumerate((True, False, True)):
                await first.begin_transaction()
                for index in range(4):
                    await first.send(topic, f"{number}-{index}".encode(), partition=index % 2)
                await first.send_offsets_to_transaction({AioPartition(topic, 0): number + 1}, group)
                if is_committed:
                    await first.commit_transaction()
                else:
                    await first.flush()
                    await first.abort_transaction()
                # The client itself could ask before the marker is written.
                answers.append(await asyncio.to_thread(committed, node, group, topic))
            await first.begin_transaction()
            await first.send_and_wait(topic, b"late", partition=0)
            second = AIOKafkaProducer(bootstrap_servers=node.bootstrap, transactional_id="aio")
            await second.start()
            try:
                await first.commit_transaction()
            except AioError as error:
                answers.append(type(error).__name__)
            await second.begin_transaction()
            await second.send_and_wait(topic, b"second", partition=0)
            await second.commit_transaction()
            await second.stop()
        finally:
            await first.stop()
        return answers

    def play(node: Node) -> Answer:
        create(node, topic, 2)
        return [asyncio.run(play_async(node)), seen(node, topic, "read_committed")]

    answers = pair.compare(play)
    assert len(answers[1]) == 9
    assert [offsets[0] for offsets in answers[0][:3]] == [1, 1, 3]


def test_kafka_python(pair: Pair) -> None:
    topic, group = "python", "python-group"

    def play(node: Node) -> Answer:
        create(node, topic, 2)
        answers: list[Any] = []
        first = KafkaProducer(bootstrap_servers=node.bootstrap, transactional_id="python")
        first.init_transactions()
        place = PythonPartition(topic, 0)
        for number, is_committed in enumerate((True, False, True)):
            first.begin_transaction()
            for index in range(4):
                first.send(topic, f"{number}-{index}".encode(), partition=index % 2)
            first.send_offsets_to_transaction({place: OffsetAndMetadata(number + 1, "", -1)}, group)
            if is_committed:
                first.commit_transaction()
            else:
                first.flush()
                first.abort_transaction()
            answers.append(committed(node, group, topic))
        first.begin_transaction()
        first.send(topic, b"late", partition=0).get(LIMIT_S)
        second = KafkaProducer(bootstrap_servers=node.bootstrap, transactional_id="python")
        second.init_transactions()
        try:
            first.commit_transaction()
        except PythonError as error:
            answers.append(type(error).__name__)
        second.begin_transaction()
        second.send(topic, b"second", partition=0)
        second.commit_transaction()
        second.close()
        first.close(0)
        return [answers, seen(node, topic, "read_committed")]

    answers = pair.compare(play)
    assert len(answers[1]) == 9
    assert [offsets[0] for offsets in answers[0][:3]] == [1, 1, 3]
