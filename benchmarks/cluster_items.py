"""The measurements on several nodes.

Items about controllers use brokers without logs (`registrar`), so logs and replication have no part
in their figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from peers.clients import settings
from peers.node import Node

from benchmarks.clusters import COMBINED, CONTROLLER, Cluster, begin_stop, wait_until_idle
from benchmarks.items import (
    CONSUME_METRICS,
    MIB,
    OVERRIDES,
    Item,
    Metric,
    Metrics,
    Sizes,
    Subject,
    consume,
    one_in_flight,
    produce,
)
from benchmarks.memory import live_bytes
from benchmarks.registrar import (
    LIMIT_S,
    PARTITIONS_PER_TOPIC,
    TOPIC,
    Controllers,
    registered_brokers,
)
from spindle.client.blocking.settings import ClientSettings, HostPort
from spindle.client.blocking.transport import BlockingConnection
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse

NODES = 3
IMAGE_PARTITIONS = (10_000, 100_000)
SNAPSHOT_LIMIT_S = 15.0
REPLICATED_PARTITIONS = (1_000, 10_000)
# The options of Kafka's own scripts, with half of their heap, because there are three nodes.
KAFKA_JVM = ("-Xms512m", "-Xmx512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


def _combined(node_class: type[Node], folder: Path) -> Cluster:
    return Cluster(
        node_class, folder, NODES, COMBINED, overrides=dict(OVERRIDES), jvm_options=KAFKA_JVM
    )


def _controllers(node_class: type[Node], folder: Path) -> Cluster:
    return Cluster(node_class, folder, NODES, CONTROLLER, jvm_options=KAFKA_JVM)


def _controller(node_class: type[Node], folder: Path) -> Cluster:
    return Cluster(node_class, folder, 1, CONTROLLER, jvm_options=KAFKA_JVM)


def cluster_start(cluster: Cluster, _: Sizes) -> Metrics:
    """Start three formatted nodes and wait until the metadata of each names all three."""
    cluster.format()
    begin = time.perf_counter()
    for node in cluster.nodes:
        node.start(wait=False)
    cluster.wait_for_brokers()
    seconds = time.perf_counter() - begin
    cpu = cluster.cpu_s()
    for node in cluster.nodes:
        node.wait_ready()
    time.sleep(3)
    return {"time": seconds, "cpu": cpu, "idle": cluster.rss_bytes() / NODES / MIB}


def controller_failover(partitions: int, cluster: Cluster, _: Sizes) -> Metrics:
    """Kill the active controller, start it again, and stop the next active one in order."""
    with cluster, registered_brokers(cluster.cluster_id, cluster.controllers) as controllers:
        empty = cluster.rss_bytes()
        seconds = controllers.fill(partitions)
        controllers.change()
        wait_until_idle(cluster)
        grown = cluster.rss_bytes() - empty
        victim = cluster.node(controllers.active)
        begin = time.perf_counter()
        victim.kill()
        controllers.change(other_than=victim.node_id)
        killed = time.perf_counter() - begin
        victim.start()
        _wait_until_caught_up(cluster, controllers)
        victim = cluster.node(controllers.active)
        begin = time.perf_counter()
        begin_stop(victim)
        controllers.change(other_than=victim.node_id)
        stopped = time.perf_counter() - begin
        return {
            "killed": killed,
            "stopped": stopped,
            "create": partitions / seconds,
            "memory": grown / NODES / MIB,
        }


def _wait_until_caught_up(cluster: Cluster, controllers: Controllers) -> None:
    """Wait until all voters have the whole log, so that any may win the next election."""
    deadline = time.monotonic() + LIMIT_S
    while controllers.lag(len(cluster.nodes)) > 0:
        if time.monotonic() > deadline:
            raise RuntimeError("a controller does not catch up")
        time.sleep(0.05)
    wait_until_idle(cluster)


def metadata_snapshot(partitions: int, cluster: Cluster, _: Sizes) -> Metrics:
    """Measure one controller: memory of its image, time to write and to load a snapshot."""
    (node,) = cluster.nodes
    folder = node.log_dirs[0] / "__cluster_metadata-0"
    cluster.configure({"metadata.max.idle.interval.ms": "0"})
    with cluster, registered_brokers(cluster.cluster_id, cluster.controllers) as controllers:
        empty = live_bytes(node)
        controllers.fill(partitions)
        image = (live_bytes(node) - empty) / partitions
        node.stop()
        # From here on every change makes a snapshot.
        limit = {"metadata.log.max.record.bytes.between.snapshots": "1"}
        cluster.configure({"metadata.max.idle.interval.ms": "0", **limit})
        node.start()
        controllers.change()
        wait_until_idle(cluster)
        written, newest = _snapshot_of_a_change(folder, controllers)
        size = newest.stat().st_size
        node.stop()
        cluster.configure({"metadata.max.idle.interval.ms": "0"})
        begin = time.perf_counter()
        node.start(wait=False)
        controllers.change()
        loaded = time.perf_counter() - begin
        cpu = node.cpu_s()
        time.sleep(2)
        return {
            "image": image,
            "size": size / MIB,
            "written": written,
            "loaded": loaded,
            "loaded_cpu": cpu,
            "memory": node.rss_bytes() / MIB,
        }


def _snapshot_of_a_change(folder: Path, controllers: Controllers) -> tuple[float, Path]:
    """Return the seconds from a change to the snapshot that holds it, and that snapshot.

    A controller that is still writing the snapshot of an earlier change skips this one; then
    another change is made.
    """
    for _ in range(10):
        begin = time.perf_counter()
        controllers.change()
        end_offset = controllers.high_watermark()
        while time.perf_counter() - begin < SNAPSHOT_LIMIT_S:
            # 00000000000000001234-0000000007.checkpoint: end offset and epoch
            newest = max(folder.glob("*.checkpoint"))
            if int(newest.name.split("-")[0]) >= end_offset:
                return time.perf_counter() - begin, newest
            time.sleep(0.002)
    raise RuntimeError("no snapshot was made")


def broker_failover(partitions: int, cluster: Cluster, _: Sizes) -> Metrics:
    """Kill a broker that is not the active controller, and start it again.

    `led`: every partition has a living leader in the metadata of both other brokers.
    `acknowledged`: a record for each of 100 partitions, sent right after the kill, is acknowledged
    by all in-sync replicas. `returned`: all replicas of all partitions are in sync again.
    """
    with cluster:
        seconds = _create_replicated(cluster, partitions)
        controllers = Controllers(cluster.controllers)
        controllers.lag(NODES)
        controllers.close()
        victim = next(node for node in cluster.nodes if node.node_id != controllers.active)
        others = [node for node in cluster.nodes if node is not victim]
        producer = Producer(settings(cluster, acks="all", linger_ms=0))
        _one_record_each(producer)
        begin = time.perf_counter()
        victim.kill()
        with ThreadPoolExecutor(1) as threads:
            records = threads.submit(_one_record_each, producer)
            _wait_for(others, partitions, lambda p: p.leader_id not in (-1, victim.node_id))
            led = time.perf_counter() - begin
            acknowledged = records.result() - begin
        begin = time.perf_counter()
        victim.start(wait=False)
        cluster.wait_for_brokers()
        _wait_for(cluster.nodes, partitions, lambda p: len(p.isr_nodes) == NODES)
        returned = time.perf_counter() - begin
        return {
            "led": led,
            "acknowledged": acknowledged,
            "returned": returned,
            "create": partitions / seconds,
            "memory": cluster.rss_bytes() / NODES / MIB,
        }


def _create_replicated(cluster: Cluster, partitions: int) -> float:
    """Create topics of 100 partitions one by one; return the seconds until all are in sync."""
    admin = AdminClient(settings(cluster))
    begin = time.perf_counter()
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic = NewTopic(f"{TOPIC}-{number}", PARTITIONS_PER_TOPIC)
        admin.create_topics([topic], operation_timeout=60)[topic.topic].result(LIMIT_S)
    _wait_for(cluster.nodes, partitions, lambda p: p.leader_id >= 0 and len(p.isr_nodes) == NODES)
    return time.perf_counter() - begin


def _one_record_each(producer: Producer) -> float:
    """Send a record to every partition of a topic; return when the last one was acknowledged."""
    for partition in range(PARTITIONS_PER_TOPIC):
        producer.produce(f"{TOPIC}-0", b"x" * 100, partition=partition)
    if producer.flush(LIMIT_S):
        raise RuntimeError("not every record was acknowledged")
    return time.perf_counter()


def _wait_for(nodes: Sequence[Node], partitions: int, is_so: Callable[[Any], bool]) -> None:
    """Wait until the metadata of every node tells this of that many partitions."""
    deadline = time.monotonic() + 2 * LIMIT_S
    for node in nodes:
        address = HostPort("127.0.0.1", node.port)
        connection = BlockingConnection.open(address, ClientSettings(()))
        try:
            while True:
                answer = connection.request(MetadataRequest(topics=None), MetadataResponse)
                result = sum(
                    is_so(partition)
                    for topic in answer.topics
                    if (topic.name or "").startswith(TOPIC)
                    for partition in topic.partitions
                )
                if result >= partitions:
                    break
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{result} of {partitions} partitions are as they should be")
                time.sleep(0.05)
        finally:
            connection.close()


def _name(partitions: int) -> str:
    return f"{partitions // 1000}k"


THREE_NODES = Subject("three nodes", _combined, is_shared=True)
FRESH_NODES = Subject("three fresh nodes", _combined)

CLUSTER_ITEMS: tuple[Item, ...] = (
    Item(
        "cluster-start",
        cluster_start,
        (
            Metric("time", "s to three brokers in metadata", False, 0.3),
            Metric("cpu", "CPU-s until then", False),
            Metric("idle", "MiB resident per node, idle", False, 0.25),
        ),
        FRESH_NODES,
    ),
    *(
        Item(
            f"controller-failover-{_name(partitions)}",
            partial(controller_failover, partitions),
            (
                Metric("killed", "s after kill -9", False, 1.0),
                Metric("stopped", "s after SIGTERM", False, 1.0),
                Metric("create", "partitions/s created", True),
                Metric("memory", "MiB grown per controller", False),
            ),
            Subject("three controllers", _controllers),
        )
        for partitions in IMAGE_PARTITIONS
    ),
    *(
        Item(
            f"metadata-snapshot-{_name(partitions)}",
            partial(metadata_snapshot, partitions),
            (
                Metric("image", "bytes per partition", False, 1.0),
                Metric("size", "MiB on disk", False),
                Metric("written", "s to write", False, 1.0),
                Metric("loaded", "s from start to active", False, 1.0),
                Metric("loaded_cpu", "CPU-s until then", False),
                Metric("memory", "MiB resident after", False),
            ),
            Subject("one controller", _controller),
        )
        for partitions in IMAGE_PARTITIONS
    ),
    *(
        Item(
            f"broker-failover-{_name(partitions)}",
            partial(broker_failover, partitions),
            (
                Metric("led", "s after kill -9 until all are led", False, 1.0),
                Metric("acknowledged", "s until acks=all works again", False, 1.0),
                Metric("returned", "s from restart until all are in sync", False, 1.0),
                Metric("create", "partitions/s created", True),
                Metric("memory", "MiB resident per node", False),
            ),
            FRESH_NODES,
        )
        for partitions in REPLICATED_PARTITIONS
    ),
    *(
        Item(
            f"rf3-produce-{label}",
            produce(size, "all", share=0.5),
            (
                Metric("rate", "MB/s", True, 1.0),
                Metric("broker_cpu", "CPU-s of all brokers per GB", False),
            ),
            THREE_NODES,
        )
        for label, size in (("1KiB", 1024), ("100B", 100))
    ),
    Item("rf3-consume-1KiB", consume(1024, acks="all"), CONSUME_METRICS, THREE_NODES),
    Item(
        "rf3-one-in-flight",
        one_in_flight("all", share=0.5),
        (
            Metric("p50", "us p50", False, 1.8),
            Metric("p99", "us p99", False),
            Metric("broker_cpu", "CPU-us of all brokers per request", False, 1.6),
        ),
        THREE_NODES,
    ),
)
