"""Metrics of one broker and of its node's disks."""

from collections.abc import Iterable, Iterator

from prometheus_client import Metric

from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.metrics.disk import DiskTimes
from spindle.runtime.metrics.families import counter, counters, gauge, gauges, summaries


def broker_metrics(broker: BrokerServer) -> Iterator[Metric]:
    """Yield the metrics that need no counting. Call it on the event loop."""
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
        broker.limits.unsent_bytes,
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


def disk_metrics(disks: Iterable[DiskTimes]) -> Iterator[Metric]:
    """Yield the flush times of all directories, including that of the metadata log."""
    found = [({"log_dir": times.path}, times) for times in disks]
    yield summaries(
        "kafka_log_log_flush_stats_log_flush_time_seconds",
        "Flushes of files to the device, and their time.",
        [(labels, times.syncs, times.total_s, ()) for labels, times in found],
    )
    yield gauges(
        "kafka_log_log_flush_stats_log_flush_longest_time_seconds",
        "The longest flush of a file since the last scrape.",
        [(labels, times.take_longest_s()) for labels, times in found],
    )
    yield counters(
        "kafka_log_log_flush_stats_log_flush_errors",
        "Flushes that failed.",
        [(labels, times.errors) for labels, times in found],
    )
