"""A disk that dies under load, cordons, and a start with a dead disk.

The disks are ext4 file systems on loop devices that are shut down (`peers.failing_disk`).
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from peers.clients import settings
from peers.failing_disk import FailingDisk, why_no_failing_disks
from peers.node import Node

from benchmarks.cluster_items import KAFKA_JVM as KAFKA_JVM_OF_THREE
from benchmarks.clusters import Cluster
from benchmarks.items import (
    GIB,
    KAFKA_JVM,
    LIMIT_S,
    NODE_OF_THREE_DIRECTORIES,
    OVERRIDES,
    Item,
    Metric,
    Metrics,
    Sizes,
    Skipped,
    Subject,
    one_record_each,
    wait_for_leaders,
    wait_for_metadata,
)
from spindle.client.blocking.settings import ClientSettings, HostPort
from spindle.client.blocking.transport import BlockingConnection
from spindle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse

VICTIM = 2
LED, FOLLOWED, UNTOUCHED = "led", "followed", "untouched"
PLACES = [(topic, number) for topic in (LED, FOLLOWED, UNTOUCHED) for number in range(2)]
CORDON = "cordoned.log.dirs"
CORDONS = 10
_PAUSE_S = 0.005
_CALM_S = 5.0
_STALL_LIMIT_S = 120.0


class ClusterOnDisks(Cluster):
    """Three nodes; the second log directory of node 2 is a disk that can be made to fail."""

    def __init__(self, node_class: type[Node], folder: Path) -> None:
        self.disk = _disk(folder / "disk")
        super().__init__(
            node_class,
            folder,
            3,
            overrides={**OVERRIDES, "min.insync.replicas": "2"},
            jvm_options=KAFKA_JVM_OF_THREE,
            disks={VICTIM: self.disk.path},
        )

    def remove(self) -> None:
        super().remove()
        self.disk.remove()


class NodeOnDisks:
    """A node of three log directories, the last of which is a disk that can be made to fail."""

    def __init__(self, node_class: type[Node], folder: Path) -> None:
        self.disk = _disk(folder / "disk")
        paths = [folder / "d1", folder / "d2", self.disk.path]
        self.kind = node_class.kind
        self.node = node_class(
            folder, log_dirs=paths, overrides=dict(OVERRIDES), jvm_options=KAFKA_JVM
        )

    def remove(self) -> None:
        self.node.remove()
        self.disk.remove()


def _disk(folder: Path) -> FailingDisk:
    if why_no_failing_disks():
        raise Skipped(why_no_failing_disks())
    return FailingDisk(folder, 2 * GIB)


class Traffic:
    """Sends to every partition every 5 ms, as one idempotent producer."""

    def __init__(self, cluster: Cluster) -> None:
        self._producer = Producer(
            settings(cluster, enable_idempotence=True, linger_ms=2)
            | {"message.timeout.ms": 300_000}
        )
        self.acknowledged_s: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.failures: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._is_over.is_set():
            for topic, partition in PLACES:
                self._producer.produce(
                    topic, bytes(200), partition=partition, on_delivery=self._delivered
                )
            self._producer.poll(_PAUSE_S)

    def _delivered(self, error: object, message: Message) -> None:
        topic, partition = message.topic(), message.partition()
        if error is not None or topic is None or partition is None:
            self.failures.append(str(error))
            return
        self.acknowledged_s[topic, partition].append(time.perf_counter())

    def wait_until_flowing(self, since_s: float) -> None:
        """Return when every partition has been acknowledged all the time for a while."""
        deadline = since_s + _STALL_LIMIT_S
        while (now := time.perf_counter()) < deadline:
            recent = [
                [value for value in self.acknowledged_s[place][-5000:] if value > now - _CALM_S]
                for place in PLACES
            ]
            if now > since_s + _CALM_S and all(
                times and longest_gap_s(times, now - _CALM_S, now) < 1.0 for times in recent
            ):
                return
            time.sleep(0.1)
        raise RuntimeError(f"after {_STALL_LIMIT_S:.0f} s not every partition is written again")

    def finish(self) -> None:
        """Stop, and wait for the last acknowledgements."""
        self._is_over.set()
        self._thread.join()
        if self._producer.flush(LIMIT_S) or self.failures:
            raise RuntimeError(f"records were not acknowledged: {self.failures[:3]}")

    def gap_s(self, topic: str, begin_s: float, end_s: float) -> float:
        """Return the longest time without an acknowledgement on a partition of the topic."""
        return max(
            longest_gap_s(self.acknowledged_s[place], begin_s, end_s)
            for place in PLACES
            if place[0] == topic
        )


def longest_gap_s(times_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """Return the longest time between two neighbours, the ends of the interval included."""
    inside = [begin_s, *(value for value in times_s if begin_s < value < end_s), end_s]
    return max(later - earlier for earlier, later in pairwise(inside))


def directory_failure(cluster: ClusterOnDisks, _: Sizes) -> Metrics:
    """Shut the file system of a directory down under a producer with acks=all.

    `led` has its leader on that directory, `followed` a follower, and `untouched` lies on the other
    directory of the same broker.
    """
    with cluster:
        victim = cluster.node(VICTIM)
        _cordon(cluster, VICTIM, str(victim.log_dirs[0]))
        _create(cluster, LED, [2, 1, 3])
        _create(cluster, FOLLOWED, [1, 2, 3])
        _cordon(cluster, VICTIM, str(victim.log_dirs[1]))
        _create(cluster, UNTOUCHED, [2, 3, 1])
        held = {path.name for path in cluster.disk.path.glob("*-[01]")}
        if held != {f"{topic}-{n}" for topic in (LED, FOLLOWED) for n in range(2)}:
            raise RuntimeError(f"the disk holds {sorted(held)}")
        traffic = Traffic(cluster)
        try:
            time.sleep(_CALM_S)
            begin_s = time.perf_counter()
            before_s = max(
                traffic.gap_s(topic, begin_s - _CALM_S / 2, begin_s)
                for topic in (LED, FOLLOWED, UNTOUCHED)
            )
            cluster.disk.fail()
            _wait_until_left(cluster)
            elected_s = time.perf_counter() - begin_s
            traffic.wait_until_flowing(begin_s)
            end_s = time.perf_counter()
        finally:
            traffic.finish()
        _check_nothing_is_lost(cluster, traffic)
        return {
            "elected": elected_s,
            "before": before_s,
            **{topic: traffic.gap_s(topic, begin_s, end_s) for topic in (LED, FOLLOWED, UNTOUCHED)},
        }


def _cordon(nodes: Node | Cluster, broker: int, value: str | None) -> None:
    operation = AlterConfigOpType.SET if value is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry(CORDON, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    admin = AdminClient(settings(nodes))
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_S)
    # The broker has the value when it answers; the controller hears of it with a heartbeat.


def _create(cluster: Cluster, topic: str, brokers: list[int]) -> None:
    admin = AdminClient(settings(cluster))
    new = NewTopic(topic, 2, replica_assignment=[brokers, brokers])
    admin.create_topics([new])[topic].result(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    # The controller has the replicas before the brokers have made their logs.
    while len([path for node in cluster.nodes for path in _logs(node, topic)]) < 6:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} is not on all brokers")
        time.sleep(0.05)


def _logs(node: Node, topic: str) -> list[Path]:
    return [path for directory in node.log_dirs for path in directory.glob(f"{topic}-[01]")]


def _wait_until_left(cluster: Cluster) -> None:
    """Wait until the metadata of every broker has other leaders, and ISRs without the victim."""
    deadline = time.monotonic() + LIMIT_S
    for node in cluster.nodes:
        with _connected(node) as connection:
            while not _is_left(connection):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"node {node.node_id} does not hear of the dead directory")
                time.sleep(_PAUSE_S)


def _is_left(connection: BlockingConnection) -> bool:
    answer = connection.request(MetadataRequest(topics=None), MetadataResponse)
    return all(
        partition.leader_id not in (-1, VICTIM) and VICTIM not in partition.isr_nodes
        for topic in answer.topics
        if topic.name in (LED, FOLLOWED)
        for partition in topic.partitions
    )


@contextmanager
def _connected(node: Node) -> Iterator[BlockingConnection]:
    connection = BlockingConnection.open(HostPort("127.0.0.1", node.port), ClientSettings(()))
    try:
        yield connection
    finally:
        connection.close()


def _check_nothing_is_lost(cluster: Cluster, traffic: Traffic) -> None:
    consumer = Consumer(settings(cluster, group_id="check"))
    try:
        for place in PLACES:
            low, high = consumer.get_watermark_offsets(TopicPartition(*place), LIMIT_S)
            if high - low != len(traffic.acknowledged_s[place]):
                raise RuntimeError(
                    f"{place}: {len(traffic.acknowledged_s[place])} records were acknowledged, "
                    f"{high - low} are there"
                )
    finally:
        consumer.close()


def cordon(node: Node, _: Sizes) -> Metrics:
    """Cordon all directories of a node and uncordon them, ten times.

    `shown`: DescribeLogDirs says so. `refused`: the controller refuses a new topic. `accepted`: it
    accepts one again.
    """
    node.format()
    node.start()
    wait_for_metadata(node)
    admin = AdminClient(settings(node))
    times: dict[str, list[float]] = defaultdict(list)
    with _connected(node) as connection:
        for number in range(CORDONS + 2):
            begin_s = time.perf_counter()
            _cordon(node, node.node_id, "*")
            shown_s = _seconds_until(begin_s, lambda: _shows_cordons(connection))
            refused_s = _seconds_until(begin_s, lambda: not _places(admin))
            begin_s = time.perf_counter()
            _cordon(node, node.node_id, None)
            accepted_s = _seconds_until(begin_s, lambda: _places(admin))
            if number < 2:  # a JVM has to warm up
                continue
            times["shown"].append(1000 * shown_s)
            times["refused"].append(1000 * refused_s)
            times["accepted"].append(1000 * accepted_s)
    return {name: statistics.median(values) for name, values in times.items()}


def _seconds_until(begin_s: float, is_so: object) -> float:
    assert callable(is_so)
    while not is_so():
        if time.perf_counter() > begin_s + LIMIT_S:
            raise RuntimeError("the cordon has no effect")
        time.sleep(0.001)
    return time.perf_counter() - begin_s


def _shows_cordons(connection: BlockingConnection) -> bool:
    answer = connection.request(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    return all(result.is_cordoned for result in answer.results)


def _places(admin: AdminClient) -> bool:
    """Return True if the controller would create a topic now."""
    created = admin.create_topics([NewTopic("not-made", 1, 1)], validate_only=True)
    return created["not-made"].exception(LIMIT_S) is None


def restart_without_a_disk(subject: NodeOnDisks, sizes: Sizes) -> Metrics:
    """Stop a node, let a disk die, and start the node until it leads all other partitions."""
    node = subject.node
    node.format()
    node.start()
    wanted = sizes.restart_partitions
    names = [f"restart-{number}" for number in range(wanted // 10)]
    admin = AdminClient(settings(node))
    futures = admin.create_topics([NewTopic(name, 10) for name in names], operation_timeout=60)
    for future in futures.values():
        future.result(LIMIT_S)
    wait_for_leaders(node, wanted, "restart-")
    one_record_each(node, names)
    left = sum(len(list(path.glob("restart-*"))) for path in node.log_dirs[:2])
    node.stop()
    subject.disk.fail()
    begin_s = time.perf_counter()
    node.start(wait=False)
    wait_for_metadata(node)
    wait_for_leaders(node, left, "restart-")
    return {"time": time.perf_counter() - begin_s, "cpu": node.cpu_s()}


DISK_ITEMS: tuple[Item, ...] = (
    Item(
        "directory-failure",
        directory_failure,
        (
            Metric("elected", "s until all brokers know the new leaders", False, 1.0),
            Metric(LED, "s without ack, led from the dead disk", False, 1.0),
            Metric(FOLLOWED, "s without ack, followed on the dead disk", False, 1 / 30),
            Metric(UNTOUCHED, "s without ack, untouched", False, 1.0),
            Metric("before", "s without ack before the failure", False),
        ),
        Subject("three nodes on disks", ClusterOnDisks),
    ),
    Item(
        "cordon",
        cordon,
        (
            Metric("shown", "ms until DescribeLogDirs shows it", False, 1.0),
            Metric("refused", "ms until no replica is placed", False, 1.0),
            Metric("accepted", "ms until replicas are placed again", False, 1.0),
        ),
        NODE_OF_THREE_DIRECTORIES,
    ),
    Item(
        "restart-with-a-dead-disk",
        restart_without_a_disk,
        (
            Metric("time", "s until all others are led", False, 0.25),
            Metric("cpu", "CPU-s until then", False),
        ),
        Subject("node on disks", NodeOnDisks),
    ),
)
