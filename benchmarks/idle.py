"""The measurements of nodes that have nothing to do."""

from __future__ import annotations

import time

from peers.node import Node

from benchmarks.cluster_items import THREE_NODES
from benchmarks.clusters import Cluster, wait_until_idle
from benchmarks.items import MIB, SHARED_NODE, Item, Metric, Metrics, Sizes
from benchmarks.process_cpu import threads_s

METRICS = (
    Metric("cpu", "% of a core per node", False, 0.25, goal_of_before=1.1),
    Metric("memory", "MiB resident per node", False, 0.25, goal_of_before=1.05),
)


def idle(subject: Node | Cluster, sizes: Sizes) -> Metrics:
    """Measure warm nodes without any request."""
    nodes = subject.nodes if isinstance(subject, Cluster) else [subject]
    wait_until_idle(subject)
    begin, before = time.perf_counter(), sum(threads_s(node.pid) for node in nodes)
    time.sleep(sizes.idle_s)
    used = sum(threads_s(node.pid) for node in nodes) - before
    cores = used / (time.perf_counter() - begin) / len(nodes)
    return {"cpu": 100 * cores, "memory": subject.rss_bytes() / len(nodes) / MIB}


IDLE_ITEMS = (
    Item("idle-node", idle, METRICS, SHARED_NODE),
    Item("idle-cluster", idle, METRICS, THREE_NODES),
)
