"""Steps with librdkafka that several tests share."""

from __future__ import annotations

import time
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata
from waiting import wait_for, wait_until

from peers.node import Node

LIMIT_S = 30.0
_NOTHING = TopicMetadata()
_PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.KAFKA_STORAGE_ERROR,  # its disk has just failed, and no other leader is known yet
    KafkaError._UNKNOWN_PARTITION,  # of several brokers, one does not know the topic yet
)


Value = str | int | float | bool


class Bootstrap(Protocol):
    """A node or a cluster that clients connect to."""

    @property
    def bootstrap(self) -> str: ...


def settings(nodes: Bootstrap, **config: Value) -> dict[str, Value]:
    """Return the configuration of a client; `_` in keys stands for `.`.

    The loss of a broker is not logged.
    """
    return {
        "bootstrap.servers": nodes.bootstrap,
        "log_level": 0,
        **{key.replace("_", "."): value for key, value in config.items()},
    }


def position_of(message: Message) -> tuple[int, int]:
    """Return partition and offset of a record that was read."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def create(
    node: Node, topic: str, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    """Create a topic and wait until its partitions are served.

    The metadata names a leader a moment before that leader is ready. A record with acks=0 that is
    sent meanwhile is lost, by Apache Kafka as well.
    """
    client = AdminClient(settings(node))
    client.create_topics([NewTopic(topic, partitions, config=config or {})])[topic].result(LIMIT_S)

    def partition_count() -> int:
        # Ask for all topics, because asking for one by name could create it.
        topics = client.list_topics(timeout=LIMIT_S).topics
        return len(topics.get(topic, _NOTHING).partitions)

    wait_for(
        partition_count,
        lambda count: count >= partitions,
        f"{topic} with {partitions} partitions in the metadata",
        limit_s=LIMIT_S,
        pause_s=0,
    )
    consumer = Consumer(settings(node, group_id="unused"))
    try:
        for partition in range(partitions):
            watermarks(consumer, TopicPartition(topic, partition))
    finally:
        consumer.close()


def wait_for_brokers(node: Node, count: int) -> None:
    """Wait until the metadata of this broker names so many brokers.

    librdkafka fails a request if a broker leaves the metadata, as while a cluster starts.
    """
    client = AdminClient(settings(node))
    wait_until(
        lambda: len(client.list_topics(timeout=LIMIT_S).brokers) >= count,
        f"node {node.node_id} knows {count} brokers",
        limit_s=LIMIT_S,
    )


def watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return the first and next offset of a partition, as soon as its leader serves it."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return consumer.get_watermark_offsets(place, LIMIT_S)
        except KafkaException as failure:
            if failure.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def take(consumer: Consumer, count: int, limit_s: float = LIMIT_S) -> list[Message]:
    """Return the next `count` messages of an assigned or subscribed consumer."""
    messages: list[Message] = []

    def have_come() -> bool:
        for message in consumer.consume(count - len(messages), 0.5):
            assert message.error() is None, message.error()
            messages.append(message)
        return len(messages) >= count

    if count:
        described = f"{count} messages"
        wait_until(
            have_come, lambda: f"{described}: {len(messages)} came", limit_s=limit_s, pause_s=0
        )
    return messages
