"""The measurements on one node. An item is a function of a running or new node; it returns metrics.

Every item leaves the node as it was, except for page cache and heap.
"""

from __future__ import annotations

import itertools
import resource
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from peers.clients import create, settings
from peers.node import Node

from benchmarks import native_client, page_cache
from benchmarks.floor import Floor
from benchmarks.memory import live_bytes

Metrics = dict[str, float]
MIB = 2**20
GIB = 2**30
LIMIT_S = 300.0
READS = 3
_TOPICS_PER_REQUEST = 500
"""A controller creates at most 10,000 partitions for one request."""

_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of work of each item."""

    volume_bytes: int = GIB
    small_volume_bytes: int = 512 * MIB
    latency_records: int = 20_000
    warm_up_requests: int = 25_000
    topics: int = 200
    restart_partitions: int = 2_000
    idle_s: float = 15

    def of_records(self, size: int) -> int:
        """Return the volume for records of `size` bytes."""
        return self.volume_bytes if size >= 1024 else self.small_volume_bytes


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table: name, unit, whether more is better, and the goals for the ratio.

    The ratio is Spindle / Kafka; the goal is a lower bound where more is better, else an upper one.
    `goal_of_before` is the goal if the other program is an earlier Spindle.
    """

    name: str
    unit: str
    more_is_better: bool
    goal: float | None = None
    goal_of_before: float | None = None


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
    """A measurement: `run(subject, sizes)`; of the floor, too, if it can do that work."""

    name: str
    run: Callable[[Any, Sizes], Metrics]
    metrics: tuple[Metric, ...]
    subject: Subject
    has_floor: bool = False


class Skipped(Exception):
    """The item cannot be measured on this machine; the text says what is missing."""


@contextmanager
def topic_of(node: Node | Floor, partitions: int = 1) -> Iterator[str]:
    """Create a topic, and delete it at the end of the block."""
    if isinstance(node, Floor):
        with node.topic() as name:
            yield name
        return
    name = f"bench-{next(_names)}"
    create(node, name, partitions)
    try:
        yield name
    finally:
        client = AdminClient(settings(node))
        client.delete_topics([name])[name].result(LIMIT_S)
        # Deleted files keep the disk busy for a moment; the next measurement must not include it.
        time.sleep(1.5)


def produce(size: int, acks: str, share: float = 1.0) -> Callable[[Node | Floor, Sizes], Metrics]:
    """Return a benchmark that produces records of `size` bytes: a share of the volume of a run."""

    def run(node: Node | Floor, sizes: Sizes) -> Metrics:
        count = int(sizes.of_records(size) * share) // size
        with topic_of(node) as topic:
            return fill(node, topic, count, size, acks)

    return run


def fill(
    node: Node | Floor,
    topic: str,
    count: int,
    size: int,
    acks: str,
    *,
    address: str | None = None,
    **login: str,
) -> Metrics:
    """Send records to a topic, and return rate and broker CPU.

    `address` is that of another listener, `login` are the client's keys for it.
    """
    cpu = node.cpu_s()
    result = native_client.run(
        "produce", address or node.bootstrap, topic, count, size, acks=acks, batch_size=1_000_000,
        batch_num_messages=100_000, linger_ms=5, queue_buffering_max_kbytes=262_144,
        queue_buffering_max_messages=2_000_000, **login,
    )  # fmt: skip
    volume = count * size
    return {
        "rate": volume / 1e6 / result["seconds"],
        "broker_cpu": (node.cpu_s() - cpu) / (volume / 1e9),
    }


LARGE_FETCHES: Mapping[str, int] = MappingProxyType({
    "fetch_message_max_bytes": 8 * MIB,
    "fetch_max_bytes": 64 * MIB,
    "queued_max_messages_kbytes": 262_144,
    "queued_min_messages": 1_000_000,
    "receive_message_max_bytes": 128 * MIB,
})  # fmt: skip
"""For few fetches, so that bytes count. Otherwise a client fetches 1 MiB of each partition."""


