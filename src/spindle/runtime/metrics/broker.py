"""Metrics of one broker that need no counting."""

from collections.abc import Iterator

from prometheus_client import Metric

from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.metrics.families import counter, gauge


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
        broker.limits.held_bytes,
    )
    yield gauge(
        "kafka_network_socket_server_unsent_bytes",
        "Bytes of answers that clients have not read yet.",
        broker.limits.unsent.total_bytes,
    )
    yield gauge(
        "kafka_server_share_session_cache_share_sessions_count",
        "Sessions in which members of share groups fetch from this broker.",
        len(broker.coordinators.share_partitions.sessions),
    )
    yield gauge(
        "kafka_server_share_session_cache_share_partitions_count",
        "Partitions in these sessions.",
        broker.coordinators.share_partitions.sessions.partition_count,
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
