"""Everything that a node tells Prometheus, gathered from its parts.

The parts only count. What they have counted is read on the event loop, which owns it; the text is
made on another thread, so that a look at the metrics does not hold up clients.
"""

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic

from prometheus_client import CollectorRegistry, GCCollector, Metric, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from spindle import __version__
from spindle.broker.traffic import TopicTraffic
from spindle.config.node_config import NodeConfig
from spindle.runtime.metrics_broker import broker_metrics, disk_metrics
from spindle.runtime.metrics_cluster import ClusterMetrics
from spindle.runtime.metrics_families import gauges
from spindle.runtime.metrics_parts import NodeParts
from spindle.runtime.metrics_traffic import request_metrics, topic_metrics


class _Gathered(Collector):
    """Metrics that are made, and topics of which they are still to be made."""

    def __init__(
        self, metrics: list[Metric], topics: list[tuple[str, TopicTraffic]], total: TopicTraffic
    ) -> None:
        self._metrics = metrics
        self._topics = topics
        self._total = total

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics
        yield from topic_metrics(self._topics, self._total)


def node_labels(config: NodeConfig, cluster_id: str) -> dict[str, str]:
    """What this node is."""
    return {
        "cluster_id": cluster_id,
        "node_id": str(config.node_id),
        "roles": ",".join(config.process_roles),
        "version": __version__,
    }


class NodeMetrics:
    """The text of /metrics.

    Args:
        parts: what there is at the moment of the call.
        labels: of the metric that says what this node is.
    """

    def __init__(
        self, node_id: int, labels: dict[str, str], parts: Callable[[], NodeParts]
    ) -> None:
        self._parts = parts
        self._labels = labels
        self._cluster = ClusterMetrics(node_id)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def render(self) -> bytes:
        """Call on the event loop."""
        gathered = self._gather()
        return await asyncio.to_thread(self._text, gathered)

    def _text(self, gathered: _Gathered) -> bytes:
        return generate_latest(gathered) + generate_latest(self._process)

    def _gather(self) -> _Gathered:
        parts = self._parts()
        metrics = [
            gauges("spindle_node", "Always 1; the labels say what this is.", [(self._labels, 1)])
        ]
        metrics += request_metrics(parts.requests, monotonic())
        metrics += disk_metrics(parts.disks)
        metrics += self._cluster.controller(parts.image, is_active=parts.is_active_controller)
        if parts.quorum is not None:
            metrics += self._cluster.quorum(parts.quorum)
        if parts.broker is None:
            return _Gathered(metrics, [], TopicTraffic())
        metrics += broker_metrics(parts.broker)
        traffic = parts.broker.traffic
        return _Gathered(metrics, list(traffic.by_topic.items()), traffic.total())