def consume(
    size: int,
    acks: str = "1",
    share: float = 1.0,
    fetches: Mapping[str, int] = LARGE_FETCHES,
) -> Callable[[Node | Floor, Sizes], Metrics]:
    """Return a benchmark that reads records of `size` bytes with one consumer, then with four.

    `share` is that of the volume of a run, `fetches` are the client's keys for its fetches.
    """

    def run(node: Node | Floor, sizes: Sizes) -> Metrics:
        count = int(sizes.of_records(size) * share) // size
        with topic_of(node) as topic:
            fill(node, topic, count, size, acks)
            page_cache.wait_until_written()
            # Turns of both kinds, because a single one differs from the next by a third.
            turns = [
                [read(node, topic, count, number, fetches=fetches) for number in (1, 4)]
                for _ in range(READS)
            ]
        one, four = (_medians(reads) for reads in zip(*turns, strict=True))
        return one | {f"four_{name}": value for name, value in four.items()}

    return run


def _medians(reads: Sequence[Metrics]) -> Metrics:
    return {name: statistics.median(entry[name] for entry in reads) for name in reads[0]}


def read(
    node: Node | Floor,
    topic: str,
    count: int,
    consumers: int,
    *,
    address: str | None = None,
    fetches: Mapping[str, int] = LARGE_FETCHES,
    **login: str,
) -> Metrics:
    """Read a partition with consumers that each want all of it; return rates and broker CPU.

    `address` and `login` are as for `fill`, `fetches` as for `consume`.
    """
    cpu = node.cpu_s()
    result = native_client.run(
        "consume", address or node.bootstrap, topic, count, 0, consumers=consumers,
        **fetches, **login,
    )  # fmt: skip
    after_first_s = result["seconds"] - result["first_s"]
    return {
        "rate": result["bytes"] / 1e6 / result["seconds"],
        "after_first": result["bytes_after_first"] / 1e6 / after_first_s,
        "broker_cpu": (node.cpu_s() - cpu) / (result["bytes"] / 1e9),
    }


def warm_up(node: Node, sizes: Sizes) -> None:
    """Let a JVM compile the code of the items; the same is done to Spindle.

    Kafka takes some 25,000 requests until it answers one in its final time. Large requests are few,
    so these come first; half the volume of a run follows, in both sizes of records.
    """
    with topic_of(node) as topic:
        native_client.run(
            "latency", node.bootstrap, topic, 1, 1024, warm_up=sizes.warm_up_requests, acks="all",
            linger_ms=0,
        )  # fmt: skip
    for size in (1024, 100):
        with topic_of(node) as topic:
            count = sizes.of_records(size) // 2 // size
            fill(node, topic, count, size, "all")
            read(node, topic, count, 1)


