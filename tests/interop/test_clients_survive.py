"""Producers and consumer groups of several clients go on although every node is lost once.

Each client sends numbers until the end of the test, and its group reads them. Every acknowledged
number is read. A client that orders and deduplicates reads each number once, in partition order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from operator import not_
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import KafkaError as KafkaPythonError
from peers.clients import position_of
from peers.cluster import QUICK_FAILOVER, Cluster
from waiting import wait_for, wait_until

from kafka import KafkaConsumer, KafkaProducer

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3
PAUSE_S = 0.02
LIMIT_S = 60.0


class Subject:
    """The numbers that one client has sent and read so far."""

    def __init__(self, bootstrap: str, topic: str, is_exact: bool) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.is_exact = is_exact
        self.acknowledged: list[int] = []
        self.read: dict[int, list[int]] = defaultdict(list)
        self.is_sending = True
        self.is_reading = True
        self.faults: list[BaseException] = []

    def missing(self) -> set[int]:
        return set(self.acknowledged) - {n for items in list(self.read.values()) for n in items}

    def check(self) -> None:
        assert not self.faults, f"{self.topic}: {self.faults[:3]}"
        assert len(self.acknowledged) > 100, f"{self.topic}: {len(self.acknowledged)} sent"
        assert not self.missing(), f"{self.topic}: acknowledged, not read: {self.missing()}"
        if self.is_exact:
            for partition, numbers in self.read.items():
                first_reads = list(dict.fromkeys(numbers))
                assert first_reads == sorted(first_reads), f"{self.topic}-{partition}: disorder"


def librdkafka_sends(subject: Subject) -> None:
    producer = Producer(
        {
            "bootstrap.servers": subject.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
        }
    )

    def delivered(error: KafkaError | None, record: Message) -> None:
        if error is None:
            subject.acknowledged.append(int(record.value() or b""))
        else:
            subject.faults.append(RuntimeError(str(error)))

    number = 0
    while subject.is_sending:
        producer.produce(
            subject.topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered
        )
        number += 1
        producer.poll(PAUSE_S)
    producer.flush(LIMIT_S)


def librdkafka_reads(subject: Subject) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": subject.bootstrap,
            "group.id": subject.topic,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "log_level": 0,
        }
    )
    consumer.subscribe([subject.topic])
    while subject.is_reading:
        record = consumer.poll(0.1)
        if record is not None and record.error() is None:
            partition, _ = position_of(record)
            subject.read[partition].append(int(record.value() or b""))
    consumer.close()


def kafka_python_sends(subject: Subject) -> None:
    producer = KafkaProducer(
        bootstrap_servers=subject.bootstrap.split(","), acks="all", retries=100, linger_ms=0
    )
    number = 0
    while subject.is_sending:
        value = number
        future = producer.send(subject.topic, b"%d" % value, partition=value % PARTITIONS)
        future.add_callback(lambda _, sent=value: subject.acknowledged.append(sent))
        future.add_errback(subject.faults.append)
        number += 1
        time.sleep(PAUSE_S)
    producer.flush(LIMIT_S)
    producer.close(LIMIT_S)


def kafka_python_reads(subject: Subject) -> None:
    consumer = KafkaConsumer(
        subject.topic,
        bootstrap_servers=subject.bootstrap.split(","),
        group_id=subject.topic,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
    )
    while subject.is_reading:
        try:
            polled = consumer.poll(timeout_ms=100)
        except KafkaPythonError as error:
            if not getattr(error, "retriable", False):
                raise
            continue
        for where, records in polled.items():
            subject.read[where.partition] += [int(record.value) for record in records]
    consumer.close()


async def _aiokafka_sends(subject: Subject) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=subject.bootstrap, enable_idempotence=True, request_timeout_ms=5000
    )
    await producer.start()

    async def wait_for(sent: int, future: asyncio.Future[object]) -> None:
        try:
            await future
        except AioKafkaError as error:
            subject.faults.append(error)
        else:
            subject.acknowledged.append(sent)

    waiting = []
    number = 0
    while subject.is_sending:
        future = await producer.send(subject.topic, b"%d" % number, partition=number % PARTITIONS)
        waiting.append(asyncio.ensure_future(wait_for(number, future)))
        number += 1
        await asyncio.sleep(PAUSE_S)
    await asyncio.wait_for(asyncio.gather(*waiting), LIMIT_S)
    await producer.stop()


async def _aiokafka_reads(subject: Subject) -> None:
    consumer = AIOKafkaConsumer(
        subject.topic,
        bootstrap_servers=subject.bootstrap,
        group_id=subject.topic,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        request_timeout_ms=10000,
    )
    await consumer.start()
    while subject.is_reading:
        for where, records in (await consumer.getmany(timeout_ms=100)).items():
            subject.read[where.partition] += [int(record.value) for record in records]
    await consumer.stop()


def aiokafka_sends(subject: Subject) -> None:
    asyncio.run(_aiokafka_sends(subject))


def aiokafka_reads(subject: Subject) -> None:
    asyncio.run(_aiokafka_reads(subject))


CLIENTS: dict[str, tuple[Callable[[Subject], None], Callable[[Subject], None], bool]] = {
    "librdkafka": (librdkafka_sends, librdkafka_reads, True),
    "kafka-python": (kafka_python_sends, kafka_python_reads, False),
    "aiokafka": (aiokafka_sends, aiokafka_reads, True),
}
"""Producer and consumer of each client, and True if order survives repeats (idempotence)."""


def _guarded(work: Callable[[Subject], None], subject: Subject) -> None:
    try:
        work(subject)
    except Exception as fault:  # noqa: BLE001 - whatever ends a client early is the finding
        subject.faults.append(fault)


@pytest.fixture(params=["spindle spindle spindle", "spindle kafka spindle"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    # kafka-python assigns no partitions for five minutes if its group is complete before it has
    # read the topic's metadata; with Kafka's default delay, groups wait long enough.
    delay = {"group.initial.rebalance.delay.ms": "3000"}
    with Cluster(tmp_path, request.param.split(), overrides=QUICK_FAILOVER | delay) as running:
        yield running


def test_clients_live_through_the_loss_of_every_node(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [
        NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in CLIENTS
    ]
    for future in admin.create_topics(topics).values():
        future.result(LIMIT_S)
    subjects = [Subject(cluster.bootstrap, name, CLIENTS[name][2]) for name in CLIENTS]
    senders, readers = (
        [
            threading.Thread(target=_guarded, args=(CLIENTS[s.topic][part], s), daemon=True)
            for s in subjects
        ]
        for part in (0, 1)
    )
    cluster.wait_in_sync(list(CLIENTS))
    for thread in senders + readers:
        thread.start()
    # A client that has never seen its topic may give up, so wait until each has read.
    wait_until(
        lambda: all(subject.read for subject in subjects),
        lambda: {s.topic: (len(s.read), s.faults) for s in subjects},
        limit_s=LIMIT_S,
        pause_s=0.1,
    )
    names = [*CLIENTS, "__consumer_offsets"]
    for seat in cluster.seats:
        cluster.wait_in_sync(names)
        cluster.restart(seat, is_killed=seat != 2)
    cluster.wait_in_sync(names)
    for subject in subjects:
        subject.is_sending = False
    for thread in senders:
        thread.join(LIMIT_S)
    wait_for(
        lambda: {subject.topic: subject.missing() for subject in subjects if subject.missing()},
        not_,
        "every record is read",
        limit_s=LIMIT_S,
        pause_s=0.1,
    )
    for subject in subjects:
        subject.is_reading = False
    for thread in readers:
        thread.join(LIMIT_S)
    for subject in subjects:
        subject.check()
