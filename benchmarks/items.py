"""The measurements on one node. An item is a function of a running or new node; it returns metrics.

Every item leaves the node as it was, except for page cache and heap.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from peers.clients import create, settings
from peers.node import Node

from benchmarks import native_client

Metrics = dict[str, float]
MIB = 2**20
GIB = 2**30
LIMIT_S = 120.0

_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of work of each item."""

    volume_bytes: int = 2 * GIB
    small_volume_bytes: int = 512 * MIB
    latency_records: int = 20_000
    topics: int = 200
    restart_partitions: int = 500


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table: name, unit, whether more is better, and the goal for the ratio.

    The ratio is Spindle / Kafka; the goal is a lower bound where more is better, else an upper one.
    """

    name: str
    unit: str
    more_is_better: bool
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """The node or cluster of an item, made by `make(node class, folder)`.

    A shared subject is formatted, started and warmed up, and all items that name it use it.
    Otherwise every run gets a new one and does all that itself. Nodes and clusters have `kind` and
    `remove()`.
    """

    name: str
    make: Callable[[type[Node], Path], Any]
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """A measurement: `run(subject, sizes)`."""

    name: str
    run: Callable[[Any, Sizes], Metrics]
    metrics: tuple[Metric, ...]
    subject: Subject


class Skipped(Exception):
    """The item cannot be measured on this machine; the text says what is missing."""


@contextmanager
def topic_of(node: Node, partitions: int = 1) -> Iterator[str]:
    """Create a topic, and delete it at the end of the block."""
    name = f"bench-{next(_names)}"
    create(node, name, partitions)
    try:
        yield name
    finally:
        client = AdminClient(settings(node))
        client.delete_topics([name])[name].result(LIMIT_S)
        # Deleted files keep the disk busy for a moment; the next measurement must not include it.
        time.sleep(1.5)


def produce(size: int, acks: str) -> Callable[[Node, Sizes], Metrics]:
    """Return a benchmark that produces records of `size` bytes."""

    def run(node: Node, sizes: Sizes) -> Metrics:
        volume = sizes.volume_bytes if size >= 1024 else sizes.small_volume_bytes
        with topic_of(node) as topic:
            return fill(node, topic, volume // size, size, acks)

    return run


def fill(node: Node, topic: str, count: int, size: int, acks: str) -> Metrics:
    """Send records to a topic, and return rate and broker CPU."""
    cpu = node.cpu_s()
    result = native_client.run(
        "produce", node.bootstrap, topic, count, size, acks=acks, batch_size=1_000_000,
        batch_num_messages=100_000, linger_ms=5, queue_buffering_max_kbytes=262_144,
        queue_buffering_max_messages=2_000_000,
    )  # fmt: skip
    volume = count * size
    return {
        "rate": volume / 1e6 / result["seconds"],
        "broker_cpu": (node.cpu_s() - cpu) / (volume / 1e9),
    }


def consume(node: Node, sizes: Sizes, acks: str = "1") -> Metrics:
    """Measure rate and broker CPU of a consumer that reads 1 KiB records."""
    size = 1024
    count = sizes.volume_bytes // size
    with topic_of(node) as topic:
        fill(node, topic, count, size, acks)
        cpu = node.cpu_s()
        result = native_client.run(
            "consume", node.bootstrap, topic, count, 0, fetch_message_max_bytes=8 * MIB,
            fetch_max_bytes=64 * MIB, queued_max_messages_kbytes=262_144,
            queued_min_messages=1_000_000, receive_message_max_bytes=128 * MIB,
        )  # fmt: skip
        volume = count * size
        return {
            "rate": volume / 1e6 / result["seconds"],
            "broker_cpu": (node.cpu_s() - cpu) / (volume / 1e9),
        }


def warm_up(node: Node, sizes: Sizes) -> None:
    """Let a JVM compile the code of the items; the same is done to Spindle."""
    with topic_of(node) as topic:
        fill(node, topic, sizes.volume_bytes // 2 // 1024, 1024, "all")
        native_client.run("consume", node.bootstrap, topic, sizes.volume_bytes // 2 // 1024, 0)
        native_client.run("latency", node.bootstrap, topic, 5_000, 1024, acks="1", linger_ms=0)


def one_in_flight(node: Node, sizes: Sizes, acks: str = "1") -> Metrics:
    """Measure the latency of a producer with one request in flight."""
    with topic_of(node) as topic:
        result = native_client.run(
            "latency", node.bootstrap, topic, sizes.latency_records, 1024, acks=acks, linger_ms=0
        )
    return {"p50": result["p50_ms"], "p99": result["p99_ms"]}


def create_topics(node: Node, sizes: Sizes) -> Metrics:
    """Measure rate and memory of the creation of many topics."""
    client = AdminClient(settings(node))
    client.list_topics(timeout=LIMIT_S)
    run = next(_names)
    names = [f"many-{run}-{number}" for number in range(sizes.topics)]
    before = node.rss_bytes()
    start = time.perf_counter()
    futures = client.create_topics([NewTopic(name, 10) for name in names], operation_timeout=60)
    for future in futures.values():
        future.result(LIMIT_S)
    seconds = time.perf_counter() - start
    wait_for_leaders(node, 10 * sizes.topics, f"many-{run}-")
    grown = node.rss_bytes() - before
    for future in client.delete_topics(names, operation_timeout=60).values():
        future.result(LIMIT_S)
    time.sleep(3)
    return {"rate": 10 * sizes.topics / seconds, "memory": max(grown, 0) / MIB}


def start(node: Node, sizes: Sizes) -> Metrics:
    """Start a formatted node until it answers a Metadata request; measure its memory at rest."""
    node.format()
    begin = time.perf_counter()
    node.start(wait=False)
    wait_for_metadata(node)
    seconds = time.perf_counter() - begin
    cpu = node.cpu_s()
    node.wait_ready()
    time.sleep(3)
    idle = node.rss_bytes()
    create(node, "memory", 1)
    fill(node, "memory", sizes.volume_bytes // 1024, 1024, "1")
    return {
        "time": seconds,
        "cpu": cpu,
        "idle": idle / MIB,
        "after_produce": node.rss_bytes() / MIB,
    }


def restart(node: Node, sizes: Sizes) -> Metrics:
    """Stop and start a node that leads many partitions of one record; then kill and start it."""
    node.format()
    node.start()
    client = AdminClient(settings(node))
    wanted = sizes.restart_partitions
    names = [f"restart-{number}" for number in range(wanted // 10)]
    futures = client.create_topics([NewTopic(name, 10) for name in names], operation_timeout=60)
    for future in futures.values():
        future.result(LIMIT_S)
    wait_for_leaders(node, wanted, "restart-")
    one_record_each(node, names)
    begin = time.perf_counter()
    node.stop()
    stop = time.perf_counter() - begin
    clean, clean_cpu = _restarted(node, wanted)
    node.kill()
    killed, killed_cpu = _restarted(node, wanted)
    return {
        "stop": stop,
        "clean": clean,
        "clean_cpu": clean_cpu,
        "killed": killed,
        "killed_cpu": killed_cpu,
    }


def _restarted(node: Node, wanted: int) -> tuple[float, float]:
    begin = time.perf_counter()
    node.start(wait=False)
    wait_for_metadata(node)
    wait_for_leaders(node, wanted, "restart-")
    return time.perf_counter() - begin, node.cpu_s()


def one_record_each(node: Node, names: list[str]) -> None:
    """Send a record to each of the ten partitions of these topics."""
    producer = Producer(settings(node))
    for name in names:
        for partition in range(10):
            producer.produce(name, b"x" * 100, partition=partition)
    assert producer.flush(60) == 0


def wait_for_leaders(node: Node, wanted: int, prefix: str) -> None:
    """Wait until `wanted` partitions of the topics with `prefix` have a leader in the metadata."""
    client = AdminClient(settings(node))
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        topics = client.list_topics(timeout=LIMIT_S).topics
        led = sum(
            partition.leader >= 0
            for name, topic in topics.items()
            if name.startswith(prefix)
            for partition in topic.partitions.values()
        )
        if led >= wanted:
            return
        time.sleep(0.01)
    raise RuntimeError(f"{node.kind}: not every partition has a leader after {LIMIT_S} s")


def wait_for_metadata(node: Node) -> None:
    """Wait until a Metadata request is answered and names a broker."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if named_brokers(node) > 0:
            return
        time.sleep(0.005)
    raise RuntimeError(f"{node.kind} does not answer")


