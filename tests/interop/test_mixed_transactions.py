"""Transactions in clusters of Kafka and Spindle brokers, with coordinators on either kind.

The internal topics are written by one program and read by the other when a coordinator moves.
`--candidate kafka` runs the same on Kafka alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.committed_reader import committed_values, stable_end, wait_all_read
from peers.java_process import JavaProcess
from peers.java_tools import JavaTools
from peers.led_topics import assignment, create, move, wait_until_not_led_by
from peers.node import KafkaNode, Node
from peers.split_cluster import SplitCluster
from peers.steady_input import SteadyInput

pytestmark = pytest.mark.timeout(300)
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
STATE_PARTITIONS, OFFSETS_PARTITIONS = 2, 5
KAFKA, SPINDLE = 1, 2
IDS = ("a", "b")
"""Transactional ids whose hashes choose different partitions of the state."""
GROUPS = ("moved-offsets", "moved-group")
"""Groups whose hashes choose partitions that Kafka and Spindle lead at first."""


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools, candidate_class: type[Node]
) -> Iterator[SplitCluster]:
    """Start broker 1 with Kafka, 2 and 3 with Spindle; either kind leads internal partitions."""
    kinds: list[type[Node]] = [KafkaNode, candidate_class, candidate_class]
    cluster = SplitCluster(tmp_path_factory.mktemp("mixed"), java_tools, [KafkaNode], kinds)
    for broker in cluster.brokers.values():
        broker.overrides |= {
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "transaction.state.log.min.isr": "2",
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.session.timeout.ms": "6000",
        }
        broker.write_properties()
    with cluster:
        create(
            cluster, STATE, assignment(STATE_PARTITIONS, KAFKA, SPINDLE), "cleanup.policy=compact"
        )
        create(
            cluster,
            OFFSETS,
            assignment(OFFSETS_PARTITIONS, KAFKA, SPINDLE),
            "cleanup.policy=compact",
        )
        yield cluster


@pytest.mark.parametrize("script", ["outcomes", "offsets", "fencing", "restart", "timeout"])
def test_coordinators_and_leaders_of_different_kinds(
    cluster: SplitCluster, java_tools: JavaTools, script: str
) -> None:
    """One id has its coordinator on Kafka, the other on Spindle; each writes to leaders of both."""
    answers = []
    # The id is the topic's name with "-id": "0" and "1" choose different coordinators.
    for number in range(2):
        topic = f"{script}-{number}"
        create(cluster, topic, assignment(2, KAFKA, SPINDLE))
        run = java_tools.run("TransactionalClient", script, cluster.bootstrap, topic).check()
        answers.append([line.replace(topic, "<topic>") for line in run.lines])
    assert answers[0] == answers[1]
    assert len(answers[0]) >= 4


def committed_offset(cluster: SplitCluster, group: str, topic: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0,
         "isolation.level": "read_committed"}
    )  # fmt: skip
    try:
        return int(consumer.committed([TopicPartition(topic, 0)], 30)[0].offset)
    finally:
        consumer.close()


def test_open_transactions_move_with_their_coordinators(
    cluster: SplitCluster, tmp_path: Path
) -> None:
    """Before each commit or abort the leaders of all parts move: state, offsets and data."""
    topic = "moved"
    create(cluster, topic, assignment(2, KAFKA, SPINDLE))
    moves: list[tuple[bool, Callable[[], None]]] = [
        (
            is_committed,
            partial(move, cluster, tmp_path, name, count, leader),
        )
        for name, count, changes in (
            (STATE, STATE_PARTITIONS, [(True, SPINDLE), (False, KAFKA)]),
            # Kafka's offsets of an open transaction are committed, and aborted, on Spindle.
            (OFFSETS, OFFSETS_PARTITIONS, [(True, SPINDLE), (False, KAFKA), (False, SPINDLE)]),
            (topic, 2, [(True, SPINDLE), (False, KAFKA)]),
        )
        for is_committed, leader in changes
    ]
    config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    producers = [Producer({**config, "transactional.id": name}) for name in IDS]
    for producer in producers:
        producer.init_transactions(60)
    expected: list[bytes | None] = []
    offset = -1001
    for number, (is_committed, change) in enumerate(moves):
        for producer in producers:
            producer.begin_transaction()
            for partition in range(2):
                producer.produce(topic, b"%d" % number, partition=partition)
            assert producer.flush(60) == 0
        for producer, group in zip(producers, GROUPS, strict=True):
            member = Consumer({**config, "group.id": group})
            producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, number)], member.consumer_group_metadata(), 60
            )
            member.close()
        change()
        for producer in producers:
            if is_committed:
                producer.commit_transaction(60)
                expected.append(b"%d" % number)
            else:
                producer.abort_transaction(60)
        offset = number if is_committed else offset
        for group in GROUPS:
            assert committed_offset(cluster, group, topic) == offset
        for values in committed_values(cluster.bootstrap, topic, 2).values():
            assert values == expected
    # The other kind of leader shows the same.
    for leader in (SPINDLE, KAFKA):
        move(cluster, tmp_path, topic, 2, leader)
        for values in committed_values(cluster.bootstrap, topic, 2).values():
            assert values == expected


def test_open_transactions_outlive_each_kind_of_broker(cluster: SplitCluster) -> None:
    """The broker that coordinates and leads is killed; the other kind ends the transactions."""
    topic = "outlived"
    create(cluster, topic, assignment(2, KAFKA, SPINDLE))
    config = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    producers = [Producer({**config, "transactional.id": f"outlive-{name}"}) for name in IDS]
    for producer in producers:
        producer.init_transactions(60)
    expected: list[bytes | None] = []
    for number, (victim, is_committed) in enumerate(
        ((KAFKA, True), (SPINDLE, True), (KAFKA, False), (SPINDLE, False))
    ):
        for producer in producers:
            producer.begin_transaction()
            for partition in range(2):
                producer.produce(topic, b"%d" % number, partition=partition)
            assert producer.flush(60) == 0
        cluster.brokers[victim].kill()
        wait_until_not_led_by(cluster, topic, victim)
        for producer in producers:
            if is_committed:
                producer.commit_transaction(60)
                expected.append(b"%d" % number)
            else:
                producer.abort_transaction(60)
        cluster.brokers[victim].start()
        cluster.wait_healthy(topic, STATE, OFFSETS)
        for values in committed_values(cluster.bootstrap, topic, 2).values():
            assert values == expected


def test_a_copy_continues_while_its_coordinators_move(
    cluster: SplitCluster, tmp_path: Path
) -> None:
    """Two copiers with an epoch for each transaction; their coordinators are of both kinds."""
    create(cluster, "copy-in", assignment(4, KAFKA, SPINDLE))
    create(cluster, "copy-out", assignment(4, SPINDLE, KAFKA))
    words = (cluster.bootstrap, "copy-in", "copy-out", "copiers", "consumer")
    copiers = [
        JavaProcess(tmp_path / f"{name}.txt", "TransactionalCopier", *words, name, "1", "50", "0.2")
        for name in IDS
    ]
    with copiers[0], copiers[1], SteadyInput(cluster.bootstrap, "copy-in", 4) as written:
        for copier in copiers:
            copier.wait_more("copied", 3)
        for leader in (SPINDLE, KAFKA):
            move(cluster, tmp_path, STATE, STATE_PARTITIONS, leader)
            move(cluster, tmp_path, OFFSETS, OFFSETS_PARTITIONS, leader)
            move(cluster, tmp_path, "copy-out", 4, leader)
            for copier in copiers:
                copier.wait_more("copied", 2)
    with copiers[0], copiers[1]:
        wait_all_read(cluster.bootstrap, "copy-in", 4, "copiers")
    assert stable_end(cluster.bootstrap, "copy-out", 4) > 1000
    assert committed_values(cluster.bootstrap, "copy-out", 4) == written.written
