"""Dead-letter queues of share groups (KIP-1191): Kafka and Spindle write the same dead letters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import test_share_consumers
from confluent_kafka import AcknowledgeType, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from peers import clients
from peers.compare import Answer, Pair
from peers.node import Node
from test_share_consumers import LIMIT_S, deliver, prepare, send, worker

pytestmark = pytest.mark.full

NODE_OVERRIDES = {
    **test_share_consumers.NODE_OVERRIDES,
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "num.partitions": "2",
}
RELEASE, REJECT = AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def alter(node: Node, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(LIMIT_S)


def use(node: Node, group: str, topic: str, *, copy: bool = False) -> None:
    """Set the dead-letter topic of a group."""
    settings = {
        "errors.deadletterqueue.topic.name": topic,
        "errors.deadletterqueue.copy.record.enable": str(copy).lower(),
    }
    alter(node, ResourceType.GROUP, group, settings)


def letters(node: Node, topic: str, count: int) -> Answer:
    """Return partition, key, value and headers of the dead letters, in the order of offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": "500",
            "allow.auto.create.topics": "false",
        }
    )
    consumer.subscribe([topic])
    seen: list[Answer] = []
    deadline_s = time.monotonic() + LIMIT_S
    try:
        while len(seen) < count and time.monotonic() < deadline_s:
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue
            named: Any = message.headers() or ()
            headers = [[name, value.decode()] for name, value in named]
            seen.append([message.partition(), message.key(), message.value(), headers])
    finally:
        consumer.close()
    return sorted(seen, key=str)


def test_rejected_records_get_dead_letters_in_a_topic_that_is_created(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "rejecting", count=3)
        use(node, "rejecting", "dlq.rejecting")
        with worker(node, "rejecting") as member:
            rejected = deliver(member, 3, REJECT)
            written = letters(node, "dlq.rejecting", 3)
            send(node, "rejecting", 1)
            next_one = deliver(member, 1)
        topic = ConfigResource(ResourceType.TOPIC, "dlq.rejecting")
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        (described,) = [f.result(LIMIT_S) for f in admin.describe_configs([topic]).values()]
        names = ("errors.deadletterqueue.group.enable", "message.timestamp.type")
        partitions = admin.list_topics("dlq.rejecting", LIMIT_S).topics["dlq.rejecting"].partitions
        return [
            rejected,
            written,
            next_one,
            [described[name].value for name in names],
            len(partitions),
        ]

    answer = pair.compare(script)
    assert len(answer[1]) == 3
    assert answer[1][0][:3] == [0, None, None]
    assert answer[1][0][3][-1] == ["__dlq.errors.message", "Offset rejected by client."]
    assert answer[3:] == [["true", "CreateTime"], 2]


def test_records_that_are_delivered_too_often_get_dead_letters_with_key_and_value(
    pair: Pair,
) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "failing", count=0, delivery_count_limit="2")
        use(node, "failing", "dlq.failing", copy=True)
        producer = Producer({"bootstrap.servers": node.bootstrap, "compression.type": "gzip"})
        for number in range(3):
            producer.produce("failing", key=f"k{number}", value="v", headers={"own": b"h"})
        assert producer.flush(LIMIT_S) == 0
        with worker(node, "failing") as member:
            deliver(member, 6, RELEASE)
            return letters(node, "dlq.failing", 3)

    answer = pair.compare(script)
    assert [letter[1:3] for letter in answer] == [[b"k%d" % n, b"v"] for n in range(3)]
    reasons = {letter[3][-1][1] for letter in answer}
    assert reasons == {"Offset delivery count exceeded the threshold."}


def test_locks_that_expire_for_the_last_time_make_dead_letters(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "locked", 1, delivery_count_limit="2", record_lock_duration_ms="1000")
        use(node, "locked", "dlq.locked", copy=True)
        with worker(node, "locked") as first, worker(node, "locked") as second:
            for silent in (first, second):
                while not silent.poll(1):
                    pass
            return letters(node, "dlq.locked", 1)

    assert len(pair.compare(script)) == 1


def test_the_console_share_consumer_rejects_into_the_dead_letter_topic(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "console", count=2)
        use(node, "console", "dlq.console", copy=True)
        pair.java_tools.run(
            "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
            *("--bootstrap-server", node.bootstrap, "--topic", "console", "--group", "console"),
            *("--reject", "--max-messages", "2", "--timeout-ms", "30000"),
        )
        return letters(node, "dlq.console", 2)

    answer = pair.compare(script)
    assert [letter[2] for letter in answer] == [b"0", b"1"]


@pytest.mark.parametrize(
    ("group", "topic", "is_enabled"),
    [
        ("named", "orders-without-prefix", "true"),
        ("closed", "dlq.not-for-letters", "false"),
    ],
)
def test_a_topic_that_is_not_meant_for_dead_letters_gets_none(
    pair: Pair, group: str, topic: str, is_enabled: str
) -> None:
    def script(node: Node) -> Answer:
        prepare(node, group, count=2)
        clients.create(node, topic, 1, {"errors.deadletterqueue.group.enable": is_enabled})
        use(node, group, topic)
        with worker(node, group) as member:
            deliver(member, 2, REJECT)
            send(node, group, 1)
            last = deliver(member, 1)
        consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "ends"})
        try:
            return [last, list(consumer.get_watermark_offsets(TopicPartition(topic, 0), LIMIT_S))]
        finally:
            consumer.close()

    assert pair.compare(script) == [[[2, 1]], [0, 0]]