def named_brokers(node: Node) -> int:
    """Return how many brokers the node's metadata names; 0 while it does not answer."""
    request = struct.pack(">hhi", 3, 1, 1) + struct.pack(">h", 1) + b"b" + struct.pack(">i", 0)
    try:
        with socket.create_connection(("127.0.0.1", node.port), 1) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return 0  # not listening yet
    return int(struct.unpack(">i", answer[8:])[0]) if len(answer) == 12 else 0


# The options of Kafka's own scripts, with their heap of 1 GiB.
KAFKA_JVM = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# Other keys have their defaults; deleted logs must not fill the disk during the run.
OVERRIDES = {"file.delete.delay.ms": "1000", "log.initial.task.delay.ms": "500"}


def _one_node(node_class: type[Node], folder: Path) -> Node:
    return node_class(folder, 1, overrides=dict(OVERRIDES), jvm_options=KAFKA_JVM)


def _three_directories(node_class: type[Node], folder: Path) -> Node:
    return node_class(folder, 3, overrides=dict(OVERRIDES), jvm_options=KAFKA_JVM)


SHARED_NODE = Subject("node", _one_node, is_shared=True)
FRESH_NODE = Subject("fresh node", _one_node)
NODE_OF_THREE_DIRECTORIES = Subject("node of three directories", _three_directories)

