"""kafka-python: a client written in Python with its own codec."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import KafkaError
from peers.clients import create
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair
from peers.node import Node
from peers.samples import samples_with_content, seen

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

LIMIT_S = 30.0
# The codecs for which kafka-python needs nothing beyond the standard library.
CODECS = [None, "gzip"]


def send(node: Node, topic: str, **config: object) -> list[Answer]:
    producer = KafkaProducer(bootstrap_servers=node.bootstrap, linger_ms=20, **config)
    try:
        futures = [
            producer.send(
                topic, key=one.key, value=one.value, partition=0, timestamp_ms=one.timestamp_ms,
                headers=[(name, value or b"") for name, value in one.headers],
            )
            for one in samples_with_content()
        ]  # fmt: skip
        return [
            None if config.get("acks") == 0 else future.get(LIMIT_S).offset for future in futures
        ]
    finally:
        producer.close(LIMIT_S)


def read(node: Node, topic: str, count: int) -> list[Answer]:
    consumer = KafkaConsumer(bootstrap_servers=node.bootstrap, enable_auto_commit=False)
    try:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        received: list[Answer] = []
        deadline = time.monotonic() + LIMIT_S
        while len(received) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                received += [
                    [one.offset, *seen(one.key, one.value, one.headers, one.timestamp)]
                    for one in records
                ]
        return received
    finally:
        consumer.close()


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    pair: Pair, codec: str | None, acks: str | int
) -> None:
    topic = f"kp-{codec}-{acks}"
    config = {"compression_type": codec, "acks": acks, "enable_idempotence": acks == "all"}

    def script(node: Node) -> Answer:
        create(node, topic)
        return [send(node, topic, **config), read(node, topic, len(samples_with_content()))]

    _, records = pair.compare(script)
    assert [record[0] for record in records] == list(range(len(samples_with_content())))


def test_groups_and_offsets_by_time(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "kp-group", 1)
        send(node, "kp-group")
        answers: list[Answer] = []
        for _ in range(2):
            consumer = KafkaConsumer(
                "kp-group", bootstrap_servers=node.bootstrap, group_id="kp-members",
                auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=20,
            )  # fmt: skip
            try:
                got: list[int] = []
                deadline = time.monotonic() + LIMIT_S
                while len(got) < 20 and time.monotonic() < deadline:
                    for records in consumer.poll(timeout_ms=500).values():
                        got += [one.offset for one in records]
                consumer.commit()
                place = TopicPartition("kp-group", 0)
                times = consumer.offsets_for_times({place: FIRST_TIMESTAMP_MS + 9_000})
                answers += [got, times[place], consumer.committed(place)]
                answers.append([consumer.beginning_offsets([place]), consumer.end_offsets([place])])
            finally:
                consumer.close()
        return repr(answers)

    assert "39" in pair.compare(script)


def test_administration(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
        try:
            answers: list[Answer] = []
            steps: list[Callable[[], object]] = [
                lambda: admin.create_topics([NewTopic("kp-admin", 2, 1)]),
                lambda: admin.create_topics([NewTopic("kp-admin", 2, 1)]),
                lambda: admin.create_partitions({"kp-admin": NewPartitions(total_count=3)}),
                lambda: admin.delete_topics(["kp-admin"]),
                lambda: admin.delete_topics(["kp-admin"]),
            ]
            for step in steps:
                try:
                    step()
                    answers.append("done")
                except KafkaError as failure:
                    answers.append(type(failure).__name__)
            return answers
        finally:
            admin.close()

    answers = pair.compare(script)
    assert answers[:2] == ["done", "TopicAlreadyExistsError"]
