"""Brokers of Kafka and of Spindle that replicate from each other, under Kafka's controller.

All replicas of a partition hold the same bytes, with either program as leader or follower.
`--candidate kafka` runs the same on Kafka alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from peers.java_tools import JavaTools
from peers.node import KafkaNode, Node
from peers.split_cluster import Partition, SplitCluster
from peers.verified_traffic import VerifiedTraffic
from waiting import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools, candidate_class: type[Node]
) -> Iterator[SplitCluster]:
    """Start broker 1 with Kafka, 2 and 3 with Spindle."""
    folder = tmp_path_factory.mktemp("replicas")
    kinds: list[type[Node]] = [KafkaNode, candidate_class, candidate_class]
    with SplitCluster(folder, java_tools, [KafkaNode], kinds) as cluster:
        yield cluster


def create(cluster: SplitCluster, topic: str, assignment: str, *configs: str) -> None:
    words = [word for config in configs for word in ("--config", config)]
    cluster.run(
        "topics", "--create", "--topic", topic, "--replica-assignment", assignment, *words
    ).check()
    cluster.wait_healthy(topic)


def produce(
    cluster: SplitCluster, topic: str, values: Sequence[bytes], codec: str = "none", to: int = 0
) -> None:
    """Send one batch and wait until all replicas have it."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, "compression.type": codec}
    )
    for value in values:
        producer.produce(topic, value, b"key", to)
    assert producer.flush(30) == 0


def segments(node: Node, topic: str, partition: int) -> bytes:
    folders = [path / f"{topic}-{partition}" for path in node.log_dirs]
    files = sorted(file for folder in folders for file in folder.glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


def assert_same_bytes(
    cluster: SplitCluster, topic: str, partition: int, *brokers: int, may_be_empty: bool = False
) -> None:
    """Assert that all replicas have the same bytes; wait for followers that are a fetch behind."""

    def copies() -> list[bytes]:
        return [segments(cluster.brokers[b], topic, partition) for b in brokers]

    wait_until(
        lambda: len(seen := set(copies())) == 1 and (may_be_empty or b"" not in seen),
        lambda: f"the same bytes on all brokers: {list(map(len, copies()))}",
        limit_s=20,
    )


def is_led_without(broker: str, partition: Partition) -> bool:
    return partition.leader not in (broker, "none") and broker not in partition.isr


def test_each_program_leads_and_follows_through_kills(
    cluster: SplitCluster, tmp_path: Path
) -> None:
    create(cluster, "kept", "1:2:3,2:3:1,3:1:2", "min.insync.replicas=2")
    with VerifiedTraffic(tmp_path, cluster.bootstrap, "kept") as traffic:
        for number, broker in cluster.brokers.items():
            broker.kill()
            cluster.wait_for("kept", partial(is_led_without, str(number)), f"without {number}")
            broker.start()
            cluster.wait_healthy("kept")
    assert traffic.check() > 1000
    for partition in range(3):
        # The producer chooses the partitions and may have used only one.
        assert_same_bytes(cluster, "kept", partition, 1, 2, 3, may_be_empty=True)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_stay_as_the_leader_has_them(cluster: SplitCluster, codec: str) -> None:
    topic = f"codec-{codec}"
    create(cluster, topic, "1:2:3,2:1:3")
    for partition in range(2):
        produce(cluster, topic, [b"abc" * 100] * 50, codec, partition)
        assert_same_bytes(cluster, topic, partition, 1, 2, 3)


@pytest.mark.parametrize(("leader", "follower"), [(1, 2), (2, 1)])
def test_a_new_replica_begins_where_records_were_deleted(
    cluster: SplitCluster, tmp_path: Path, leader: int, follower: int
) -> None:
    """The log start is in the middle of a batch: the follower has to take the batch whole."""
    topic = f"deleted-{leader}"
    create(cluster, topic, str(leader))
    produce(cluster, topic, [b"value"] * 10)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 5}]})
    )
    cluster.run("delete-records", "--offset-json-file", str(plan)).check()
    replicas = {"topic": topic, "partition": 0, "replicas": [leader, follower]}
    plan.write_text(json.dumps({"version": 1, "partitions": [replicas]}))
    words = ("--reassignment-json-file", str(plan), "--execute")
    cluster.run("reassign-partitions", *words).check()
    wanted = f"{leader},{follower}"
    cluster.wait_for(topic, lambda p: p.replicas == wanted and p.is_healthy, "on both")
    assert_same_bytes(cluster, topic, 0, leader, follower)
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{**replicas, "replicas": [follower]}]})
    )
    cluster.run("reassign-partitions", *words).check()
    cluster.wait_for(topic, lambda p: p.replicas == str(follower) and p.is_healthy, "moved")
    offsets = cluster.run("get-offsets", "--topic", topic, "--time", "earliest").check()
    assert offsets.lines == [f"{topic}:0:5"]


def committed_values(cluster: SplitCluster, topic: str) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    values = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while (record := consumer.poll(30)) is not None and record.error() is None:
            values.append(record.value())
    finally:
        consumer.close()
    assert record is not None
    error = record.error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF
    return values


def test_a_follower_of_transactions_can_lead_their_readers(cluster: SplitCluster) -> None:
    create(cluster, "__transaction_state", "1,1")
    create(cluster, "transactions", "1:2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for value, is_committed in ((b"1", True), (b"2", False), (b"3", True)):
        producer.begin_transaction()
        producer.produce("transactions", value, partition=0)
        if is_committed:
            producer.commit_transaction(30)
        else:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
    assert_same_bytes(cluster, "transactions", 0, 1, 2)
    cluster.brokers[1].stop()
    cluster.wait_for("transactions", lambda p: p.leader == "2", "led by 2")
    assert committed_values(cluster, "transactions") == [b"1", b"3"]
    cluster.brokers[1].start()
    cluster.wait_healthy("transactions")


def test_a_tail_that_only_the_old_leader_had_is_cut_off(cluster: SplitCluster) -> None:
    """A Spindle broker leads alone with records of its own; then Kafka leads without them."""
    create(cluster, "cut", "2:1", "unclean.leader.election.enable=true")
    produce(cluster, "cut", [b"kept"] * 3)
    one, two = cluster.brokers[1], cluster.brokers[2]
    one.kill()
    cluster.wait_for("cut", lambda p: p.isr == "2", "led by 2 alone")
    produce(cluster, "cut", [b"lost"] * 5)
    two.kill()
    one.start()
    cluster.wait_for("cut", lambda p: p.leader == "1", "led by 1")
    produce(cluster, "cut", [b"new"] * 2)
    two.start()
    cluster.wait_healthy("cut")
    assert_same_bytes(cluster, "cut", 0, 1, 2)
    assert b"lost" not in segments(two, "cut", 0)