ITEMS: tuple[Item, ...] = (
    Item(
        "start",
        start,
        (
            Metric("time", "s to first metadata answer", False, 0.3),
            Metric("cpu", "CPU-s until then", False),
            Metric("idle", "MiB resident, idle", False, 0.25),
            Metric("after_produce", "MiB resident after produce", False, 0.17),
        ),
        FRESH_NODE,
    ),
    *(
        Item(
            f"produce-{label}",
            produce(size, acks),
            (
                Metric("rate", "MB/s", True, goal),
                Metric("broker_cpu", "broker CPU-s per GB", False, 0.6),
            ),
            SHARED_NODE,
        )
        for label, size, acks, goal in [
            ("1KiB-acks1", 1024, "1", 1.7),
            ("1KiB-acksall", 1024, "all", 1.7),
            ("100B-acks1", 100, "1", 1.5),
        ]
    ),
    Item(
        "consume-1KiB",
        consume,
        (
            Metric("rate", "MB/s", True, 1.0),
            Metric("broker_cpu", "broker CPU-s per GB", False),
        ),
        SHARED_NODE,
    ),
    Item(
        "one-in-flight",
        one_in_flight,
        (Metric("p50", "ms p50", False, 1.0), Metric("p99", "ms p99", False, 1.0)),
        SHARED_NODE,
    ),
    Item(
        "create-topics",
        create_topics,
        (
            Metric("rate", "partitions/s", True, 1.5),
            Metric("memory", "MiB grown", False),
        ),
        SHARED_NODE,
    ),
    Item(
        "restart",
        restart,
        (
            Metric("stop", "s to stop", False),
            Metric("clean", "s after a clean stop", False, 0.25),
            Metric("clean_cpu", "CPU-s", False),
            Metric("killed", "s after kill -9", False, 0.25),
            Metric("killed_cpu", "CPU-s", False),
        ),
        FRESH_NODE,
    ),
)