def one_in_flight(acks: str = "1", share: float = 1.0) -> Callable[[Node | Floor, Sizes], Metrics]:
    """Return a benchmark of the latency of a producer with one request in flight."""

    def run(node: Node | Floor, sizes: Sizes) -> Metrics:
        count = int(sizes.latency_records * share)
        unmeasured = 500
        with topic_of(node) as topic:
            cpu = node.cpu_s()
            result = native_client.run(
                "latency", node.bootstrap, topic, count, 1024, warm_up=unmeasured, acks=acks,
                linger_ms=0,
            )  # fmt: skip
            used = node.cpu_s() - cpu
        return {
            "p50": result["p50_ms"] * 1e3,
            "p99": result["p99_ms"] * 1e3,
            "broker_cpu": used / (count + unmeasured) * 1e6,
        }

    return run


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
    fill(node, "memory", 2 * sizes.volume_bytes // 1024, 1024, "1")
    return {
        "time": seconds,
        "cpu": cpu,
        "idle": idle / MIB,
        "after_produce": node.rss_bytes() / MIB,
    }


def restart(node: Node, sizes: Sizes) -> Metrics:
    """Stop and start a node that leads many partitions of one record; then kill and start it."""
    return _restart(node, sizes.restart_partitions)


def restart_twelve_directories(node: Node, sizes: Sizes) -> Metrics:
    """Restart a node with 20,000 partitions, or with as many as the limit of open files allows.

    Kafka keeps a file of every partition open.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(10 * sizes.restart_partitions, limit * 3 // 4) // 10 * 10
    metrics = _restart(node, wanted)
    files = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
    resident = node.rss_bytes() / MIB
    return {**metrics, "partitions": wanted, "resident": resident, "files": files}


def _restart(node: Node, wanted: int) -> Metrics:
    node.format()
    node.start()
    time.sleep(1)
    empty = live_bytes(node)
    client = AdminClient(settings(node))
    names = [f"restart-{number}" for number in range(wanted // 10)]
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        some = [NewTopic(name, 10) for name in names[start : start + _TOPICS_PER_REQUEST]]
        futures = client.create_topics(some, operation_timeout=60)
        for future in futures.values():
            future.result(LIMIT_S)
    wait_for_leaders(node, wanted, "restart-")
    one_record_each(node, names)
    time.sleep(1)
    grown = live_bytes(node) - empty
    begin = time.perf_counter()
    node.stop(LIMIT_S)
    stop = time.perf_counter() - begin
    clean, clean_cpu = _restarted(node, wanted)
    node.kill()
    killed, killed_cpu = _restarted(node, wanted)
    return {
        "memory": grown / wanted / 1024,
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
    left = producer.flush(LIMIT_S)
    if left:
        raise RuntimeError(f"{node.kind}: {left} records have no answer after {LIMIT_S} s")


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


def _twelve_directories(node_class: type[Node], folder: Path) -> Node:
    return node_class(folder, 12, overrides=dict(OVERRIDES), jvm_options=KAFKA_JVM)


SHARED_NODE = Subject("node", _one_node, is_shared=True)
FRESH_NODE = Subject("fresh node", _one_node)
NODE_OF_TWELVE_DIRECTORIES = Subject("fresh node of twelve directories", _twelve_directories)
NODE_OF_THREE_DIRECTORIES = Subject("node of three directories", _three_directories)

CONSUME_METRICS = tuple(
    metric
    for prefix, who in (("", "1 consumer"), ("four_", "4 consumers"))
    for metric in (
        Metric(f"{prefix}rate", f"MB/s, {who}", True, 1.0),
        Metric(f"{prefix}after_first", f"MB/s after the first record, {who}", True, 1.0),
        Metric(f"{prefix}broker_cpu", f"broker CPU-s per GB, {who}", False, 1.0),
    )
)

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
                Metric("broker_cpu", "broker CPU-s per GB", False, cpu_goal),
            ),
            SHARED_NODE,
            has_floor=acks == "1",
        )
        for label, size, acks, goal, cpu_goal in [
            ("1KiB-acks1", 1024, "1", 1.7, 0.6),
            ("1KiB-acksall", 1024, "all", 1.7, 0.6),
            ("100B-acks1", 100, "1", 1.5, None),
        ]
    ),
    *(
        Item(
            f"consume-{label}",
            consume(size, share=share, fetches=fetches),
            CONSUME_METRICS,
            SHARED_NODE,
            has_floor=True,
        )
        for label, size, share, fetches in (
            ("1KiB", 1024, 1.0, LARGE_FETCHES),
            ("1KiB-default-fetches", 1024, 1.0, {}),
            ("100B", 100, 0.5, LARGE_FETCHES),
        )
    ),
    Item(
        "one-in-flight",
        one_in_flight(),
        (
            Metric("p50", "us p50", False, 1.6),
            Metric("p99", "us p99", False, 1.6),
            Metric("broker_cpu", "broker CPU-us per request", False),
        ),
        SHARED_NODE,
        has_floor=True,
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
            Metric("memory", "KiB in use per partition", False, 0.5, goal_of_before=1.05),
            Metric("stop", "s to stop", False),
            Metric("clean", "s after a clean stop", False, 0.25),
            Metric("clean_cpu", "CPU-s", False),
            Metric("killed", "s after kill -9", False, 0.25),
            Metric("killed_cpu", "CPU-s", False),
        ),
        FRESH_NODE,
    ),
    Item(
        "restart-twelve-directories",
        restart_twelve_directories,
        (
            Metric("partitions", "partitions", True),
            Metric("memory", "KiB in use per partition", False, 0.5, goal_of_before=1.05),
            Metric("stop", "s to stop", False),
            Metric("clean", "s after a clean stop", False, 0.25),
            Metric("clean_cpu", "CPU-s", False),
            Metric("killed", "s after kill -9", False, 0.25),
            Metric("killed_cpu", "CPU-s", False),
            Metric("resident", "MiB resident after that", False),
            Metric("files", "open files after that", False),
        ),
        NODE_OF_TWELVE_DIRECTORIES,
    ),
)
