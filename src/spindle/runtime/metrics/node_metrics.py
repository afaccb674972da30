"""All metrics of a node, gathered from its parts.

The counters belong to the event loop, which reads them, with pauses where there are many; another
thread formats the text. So a scrape does not delay clients.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from time import monotonic, thread_time
from typing import NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, Metric, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from spindle import __version__
from spindle.config.node_config import NodeConfig
from spindle.disks.executor import DirectoryExecutor
from spindle.metadata.image import MetadataImage
from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.controller.controller_server import WrittenSnapshot
from spindle.runtime.controller.driver import ControllerDriver
from spindle.runtime.metrics.cleaner import cleaner_metrics
from spindle.runtime.metrics.cluster import (
    cluster_metrics,
    controller_metrics,
    loader_metrics,
    quorum_metrics,
)
from spindle.runtime.metrics.directories import directory_metrics, disk_metrics
from spindle.runtime.metrics.families import counter, gauge, gauges
from spindle.runtime.metrics.http_server import Page
from spindle.runtime.metrics.metadata_counts import MetadataCounts
from spindle.runtime.metrics.partitions import gather_rows
from spindle.runtime.metrics.replicas import (
    count_groups,
    count_replicas,
    fetcher_metrics,
    group_metrics,
    move_metrics,
    replica_metrics,
)
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.metrics.share import count_share_groups, share_metrics
from spindle.runtime.metrics.telemetry import client_metrics, telemetry_metrics
from spindle.runtime.metrics.traffic import request_metrics, topic_text, total_metrics
from spindle.runtime.metrics.transactions import (
    count_transactions,
    transaction_metrics,
    verification_metrics,
)
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum
from spindle.serving.traffic import Traffic, TrafficSnapshot


class NodeParts(NamedTuple):
    """The present parts of a node; None for parts that are missing or have not started.

    `counts` belongs to `image`.
    """

    requests: RequestMetrics
    disks: Iterable[DirectoryExecutor]
    image: MetadataImage
    counts: MetadataCounts
    last_committed_offset: int
    now_ms: int
    driver: ControllerDriver | None
    snapshot: WrittenSnapshot | None
    quorum: RaftMetadataQuorum | None
    broker: BrokerServer | None


class _Gathered(Collector):
    """Metrics that are complete, and the topics whose metrics are still to be made."""

    def __init__(self, metrics: list[Metric], traffic: TrafficSnapshot) -> None:
        self.traffic = traffic
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics
        yield from total_metrics(self.traffic.total())


def node_labels(config: NodeConfig, cluster_id: str) -> dict[str, str]:
    """Return the labels that describe this node."""
    return {
        "cluster_id": cluster_id,
        "node_id": str(config.node_id),
        "roles": ",".join(config.process_roles),
        "version": __version__,
    }


class NodeMetrics:
    """The texts of /metrics and /metrics/partitions.

    Args:
        parts: returns the present parts of the node.
        labels: labels of the metric `spindle_node`.
    """

    def __init__(self, labels: dict[str, str], parts: Callable[[], NodeParts]) -> None:
        self._parts = parts
        self._labels = labels
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    @property
    def pages(self) -> dict[str, Page]:
        """The pages by path. They must be called on the event loop."""
        return {"/metrics": self.render, "/metrics/partitions": self.render_partitions}

    async def render_partitions(self) -> bytes:
        """Make the page with one row for each replica; it is empty on a pure controller."""
        broker = self._parts().broker
        if broker is None:
            return b""
        rows = await gather_rows(
            broker.replicas, broker.replica_fetchers, broker.coordinators.share_partitions
        )
        return await asyncio.to_thread(rows.text)

    async def render(self) -> bytes:
        """Make the page of /metrics. Call it on the event loop."""
        gathered = await self._gather()
        return await asyncio.to_thread(self._text, gathered)

    def _text(self, gathered: _Gathered) -> bytes:
        return b"".join(
            (
                generate_latest(gathered),
                topic_text(gathered.traffic.topics),
                generate_latest(self._process),
            )
        )

    async def _gather(self) -> _Gathered:
        parts = self._parts()
        counts = parts.counts
        metrics = [
            gauges(
                "spindle_node",
                "Always 1; the labels name the node, its roles and its version.",
                [(self._labels, 1)],
            )
        ]
        metrics.append(
            counter(
                "spindle_event_loop_cpu_time_seconds",
                "CPU time of the event loop, which serves requests, quorum, controller and "
                "metadata.",
                thread_time(),
            )
        )
        metrics += request_metrics(parts.requests, monotonic())
        metrics += disk_metrics(parts.disks)
        metrics += cluster_metrics(parts.image, counts)
        metrics += loader_metrics(
            parts.image, counts, parts.last_committed_offset, parts.snapshot, parts.now_ms
        )
        metrics += controller_metrics(parts.driver, counts)
        if parts.quorum is not None:
            metrics += quorum_metrics(parts.quorum)
        broker = parts.broker
        if broker is None:
            return _Gathered(metrics, Traffic().snapshot())
        metrics += broker_metrics(broker)
        metrics += fetcher_metrics(broker.replica_fetchers)
        metrics += move_metrics(broker.replicas.moves)
        metrics += cleaner_metrics(broker.housekeeping.compaction, parts.now_ms)
        replicas = await count_replicas(broker.replicas, broker.late_transactions_before_ms())
        metrics += replica_metrics(broker, replicas)
        capacities = await broker.capacities.ask(broker.replicas.directories)
        metrics += directory_metrics(broker.replicas, replicas.directories, capacities)
        metrics += group_metrics(broker.groups, *await count_groups(broker.groups))
        metrics += share_metrics(broker.coordinators, await count_share_groups(broker.groups))
        transactions = broker.coordinators.transactions
        metrics += transaction_metrics(transactions, await count_transactions(transactions))
        metrics += verification_metrics(broker.verification)
        metrics += telemetry_metrics(broker.telemetry)
        metrics += await client_metrics(broker.telemetry)
        return _Gathered(metrics, broker.traffic.snapshot())


def broker_metrics(broker: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics. Call it on the event loop."""
    yield gauge(
        "kafka_server_kafka_server_broker_state",
        "0 not running, 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, "
        "7 shutting down.",
        broker.state,
    )
    yield gauge(
        "kafka_network_socket_server_memory_pool_used_bytes",
        "Bytes of requests that were read, or are being read, and have no answer yet.",
        broker.held_bytes,
    )
    yield gauge(
        "kafka_network_socket_server_unsent_bytes",
        "Bytes of answers that clients have not read yet.",
        broker.limits.unsent.total_bytes,
    )
    prefix = "kafka_server_broker_all_topics_metrics_replication_bytes"
    yield counter(
        f"{prefix}_in",
        "Bytes of records fetched from leaders.",
        broker.replica_fetchers.bytes_in,
    )
    yield counter(
        f"{prefix}_out",
        "Bytes of records sent to followers of partitions that this broker leads.",
        broker.traffic.replicated_bytes,
    )
    yield gauge(
        "kafka_server_fetch_session_cache_num_incremental_fetch_sessions",
        "Fetch sessions in the cache.",
        len(broker.services.fetch_sessions),
    )
