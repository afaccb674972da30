"""What is measured on several nodes.

Items of controllers alone run with brokers in name only (`registrar`), so the figures hold nothing
of logs and replication.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from peers.node import Node

from benchmarks.clusters import COMBINED, CONTROLLER, Cluster, begin_stop, live_bytes
from benchmarks.items import MIB, Item, Metric, Metrics, Sizes, Subject, named_brokers
from benchmarks.registrar import LIMIT_S, Controllers, registered_brokers

NODES = 3
IMAGE_PARTITIONS = (10_000, 100_000)
# What Kafka's own scripts pass to the JVM; half of their heap, because there are three.
KAFKA_JVM = ("-Xms512m", "-Xmx512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


def _combined(node_class: type[Node], folder: Path) -> Cluster:
    return Cluster(node_class, folder, NODES, COMBINED, jvm_options=KAFKA_JVM)


def _controllers(node_class: type[Node], folder: Path) -> Cluster:
    return Cluster(node_class, folder, NODES, CONTROLLER, jvm_options=KAFKA_JVM)


def _controller(node_class: type[Node], folder: Path) -> Cluster:
    return Cluster(node_class, folder, 1, CONTROLLER, jvm_options=KAFKA_JVM)


def cluster_start(cluster: Cluster, _: Sizes) -> Metrics:
    """Three formatted nodes until the metadata of each names all three."""
    cluster.format()
    begin = time.perf_counter()
    for node in cluster.nodes:
        node.start(wait=False)
    for node in cluster.nodes:
        _wait_for_brokers(node, NODES)
    seconds = time.perf_counter() - begin
    cpu = cluster.cpu_s()
    for node in cluster.nodes:
        node.wait_ready()
    time.sleep(3)
    return {"time": seconds, "cpu": cpu, "idle": cluster.rss_bytes() / NODES / MIB}


def _wait_for_brokers(node: Node, count: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while named_brokers(node) < count:
        if time.monotonic() > deadline or not node.alive:
            raise RuntimeError(f"{node.kind} {node.node_id} does not name {count} brokers")
        time.sleep(0.01)


def controller_failover(partitions: int, cluster: Cluster, _: Sizes) -> Metrics:
    """The active controller is killed, comes back, and the next one is stopped in order."""
    with cluster, registered_brokers(cluster.cluster_id, cluster.controllers) as controllers:
        empty = cluster.rss_bytes()
        seconds = controllers.fill(partitions)
        controllers.change()
        time.sleep(3)
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
    """All voters have fetched, so that any of them may win the next election."""
    deadline = time.monotonic() + LIMIT_S
    while controllers.lag(len(cluster.nodes)) > 0:
        if time.monotonic() > deadline:
            raise RuntimeError("a controller does not catch up")
        time.sleep(0.05)
    time.sleep(1)


def metadata_snapshot(partitions: int, cluster: Cluster, _: Sizes) -> Metrics:
    """A controller alone: what its image takes, how long a snapshot takes both ways."""
    (node,) = cluster.nodes
    folder = node.log_dirs[0] / "__cluster_metadata-0"
    cluster.configure({"metadata.max.idle.interval.ms": "0"})
    with cluster, registered_brokers(cluster.cluster_id, cluster.controllers) as controllers:
        empty = live_bytes(node)
        controllers.fill(partitions)
        image = (live_bytes(node) - empty) / partitions
        node.stop()
        # Every change is worth a snapshot from here on.
        limit = {"metadata.log.max.record.bytes.between.snapshots": "1"}
        cluster.configure({"metadata.max.idle.interval.ms": "0", **limit})
        node.start()
        controllers.change()
        _wait_for_quiet(folder)
        known = _snapshots(folder)
        begin = time.perf_counter()
        controllers.change()
        while _snapshots(folder) <= known:
            time.sleep(0.002)
        written = time.perf_counter() - begin
        _wait_for_quiet(folder)
        size = max(_snapshots(folder)).stat().st_size
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


def _snapshots(folder: Path) -> set[Path]:
    return set(folder.glob("*.checkpoint"))


def _wait_for_quiet(folder: Path) -> None:
    """Until no snapshot has come for a second."""
    known: set[Path] = set()
    quiet_since = time.monotonic()
    while not known or time.monotonic() - quiet_since < 1:
        now = _snapshots(folder)
        if now != known:
            known, quiet_since = now, time.monotonic()
        time.sleep(0.01)


def _name(partitions: int) -> str:
    return f"{partitions // 1000}k"


CLUSTER_ITEMS: tuple[Item, ...] = (
    Item(
        "cluster-start",
        cluster_start,
        (
            Metric("time", "s to three brokers in metadata", False, 0.3),
            Metric("cpu", "CPU-s until then", False),
            Metric("idle", "MiB resident per node, idle", False, 0.25),
        ),
        Subject("three nodes", _combined),
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
)
