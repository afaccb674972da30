"""Small steps with librdkafka that several tests share."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient, NewTopic

from peers.node import Node

LIMIT_S = 30.0


def settings(node: Node, **config: object) -> dict[str, object]:
    """Configuration of a client of `node`; `_` stands for `.`. A node that stops is not news."""
    return {
        "bootstrap.servers": node.bootstrap,
        "log_level": 0,
        **{key.replace("_", "."): value for key, value in config.items()},
    }


def create(
    node: Node, topic: str, partitions: int = 1, config: dict[str, str] | None = None
) -> None:
    """Create a topic and wait until its partitions have leaders in the broker's metadata."""
    client = AdminClient(settings(node))
    client.create_topics([NewTopic(topic, partitions, config=config or {})])[topic].result(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        # Asking for all topics: asking for one by name could create it.
        found = client.list_topics(timeout=LIMIT_S).topics.get(topic)
        if found is not None and len(found.partitions) == partitions:
            return
    raise AssertionError(f"{topic} did not appear in the metadata")


def take(consumer: Consumer, count: int, limit_s: float = LIMIT_S) -> list[Message]:
    """The next `count` messages of an assigned or subscribed consumer."""
    messages: list[Message] = []
    deadline = time.monotonic() + limit_s
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), 0.5):
            assert message.error() is None, message.error()
            messages.append(message)
    assert len(messages) == count, f"{len(messages)} of {count} messages came"
    return messages
