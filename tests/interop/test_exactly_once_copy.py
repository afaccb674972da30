"""A topic is copied in transactions while copiers and brokers are killed: the copy is the input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from peers.cluster import QUICK_FAILOVER, Cluster
from peers.committed_reader import committed_values, wait_all_read
from peers.java_process import JavaProcess
from peers.node import KafkaNode, Node
from peers.steady_input import SteadyInput

pytestmark = pytest.mark.timeout(300)
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, candidate_class: type[Node]
) -> Iterator[Cluster]:
    """Run three nodes that keep three replicas of everything."""
    overrides = {
        **QUICK_FAILOVER,
        "min.insync.replicas": "2",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    program = "kafka" if candidate_class is KafkaNode else "spindle"
    with Cluster(tmp_path_factory.mktemp("copy"), [program] * 3, overrides) as cluster:
        yield cluster


def create(cluster: Cluster, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(t, PARTITIONS, 3) for t in topics]).values():
        future.result(30)
    cluster.wait_in_sync(topics)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_copy_is_the_input(cluster: Cluster, tmp_path: Path, protocol: str) -> None:
    source, target, group = f"in-{protocol}", f"out-{protocol}", f"copiers-{protocol}"
    create(cluster, source, target)
    words = (cluster.bootstrap, source, target, group, protocol)
    copiers = [
        JavaProcess(
            tmp_path / f"copier{number}.txt",
            "TransactionalCopier",
            *words,
            f"{protocol}-{number}",
            str(number),
            "50",
            "0.2",
        )
        for number in (1, 2)
    ]
    with copiers[0], copiers[1], SteadyInput(cluster.bootstrap, source, PARTITIONS) as written:
        for copier in copiers:
            copier.wait_more("copied", 5)
        for seat, number in ((1, 0), (2, 1)):
            copiers[number].restart()
            copiers[1 - number].wait_more("copied", 2)
            cluster.restart(seat, is_killed=True)
            for one in copiers:
                one.wait_more("copied", 2)
            cluster.wait_in_sync([source, target])
    with copiers[0], copiers[1]:
        wait_all_read(cluster.bootstrap, source, PARTITIONS, group)
    copied = committed_values(cluster.bootstrap, target, PARTITIONS)
    assert sum(map(len, copied.values())) > 1000
    for partition in range(PARTITIONS):
        assert copied[partition] == written.written[partition], f"partition {partition}"


def test_an_aborted_transaction_is_no_part_of_the_copy(cluster: Cluster) -> None:
    """The check itself: a record twice, or one too many, would be seen."""
    create(cluster, "seen")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "seen"})
    producer.init_transactions(30)
    for value, is_committed in ((b"once", True), (b"never", False), (b"once", True)):
        producer.begin_transaction()
        producer.produce("seen", value, partition=0)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    assert committed_values(cluster.bootstrap, "seen", PARTITIONS)[0] == [b"once", b"once"]
