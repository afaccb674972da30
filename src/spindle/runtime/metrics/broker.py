"""Metrics of one broker and of its node's disks."""

from collections.abc import Iterable, Iterator

from prometheus_client import Metric

from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.metrics.disk import DiskTimes
from spindle.runtime.metrics.families import counter, counters, gauge, gauges, summaries


def broker_metrics(broker: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics that need no counting. Call on the event loop."""
    yield gauge(
        "kafka_server_kafka_server_broker_state",
        "0 not running, 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, "
        "7 shutting down.",
        broker.state,
    )
    yield gauge(
        "kafka_network_socket_server_memory_pool_used_bytes",
        "Requests that were read, or are being read, and are not answered.",
        broker.limits.held_bytes,
    )
    yield gauge(
        "kafka_network_socket_server_unsent_bytes",
        "Answers that wait for clients which do not read.",
        broker.limits.unsent_bytes,
    )
    prefix = "kafka_server_broker_all_topics_metrics_replication_bytes"
    yield counter(
        f"{prefix}_in",
        "Bytes of records fetched from the leaders of replicas here.",
        broker.replica_fetchers.bytes_in,
    )
    yield counter(
        f"{prefix}_out",
        "Bytes of records given to brokers that follow replicas here.",
        broker.traffic.replicated_bytes,
    )
    yield gauge(
        "kafka_server_fetch_session_cache_num_incremental_fetch_sessions",
        "Fetch sessions that are remembered.",
        len(broker.services.fetch_sessions),
    )


def disk_metrics(disks: Iterable[DiskTimes]) -> Iterator[Metric]:
    """Of all directories, the one of the metadata log included."""
    found = [({"log_dir": times.path}, times) for times in disks]
    yield summaries(
        "kafka_log_log_flush_stats_log_flush_time_seconds",
        "Files brought to the device, and how long that took.",
        [(labels, times.syncs, times.total_s, ()) for labels, times in found],
    )
    yield gauges(
        "kafka_log_log_flush_stats_log_flush_longest_time_seconds",
        "The longest flush of a file since the last look.",
        [(labels, times.take_longest_s()) for labels, times in found],
    )
    yield counters(
        "kafka_log_log_flush_stats_log_flush_errors",
        "Flushes that failed.",
        [(labels, times.errors) for labels, times in found],
    )
