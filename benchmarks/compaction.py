"""Compaction of a log whose keys have four records each, on a node that does nothing else."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from peers.clients import create, settings
from peers.node import Node

from benchmarks.items import (
    KAFKA_JVM,
    LIMIT_S,
    MIB,
    OVERRIDES,
    Item,
    Metric,
    Metrics,
    Sizes,
    Subject,
)

_PAUSE_S = 0.01
_SETTLE_S = 3.0
"""The device writes what was produced; the measurement must not include that."""
_RECORDS_PER_KEY = 4
_HELD_BACK = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": str(10**12),
}


def clean(value_bytes: int, codec: str = "none") -> Callable[[Node, Sizes], Metrics]:
    """Return an item: a log of records with random keys and values is compacted once.

    Another log of a quarter of the size is compacted before, because a JVM needs that.
    """

    def run(node: Node, sizes: Sizes) -> Metrics:
        node.format()
        node.start()
        volume = sizes.volume_bytes // 2 if value_bytes >= 1000 else sizes.small_volume_bytes // 2
        _cleaned(node, "warm-up", volume // 4, value_bytes, codec)
        return _cleaned(node, "measured", volume, value_bytes, codec)

    return run


def _cleaned(node: Node, topic: str, volume: int, value_bytes: int, codec: str) -> Metrics:
    create(node, topic, 1, _HELD_BACK | {"segment.bytes": str(max(MIB, volume // 16))})
    count = volume // value_bytes
    _fill(node, topic, count, value_bytes, codec)
    time.sleep(_SETTLE_S)
    folder = next(path / f"{topic}-0" for path in node.log_dirs if (path / f"{topic}-0").exists())
    segments = sorted(folder.glob("*.log"))
    end_offset = int(segments[-1].stem)
    size_bytes = sum(path.stat().st_size for path in segments[:-1])
    assert end_offset > 0
    with _peak_memory(node) as peak_bytes:
        cpu, began_s = node.cpu_s(), time.monotonic()
        _release(node, topic)
        _wait_until_clean(folder, topic, end_offset)
        took_s, cpu = time.monotonic() - began_s, node.cpu_s() - cpu
    left = sum(p.stat().st_size for p in folder.glob("*.log") if int(p.stem) < end_offset)
    assert 0 < left < size_bytes / 2, f"{left} of {size_bytes} bytes are left"
    return {
        "rate": size_bytes / 1e6 / took_s,
        "broker_cpu": cpu / (size_bytes / 1e9),
        "memory": max(peak_bytes) / MIB,
    }


def _fill(node: Node, topic: str, count: int, value_bytes: int, codec: str) -> None:
    keys = random.Random(7)
    values = keys.randbytes(4 * MIB)
    producer = Producer(
        settings(node, linger_ms=20, batch_size=200_000, compression_type=codec)
        | {"queue.buffering.max.messages": 1_000_000, "batch.num.messages": 100_000}
    )
    for number in range(count):
        start = keys.randrange(len(values) - value_bytes)
        key = b"customer-%010d" % keys.randrange(count // _RECORDS_PER_KEY)
        while True:
            try:
                producer.produce(topic, values[start : start + value_bytes], key, 0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(LIMIT_S) == 0


def _release(node: Node, topic: str) -> None:
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    client = AdminClient(settings(node))
    client.incremental_alter_configs([resource])[resource].result(LIMIT_S)


def _wait_until_clean(folder: Path, topic: str, end_offset: int) -> None:
    checkpoint = folder.parent / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + LIMIT_S
    line = f"{topic} 0 {end_offset}"
    while not checkpoint.exists() or line not in checkpoint.read_text().splitlines():
        assert time.monotonic() < deadline, f"{topic} is not compacted after {LIMIT_S} s"
        time.sleep(_PAUSE_S)


@contextmanager
def _peak_memory(node: Node) -> Iterator[list[int]]:
    """Collect the resident memory of the node."""
    seen = [node.rss_bytes()]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_PAUSE_S):
            seen.append(node.rss_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def _node(node_class: type[Node], folder: Path) -> Node:
    overrides = OVERRIDES | {
        "log.cleaner.backoff.ms": "50",
        "log.cleaner.dedupe.buffer.size": str(128 * MIB),
    }
    return node_class(folder, 1, overrides=overrides, jvm_options=KAFKA_JVM)


_CLEANING_NODE = Subject("node that looks for work every 50 ms", _node)
_METRICS = (
    Metric("rate", "MB/s", True, 3.0),
    Metric("broker_cpu", "broker CPU-s per GB", False, 0.5),
    Metric("memory", "MiB at most", False, 1.0),
)

COMPACTION_ITEMS: tuple[Item, ...] = (
    Item("cleaner-100B", clean(100), _METRICS, _CLEANING_NODE),
    Item("cleaner-1KiB", clean(1024), _METRICS, _CLEANING_NODE),
    Item("cleaner-1KiB-zstd", clean(1024, "zstd"), _METRICS, _CLEANING_NODE),
)
