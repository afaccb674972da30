"""The measurements of share groups (KIP-932): acknowledged records, and the time of a hand-over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from peers.clients import settings
from peers.node import Node

from benchmarks.items import (
    KAFKA_JVM,
    LIMIT_S,
    OVERRIDES,
    Item,
    Metric,
    Metrics,
    Sizes,
    Subject,
    topic_of,
)

_RECORD_BYTES = 100
_POLL_S = 0.2


def _node_of_share_groups(node_class: type[Node], folder: Path) -> Node:
    own = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "offsets.topic.replication.factor": "1",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.heartbeat.interval.ms": "500",
    }
    return node_class(folder, 1, overrides={**OVERRIDES, **own}, jvm_options=KAFKA_JVM)


NODE_OF_SHARE_GROUPS = Subject("node of share groups", _node_of_share_groups, is_shared=True)


def _begin_at_the_start(node: Node, group: str) -> None:
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    client = AdminClient(settings(node))
    for changed in client.incremental_alter_configs([resource]).values():
        changed.result(LIMIT_S)


def _worker(node: Node, group: str) -> ShareConsumer:
    own: dict[str, str | int] = {"group.id": group, "share.acknowledgement.mode": "explicit"}
    return ShareConsumer({**settings(node), **own})


def acknowledge(workers: int) -> Callable[[Node, Sizes], Metrics]:
    """Return a benchmark of workers that accept records of 100 bytes, as many as they get."""

    def run(node: Node, sizes: Sizes) -> Metrics:
        count = max(sizes.latency_records, 1_000)
        with topic_of(node) as topic:
            _begin_at_the_start(node, topic)
            producer = Producer(settings(node))
            for _ in range(count):
                producer.produce(topic, value=bytes(_RECORD_BYTES))
                producer.poll(0)
            assert producer.flush(LIMIT_S) == 0
            done = [0] * workers

            def work(place: int) -> None:
                member = _worker(node, topic)
                try:
                    member.subscribe([topic])
                    while sum(done) < count:
                        messages = list(member.poll(_POLL_S))
                        for message in messages:
                            member.acknowledge(message)
                        if messages:
                            member.commit_sync(LIMIT_S)
                            done[place] += len(messages)
                finally:
                    member.close()

            threads = [threading.Thread(target=work, args=(place,)) for place in range(workers)]
            cpu, start = node.cpu_s(), time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds, used = time.perf_counter() - start, node.cpu_s() - cpu
        return {"rate": count / seconds, "broker_cpu": used / count * 1e6}

    return run


def hand_over(node: Node, sizes: Sizes) -> Metrics:
    """Measure the time from a record's production to its delivery, one record at a time."""
    count = max(sizes.latency_records // 40, 50)
    times_ms: list[float] = []
    with topic_of(node) as topic:
        _begin_at_the_start(node, topic)
        producer, member = Producer({**settings(node), "linger.ms": 0}), _worker(node, topic)
        try:
            member.subscribe([topic])
            for number in range(count + 1):
                start = time.perf_counter()
                producer.produce(topic, value=b"x")
                producer.poll(0)
                while not (messages := list(member.poll(_POLL_S))):
                    pass
                if number:  # the first one waits for the assignment
                    times_ms.append((time.perf_counter() - start) * 1e3)
                for message in messages:
                    member.acknowledge(message)
                member.commit_sync(LIMIT_S)
        finally:
            member.close()
    parts = quantiles(times_ms, n=100)
    return {"p50": parts[49], "p99": parts[98]}


SHARE_GROUP_ITEMS: tuple[Item, ...] = (
    *(
        Item(
            f"share-acknowledge-{workers}",
            acknowledge(workers),
            (
                Metric("rate", "acknowledged records/s", True, 1.0),
                Metric("broker_cpu", "broker CPU-s per 10^6 records", False),
            ),
            NODE_OF_SHARE_GROUPS,
        )
        for workers in (1, 8)
    ),
    Item(
        "share-hand-over",
        hand_over,
        (
            Metric("p50", "ms p50", False, 1.0),
            Metric("p99", "ms p99", False),
        ),
        NODE_OF_SHARE_GROUPS,
    ),
)
