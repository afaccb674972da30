"""Moving a replica between two directories of one node, while others produce."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from confluent_kafka import Message, Producer
from peers.clients import settings
from peers.node import Node

from benchmarks.items import (
    LIMIT_S,
    NODE_OF_THREE_DIRECTORIES,
    Item,
    Metric,
    Metrics,
    Sizes,
    fill,
    topic_of,
)
from spindle.client.admin.partitions import move_replicas
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.common.ids import TopicPartition

_PAUSE_S = 0.005


@contextmanager
def _one_record_at_a_time(node: Node, topic: str) -> Iterator[list[float]]:
    """Produce with acks=all meanwhile; the seconds until each record was acknowledged."""
    latencies_s: list[float] = []
    is_over = threading.Event()

    def work() -> None:
        producer = Producer(settings(node, acks="all", linger_ms=0))
        while not is_over.is_set():
            sent_s = time.monotonic()

            def acknowledged(error: object, message: Message, sent_s: float = sent_s) -> None:
                assert error is None, error
                latencies_s.append(time.monotonic() - sent_s)

            producer.produce(topic, b"x" * 500, partition=0, on_delivery=acknowledged)
            producer.poll(_PAUSE_S)
        assert producer.flush(LIMIT_S) == 0

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield latencies_s
    finally:
        is_over.set()
        thread.join()


def move(node: Node, sizes: Sizes) -> Metrics:
    """Move one replica of a node that has just started.

    The move is over when the plain name is in the target and gone from the source.
    """
    node.format()
    node.start()
    with topic_of(node) as topic:
        volume = sizes.volume_bytes
        fill(node, topic, volume // 1024, 1024, "1")
        name = f"{topic}-0"
        source = next(path for path in node.log_dirs if (path / name).exists())
        target = next(path for path in node.log_dirs if path != source)
        client = WireClient(client_settings({"bootstrap.servers": node.bootstrap}))
        with _one_record_at_a_time(node, topic) as latencies_s, closing(client):
            time.sleep(2)
            latencies_s.clear()
            cpu, began_s = node.cpu_s(), time.monotonic()
            move_replicas(client, node.node_id, {TopicPartition(topic, 0): str(target)})
            while (source / name).exists() or not (target / name).exists():
                time.sleep(_PAUSE_S)
            took_s, cpu = time.monotonic() - began_s, node.cpu_s() - cpu
    waits_s = sorted(latencies_s)
    return {
        "rate": volume / 1e6 / took_s,
        "broker_cpu": cpu / (volume / 1e9),
        "p99": 1000 * waits_s[int(0.99 * len(waits_s))],
    }


MOVE_ITEMS: tuple[Item, ...] = (
    Item(
        "move-between-directories",
        move,
        (
            Metric("rate", "MB/s", True),
            Metric("broker_cpu", "broker CPU-s per GB", False),
            Metric("p99", "ms until acknowledged, p99", False, 1.0),
        ),
        NODE_OF_THREE_DIRECTORIES,
    ),
)
