"""A broker that has lost the only copy of records, under either program's controller.

Apache Kafka 4.3.1 creates the log again, empty, and elects it; the other replica deletes its
records.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from peers.clients import settings
from peers.node import KafkaNode, Node, SpindleNode, random_uuid
from waiting import wait_for

pytestmark = pytest.mark.timeout(240)

LIMIT_S = 60.0
OWNER, OTHER = 2, 3
OVERRIDES = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(params=[SpindleNode, KafkaNode], ids=["spindle", "kafka"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[int, Node]]:
    """Yield controller 1 and the brokers 2 and 3."""
    kinds: list[tuple[int, type[Node], str]] = [
        (1, request.param, "controller"),
        (OWNER, SpindleNode, "broker"),
        (OTHER, SpindleNode, "broker"),
    ]
    cluster_id = random_uuid()
    started: dict[int, Node] = {
        number: kind(
            tmp_path / f"n{number}",
            directory_count=2,
            cluster_id=cluster_id,
            node_id=number,
            roles=(role,),
            overrides=dict(OVERRIDES),
        )
        for number, kind, role in kinds
    }
    try:
        for node in started.values():
            node.voters = (started[1],)
            node.write_properties()
            node.format()
            node.start(wait=False)
        yield started
    finally:
        for node in started.values():
            node.remove()


def until_each_knows_both(*nodes: Node) -> None:
    """Wait for the metadata of each broker: librdkafka drops a broker that an answer lacks."""
    for node in nodes:
        wait_for(partial(topics_of, node), lambda topics: len(topics.brokers) == 2)


def topics_of(node: Node) -> Any:
    """Return the metadata of a broker, by a client that knows no other."""
    return AdminClient(settings(node)).list_topics(timeout=LIMIT_S)


def produce(node: Node, count: int) -> None:
    producer = Producer(settings(node, acks="all"))
    for number in range(count):
        producer.produce("t", b"%d" % number)
    assert producer.flush(LIMIT_S) == 0


def test_the_other_replica_keeps_its_records(nodes: dict[int, Node]) -> None:
    owner, other = nodes[OWNER], nodes[OTHER]
    for node in (owner, other):
        node.wait_ready()
    until_each_knows_both(owner, other)
    admin = AdminClient(settings(owner))
    topic = NewTopic("t", 1, replica_assignment=[[OWNER, OTHER]])
    admin.create_topics([topic])["t"].result(LIMIT_S)
    produce(owner, 10)
    assert other.stop() in (0, 143)
    produce(owner, 10)
    assert owner.stop() in (0, 143)
    (disk,) = [directory for directory in owner.log_dirs if (directory / "t-0").exists()]
    shutil.rmtree(disk)
    owner.format("--ignore-formatted")
    owner.start()
    other.start()

    until_each_knows_both(owner, other)
    admin = AdminClient(settings(other))
    assert "t-0 stays offline: its log was in directory" in owner.output()
    place = TopicPartition("t", 0)
    elected = admin.elect_leaders(ElectionType.UNCLEAN, [place]).result(LIMIT_S)
    assert elected[place] is None, elected
    # The controller has answered; the brokers learn of the new leader a moment later.
    for node in (owner, other):
        wait_for(
            partial(topics_of, node),
            lambda known: known.topics["t"].partitions[0].leader == OTHER,
        )
    consumer = Consumer(settings(other, group_id="reader"))
    try:
        assert consumer.get_watermark_offsets(place, LIMIT_S) == (0, 10)
    finally:
        consumer.close()
