"""Metrics of one broker: log directories, replicas, groups, fetch sessions."""

from collections.abc import Iterable, Iterator

from prometheus_client import Metric

from spindle.broker.directories import BrokerDirectory
from spindle.broker.partition import Partition
from spindle.broker.replicas import Replicas
from spindle.runtime.broker_server import BrokerServer
from spindle.runtime.coordinators import GroupCoordinator
from spindle.runtime.metrics_disk import DiskTimes
from spindle.runtime.metrics_families import counters, gauge, gauges, summaries


def broker_metrics(broker: BrokerServer) -> Iterator[Metric]:
    """Call on the event loop."""
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
    yield from _directory_metrics(broker.replicas)
    yield from _replica_metrics(broker.replicas)
    yield from _group_metrics(broker.groups)
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


def _directory_metrics(replicas: Replicas) -> Iterator[Metric]:
    directories = replicas.directories
    size_bytes: dict[BrokerDirectory, int] = dict.fromkeys(directories, 0)
    count: dict[BrokerDirectory, int] = dict.fromkeys(directories, 0)
    for partition in replicas:
        size_bytes[partition.directory] += partition.log.size_bytes
        count[partition.directory] += 1

    prefix = "kafka_log_log_manager"
    labelled = [({"log_dir": directory.path}, directory) for directory in directories]
    yield gauge(
        f"{prefix}_offline_log_directory_count",
        "Log directories that have failed.",
        sum(directory.is_offline for directory in directories),
    )
    yield gauges(
        f"{prefix}_log_directory_offline",
        "1 for a directory that has failed.",
        [(labels, directory.is_offline) for labels, directory in labelled],
    )
    yield gauges(
        f"{prefix}_log_directory_cordoned",
        "1 for a directory that gets no new replicas.",
        [(labels, replicas.is_cordoned(directory)) for labels, directory in labelled],
    )
    yield gauges(
        f"{prefix}_log_directory_partition_count",
        "Replicas in the directory.",
        [(labels, count[directory]) for labels, directory in labelled],
    )
    yield gauges(
        f"{prefix}_log_directory_size_bytes",
        "Bytes of the segments in the directory.",
        [(labels, size_bytes[directory]) for labels, directory in labelled],
    )


def _replica_metrics(replicas: Replicas) -> Iterator[Metric]:
    hosted = list(replicas)
    leading = [p for p in hosted if p.leader is not None and not p.is_offline]
    prefix = "kafka_server_replica_manager"
    yield gauge(f"{prefix}_partition_count", "Replicas on this broker.", len(hosted))
    yield gauge(f"{prefix}_leader_count", "Partitions that this broker leads.", len(leading))
    yield gauge(
        f"{prefix}_offline_replica_count",
        "Replicas in failed directories.",
        sum(partition.is_offline for partition in hosted),
    )
    yield gauge(
        f"{prefix}_under_replicated_partitions",
        "Led partitions with replicas out of sync.",
        sum(map(_is_under_replicated, leading)),
    )
    yield gauge(
        f"{prefix}_under_min_isr_partition_count",
        "Led partitions with fewer replicas in sync than min.insync.replicas.",
        sum(p.leader is not None and not p.leader.has_min_isr for p in leading),
    )


def _is_under_replicated(partition: Partition) -> bool:
    known = partition.registration
    return known is not None and len(known.isr) < len(known.replicas)


def _group_metrics(groups: GroupCoordinator) -> Iterator[Metric]:
    shards = [driver.shard for driver in groups.shards.values()]
    states: dict[str, int] = {}
    for shard in shards:
        for group in shard.groups:
            states[str(group.state)] = states.get(str(group.state), 0) + 1
    prefix = "kafka_server_group_coordinator_metrics"
    yield gauges(
        f"{prefix}_classic_group_count",
        "Groups of the classic protocol that this broker coordinates, by state.",
        [({"state": state}, count) for state, count in sorted(states.items())],
    )
    yield gauge(
        f"{prefix}_num_offsets",
        "Committed offsets that this broker keeps.",
        sum(
            len(shard.offsets.of_group(group_id))
            for shard in shards
            for group_id in shard.offsets.group_ids()
        ),
    )
    yield gauge(
        f"{prefix}_num_partitions", "Partitions of __consumer_offsets served here.", len(shards)
    )
