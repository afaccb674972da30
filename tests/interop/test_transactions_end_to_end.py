"""Transactions of librdkafka and of Kafka's Java producer on clusters of Spindle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from peers.java_tools import JavaTools
from waiting import wait_until

from spindle.coordinator.partitioning import partition_for
from spindle.testing import Cluster

pytestmark = pytest.mark.timeout(240)

STATE_TOPIC, STATE_PARTITIONS = "__transaction_state", 5
LIMIT_S = 30.0


@pytest.fixture(scope="module", params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    properties = {
        "transaction.state.log.num.partitions": STATE_PARTITIONS,
        "transaction.state.log.replication.factor": request.param,
        "transaction.state.log.min.isr": min(2, request.param),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
        "offsets.topic.replication.factor": request.param,
    }
    with Cluster(request.param, properties=properties) as cluster:
        yield cluster


def producer(cluster: Cluster, name: str, timeout_ms: int = 60_000) -> Producer:
    """Return an initialised producer with this transactional id."""
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    made.init_transactions(LIMIT_S)
    return made


def consumer(cluster: Cluster, group: str = "readers") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def committed_values(cluster: Cluster, topic: str, partitions: int) -> list[bytes]:
    """Return the committed records up to the last stable offset of each partition, in order."""
    reader = consumer(cluster)
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    ended: set[int | None] = set()
    while len(ended) < partitions:
        message = reader.poll(LIMIT_S)
        assert message is not None
        if message.error() is None:
            values.append(message.value() or b"")
        else:
            ended.add(message.partition())
    reader.close()
    return sorted(values)


def write(into: Producer, topic: str, *values: bytes) -> None:
    """Write each value to two partitions, and wait until they are acknowledged."""
    for value in values:
        for index in (0, 1):
            into.produce(topic, value, partition=index)
    assert into.flush(LIMIT_S) == 0


def test_only_what_was_committed_is_read(cluster: Cluster) -> None:
    cluster.create_topic("results", 2, len(cluster.brokers))
    writer = producer(cluster, "results-writer")
    for number in range(6):
        writer.begin_transaction()
        write(writer, "results", b"%d" % number)
        if number % 2:
            writer.abort_transaction(LIMIT_S)
        else:
            writer.commit_transaction(LIMIT_S)
    values = [b"0", b"0", b"2", b"2", b"4", b"4"]
    wait_until(
        lambda: committed_values(cluster, "results", 2) == values, "the last commit is not seen"
    )


def test_offsets_belong_to_the_transaction(cluster: Cluster) -> None:
    cluster.create_topic("copied", 2, len(cluster.brokers))
    reader = consumer(cluster, "copiers")
    position = [TopicPartition("copied", 0, 7)]
    writer = producer(cluster, "copier")
    for is_commit in (False, True):
        writer.begin_transaction()
        write(writer, "copied", b"value")
        writer.send_offsets_to_transaction(position, reader.consumer_group_metadata(), LIMIT_S)
        if is_commit:
            writer.commit_transaction(LIMIT_S)
        else:
            writer.abort_transaction(LIMIT_S)
            assert reader.committed(position, LIMIT_S)[0].offset < 0
    wait_until(lambda: reader.committed(position, LIMIT_S)[0].offset == 7, "the offset is not seen")
    reader.close()


def test_a_second_producer_fences_the_first(cluster: Cluster) -> None:
    cluster.create_topic("fenced", 2, len(cluster.brokers))
    first = producer(cluster, "twice")
    first.begin_transaction()
    write(first, "fenced", b"of the first")
    second = producer(cluster, "twice")
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(LIMIT_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    write(second, "fenced", b"of the second")
    second.commit_transaction(LIMIT_S)
    values = [b"of the second"] * 2
    wait_until(lambda: committed_values(cluster, "fenced", 2) == values, "the commit is not seen")


def test_an_old_transaction_is_aborted(cluster: Cluster) -> None:
    cluster.create_topic("late", 2, len(cluster.brokers))
    slow = producer(cluster, "slow", timeout_ms=1_000)
    slow.begin_transaction()
    write(slow, "late", b"too late")
    after = producer(cluster, "punctual")
    after.begin_transaction()
    write(after, "late", b"in time")
    after.commit_transaction(LIMIT_S)
    # The open transaction hides the records behind it until it is aborted.
    values = [b"in time"] * 2
    wait_until(lambda: committed_values(cluster, "late", 2) == values, "it is still open")
    with pytest.raises(KafkaException):
        slow.commit_transaction(LIMIT_S)


def test_the_java_producer_and_kafkas_tools(cluster: Cluster, java_tools: JavaTools) -> None:
    cluster.create_topic("java", 2, len(cluster.brokers))
    for _ in range(2):
        java_tools.run(
            "producer-perf", "--topic", "java", "--num-records", "20", "--record-size", "10",
            "--throughput", "-1", "--transactional-id", "java-tx",
            "--transaction-duration-ms", "10",
            "--command-property", f"bootstrap.servers={cluster.bootstrap_servers}",
        ).check()  # fmt: skip
    wait_until(lambda: len(committed_values(cluster, "java", 2)) == 40, "records are missing")
    at = partition_for("java-tx", STATE_PARTITIONS)
    node = cluster.wait_for_leader(STATE_TOPIC, at)
    folder = cluster.broker(node).disk_of(STATE_TOPIC, at).path / f"{STATE_TOPIC}-{at}"
    dumped = java_tools.run(
        "dump-log", "--transaction-log-decoder", "--files", str(next(folder.glob("*.log")))
    ).check()
    records = [line for line in dumped.stdout.splitlines() if '"java-tx"' in line]
    assert '"clientTransactionVersion":2' in records[-1]
    assert '"transactionStatus":"CompleteCommit"' in records[-1]


def test_a_new_coordinator_completes_a_commit(cluster: Cluster) -> None:
    """Too few replicas are in sync for a marker until the old coordinator is dead."""
    if len(cluster.brokers) == 1:
        pytest.skip("there is no other broker")
    cluster.create_topic("decided", 2, 3)
    name = "decider"
    writer = producer(cluster, name)
    writer.begin_transaction()
    write(writer, "decided", b"decided")
    coordinator = cluster.wait_for_leader(STATE_TOPIC, partition_for(name, STATE_PARTITIONS))
    other = next(node for node in cluster.brokers if node.node_id != coordinator)
    other.kill()
    cluster.wait_until_fenced(other.node_id)
    set_min_isr(cluster, 3)
    writer.commit_transaction(LIMIT_S)
    assert committed_values(cluster, "decided", 2) == []
    cluster.broker(coordinator).kill()
    other.start()
    # Metadata may name a dead broker as the controller until it is fenced; librdkafka waits for it.
    cluster.wait_until_fenced(coordinator)
    set_min_isr(cluster, 1)
    values = [b"decided"] * 2
    wait_until(lambda: committed_values(cluster, "decided", 2) == values, "the commit is not seen")
    cluster.broker(coordinator).start()
    writer.begin_transaction()
    write(writer, "decided", b"afterwards")
    writer.commit_transaction(LIMIT_S)


def set_min_isr(cluster: Cluster, count: int) -> None:
    resource = ConfigResource(ResourceType.TOPIC, "decided")
    resource.add_incremental_config(
        ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(LIMIT_S)
