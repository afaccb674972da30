"""Many connections: a thousand with one request each in flight, and ten thousand at rest."""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from peers.clients import create
from peers.node import Node

from benchmarks.compiled import compiled
from benchmarks.group_client import frame
from benchmarks.items import (
    FRESH_NODE,
    LIMIT_S,
    SHARED_NODE,
    Item,
    Metric,
    Metrics,
    Sizes,
    Skipped,
    topic_of,
    wait_for_leaders,
    warm_up,
)
from benchmarks.memory import live_bytes
from spindle.client.producing import produce_batches_request
from spindle.common.ids import TopicPartition
from spindle.protocol.records.builder import SimpleRecord, build_batch

_VERSION: Final = 10
"""Of Produce, as librdkafka sends it."""
_PARTITIONS: Final = 10
_BUSY: Final = 1_000
_IDLE: Final = 10_000
_SPARE_DESCRIPTORS: Final = 1_000


def busy_connections(node: Node, sizes: Sizes) -> Metrics:
    """Measure producers with one record of 1 KiB in flight on each of a thousand connections."""
    count = 5 * sizes.latency_records
    with topic_of(node, _PARTITIONS) as topic, _frames(topic) as words:
        cpu = node.cpu_s()
        done = subprocess.run(
            [*_client(node, _BUSY, words), str(count // 2), str(count)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{node.kind}: {done.stderr.strip()}")
        used = node.cpu_s() - cpu
    result = json.loads(done.stdout)
    return {
        "rate": count / result["seconds"],
        "p99": result["p99_ms"],
        "broker_cpu": used / (count + count // 2) * 1e6,
    }


def idle_connections(node: Node, sizes: Sizes) -> Metrics:
    """Measure the memory of connections that have each sent one record and stay open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit < _IDLE + _SPARE_DESCRIPTORS:
        raise Skipped(f"the limit of open files (ulimit -Hn) is {limit}: too few for {_IDLE:,}")
    node.format()
    node.start()
    create(node, "idle", _PARTITIONS)
    wait_for_leaders(node, _PARTITIONS, "idle")
    warm_up(node, sizes)
    before, resident = live_bytes(node), node.rss_bytes()
    with (
        _frames("idle") as words,
        subprocess.Popen(
            [*_client(node, _IDLE, words), "0", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as client,
    ):
        assert client.stdout is not None
        if not client.stdout.readline():
            raise RuntimeError(f"{node.kind}: the connections were not all answered")
        time.sleep(3)
        resident = node.rss_bytes() - resident
        grown = live_bytes(node) - before
    return {"memory": grown / _IDLE / 1024, "resident": resident / _IDLE / 1024}


def _client(node: Node, connections: int, words: tuple[str, str]) -> list[str]:
    # The limit of open files is raised for the client only: that of the node is part of the test.
    shell = 'ulimit -n "$(ulimit -Hn)"; exec "$@"'
    program = str(compiled("connections"))
    return ["sh", "-c", shell, "sh", program, str(node.port), str(connections), *words]


@contextmanager
def _frames(topic: str) -> Iterator[tuple[str, str]]:
    """Write a request for each partition to a file; give the client's FRAMES and ERROR_AT."""
    batch = build_batch([SimpleRecord(value=bytes(range(256)) * 4, timestamp_ms=1)])
    frames = b"".join(
        frame(
            produce_batches_request(
                {TopicPartition(topic, partition): batch}, acks=1, timeout_ms=30_000
            ),
            _VERSION,
        )
        for partition in range(_PARTITIONS)
    )
    # Correlation id, tags, number of topics, name, number of partitions, index; then the code.
    error_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(frames)
        yield file.name, str(error_at)


CONNECTION_ITEMS: Final = (
    Item(
        "connections-1000-busy",
        busy_connections,
        (
            Metric("rate", "requests/s", True, 1.3),
            Metric("p99", "ms p99", False),
            Metric("broker_cpu", "broker CPU-us per request", False),
        ),
        SHARED_NODE,
    ),
    Item(
        "connections-10000-idle",
        idle_connections,
        (
            Metric("memory", "KiB in use per connection", False, 0.3),
            Metric("resident", "KiB resident per connection", False),
        ),
        FRESH_NODE,
    ),
)
