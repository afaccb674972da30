"""Metadata of all topics: how long it takes, and what other clients notice of it.

A client at rest asks for the metadata of its topics every five minutes, an AdminClient or a
consumer of a pattern for all topics. The answer grows with the cluster.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from peers.clients import settings
from peers.node import Node

from benchmarks.items import (
    FRESH_NODE,
    LIMIT_S,
    Item,
    Metric,
    Metrics,
    Sizes,
    one_in_flight,
    one_record_each,
    wait_for_leaders,
    warm_up,
)

_REQUEST: Final = struct.pack(">hhih1sBBBBB", 3, 12, 1, 1, b"b", 0, 0, 0, 0, 0)
"""Metadata 12 of all topics (null), without creation and authorized operations."""
_WARM_UPS: Final = 2_000
_REQUESTS: Final = 200
_PAUSE_S: Final = 0.05


def all_topics(partitions: int) -> Callable[[Node, Sizes], Metrics]:
    """Return a benchmark of the metadata of topics with ten partitions each."""

    def run(node: Node, sizes: Sizes) -> Metrics:
        node.format()
        node.start()
        names = [f"metadata-{number}" for number in range(partitions // 10)]
        client = AdminClient(settings(node))
        for future in client.create_topics([NewTopic(name, 10) for name in names]).values():
            future.result(LIMIT_S)
        wait_for_leaders(node, partitions, "metadata-")
        # Kafka's metadata has no newer topic until all these logs are made.
        one_record_each(node, names)
        warm_up(node, sizes)
        with socket.create_connection(("127.0.0.1", node.port), LIMIT_S) as connection:
            for _ in range(_WARM_UPS * 2_000 // partitions):
                _ask(connection)
            times = [_ask(connection) for _ in range(_REQUESTS)]
        with _asking(node):
            beside = one_in_flight(share=0.25)(node, sizes)
        return {
            "time": statistics.median(times) * 1e3,
            "beside": beside["p99"],
        }

    return run


def _ask(connection: socket.socket) -> float:
    """Return the seconds until the whole answer is here."""
    begin = time.perf_counter()
    connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
    left = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
    while left:
        left -= len(connection.recv(min(left, 1 << 20)))
    return time.perf_counter() - begin


@contextlib.contextmanager
def _asking(node: Node) -> Iterator[None]:
    """Ask for all topics twenty times a second, on a connection of its own."""
    is_over = threading.Event()

    def ask() -> None:
        with socket.create_connection(("127.0.0.1", node.port), LIMIT_S) as connection:
            while not is_over.wait(_PAUSE_S):
                _ask(connection)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


METADATA_ITEMS: Final = tuple(
    Item(
        f"metadata-of-{partitions}-partitions",
        all_topics(partitions),
        (
            Metric("time", "ms until all topics are here, p50", False, 0.7),
            Metric("beside", "us p99 of a producer beside it", False, 1.0),
        ),
        FRESH_NODE,
    )
    for partitions in (2_000, 10_000)
)
