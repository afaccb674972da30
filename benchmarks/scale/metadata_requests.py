"""Metadata requests to a broker whose cluster is large, and the start of that broker.

The node is broker and controller; the other brokers and all replicas exist in the metadata only.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from peers.node import Node, SpindleNode

from benchmarks.clusters import COMBINED, Cluster
from benchmarks.items import MIB
from benchmarks.scale.controllers import LIMIT_S, metadata_folder
from benchmarks.scale.image import PARTITIONS_PER_TOPIC, TOPIC, Size, make_image, write_image
from spindle.client.blocking.settings import ClientSettings, HostPort
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.errors import ClientError
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse

ASKED_TOPICS: Final = 10
_REPEATED: Final = 5


def measure(size: Size) -> dict[str, float]:
    """Return the figures of a broker in a cluster of this size."""
    with tempfile.TemporaryDirectory(prefix="spindle-scale-") as folder:
        cluster = Cluster(SpindleNode, Path(folder), 1, COMBINED)
        cluster.format()
        (node,) = cluster.nodes
        write_image(make_image(size), metadata_folder(node))
        begin_s = time.monotonic()
        node.start(wait=False)
        try:
            return _measure(node, size, begin_s)
        finally:
            cluster.remove()


def _measure(node: Node, size: Size, begin_s: float) -> dict[str, float]:
    names = [f"{TOPIC}-{number}" for number in range(min(ASKED_TOPICS, size.topics))]
    connection = _connected(node, begin_s)
    some = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    expected = min(size.partitions, PARTITIONS_PER_TOPIC * len(names))
    while _partitions(connection.request(some, MetadataResponse)) < expected:
        if time.monotonic() > begin_s + LIMIT_S:
            raise RuntimeError("the broker does not know the topics")
        time.sleep(0.01)
    everything = MetadataRequest(topics=None)
    figures = {
        "broker started, s": time.monotonic() - begin_s,
        "broker started, CPU-s": node.cpu_s(),
        "metadata of all topics, first, ms": _time_ms(connection, everything, size.partitions),
    }
    for name, request, count in (
        ("metadata of all topics, ms", everything, size.partitions),
        ("metadata of 10 topics, ms", some, expected),
    ):
        times = [_time_ms(connection, request, count) for _ in range(_REPEATED)]
        figures[name] = statistics.median(times)
    connection.close()
    figures["broker resident, MiB"] = node.rss_bytes() / MIB
    return figures


def _connected(node: Node, begin_s: float) -> BlockingConnection:
    settings = ClientSettings((), request_timeout_ms=int(1000 * LIMIT_S))
    while time.monotonic() < begin_s + LIMIT_S:
        try:
            return BlockingConnection.open(HostPort("127.0.0.1", node.port), settings)
        except (ClientError, OSError):
            time.sleep(0.01)
    raise RuntimeError("the broker has not started")


def _time_ms(connection: BlockingConnection, request: MetadataRequest, expected: int) -> float:
    """Return the milliseconds until the answer is received and decoded."""
    begin_s = time.monotonic()
    answer = connection.request(request, MetadataResponse)
    seconds = time.monotonic() - begin_s
    if _partitions(answer) < expected:
        raise RuntimeError(f"the answer has {_partitions(answer)} of {expected} partitions")
    return 1000 * seconds


def _partitions(answer: MetadataResponse) -> int:
    return sum(len(topic.partitions) for topic in answer.topics if not topic.is_internal)


if __name__ == "__main__":
    import sys

    for label, figure in measure(Size(int(sys.argv[1]), int(sys.argv[2]))).items():
        print(f"{label:40} {figure:10.2f}")
