"""Metrics of a broker's replicas, followers and groups: counted with pauses for other work."""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import Metric

from spindle.metadata.partitions import PartitionRegistration
from spindle.replicas.directory_counts import DirectoryCounts
from spindle.replicas.moves.move import Moves
from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.replication.fetcher import Fetcher
from spindle.replication.leader_state import LeaderState
from spindle.runtime.broker.broker_server import BrokerServer
from spindle.runtime.broker.replica_fetchers import ReplicaFetchers
from spindle.runtime.coordinator.group_coordinator import GroupCoordinator
from spindle.runtime.metrics.families import counter, counters, gauge, gauges
from spindle.serving.cooperative import cooperatively


class IsrHealth(NamedTuple):
    """A led partition's ISR, compared with its replicas and with min.insync.replicas."""

    in_sync: int
    is_under_replicated: bool
    is_under_min_isr: bool
    is_at_min_isr: bool


def isr_health(leader: LeaderState, known: PartitionRegistration) -> IsrHealth:
    """Return the health of a partition; replicas that are being added do not count as missing."""
    in_sync, needed = len(leader.isr), leader.effective_min_isr
    return IsrHealth(
        in_sync,
        is_under_replicated=in_sync < len(known.replicas) - len(known.adding_replicas),
        is_under_min_isr=in_sync < needed,
        is_at_min_isr=in_sync == needed,
    )


class ReplicaCounts:
    """Counts of the replicas that have been read so far.

    A transaction without records since `late_before_ms` is late.
    """

    def __init__(self, late_before_ms: int) -> None:
        self._late_before_ms = late_before_ms
        self.directories = DirectoryCounts()
        self.leading = 0
        self.offline = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.reassigning = 0
        self.producer_ids = 0
        self.with_late_transactions = 0
        self.damaged = 0

    def add(self, partition: Partition) -> None:
        self.directories.add(partition)
        self.producer_ids += len(partition.log.producers)
        if partition.directory.is_offline:
            self.offline += 1
            return
        leader, known = partition.leader, partition.registration
        if leader is None or known is None:
            return
        self.leading += 1
        last_ms = partition.log.producers.oldest_transaction_last_ms()
        self.with_late_transactions += last_ms is not None and last_ms < self._late_before_ms
        self.reassigning += known.is_reassigning
        health = isr_health(leader, known)
        self.under_replicated += health.is_under_replicated
        self.under_min_isr += health.is_under_min_isr
        self.at_min_isr += health.is_at_min_isr


async def count_replicas(replicas: ReplicaManager, late_before_ms: int) -> ReplicaCounts:
    """Count all replicas, with pauses for other work on the event loop."""
    counts = ReplicaCounts(late_before_ms)
    async for partition in cooperatively(replicas):
        counts.add(partition)
    counts.directories.add_futures(replicas.moves)
    counts.damaged = sum(1 for _ in replicas.damaged())
    return counts


async def count_groups(groups: GroupCoordinator) -> tuple[dict[str, int], int]:
    """Return (groups by state, committed offsets), with pauses for other work."""
    states: dict[str, int] = {}
    offsets = 0
    for driver in list(groups.shards.values()):
        shard = driver.shard
        async for group in cooperatively(list(shard.groups)):
            states[str(group.state)] = states.get(str(group.state), 0) + 1
        async for group_id in cooperatively(list(shard.offsets.group_ids())):
            offsets += len(shard.offsets.of_group(group_id))
    return states, offsets


def replica_metrics(broker: BrokerServer, counts: ReplicaCounts) -> Iterator[Metric]:
    """Yield the metrics of the replica manager."""
    prefix = "kafka_server_replica_manager"
    total = sum(counts.directories.partitions.values())
    yield gauge(f"{prefix}_partition_count", "Replicas on this broker.", total)
    yield gauge(f"{prefix}_leader_count", "Partitions that this broker leads.", counts.leading)
    yield gauge(
        f"{prefix}_offline_replica_count", "Replicas in failed directories.", counts.offline
    )
    yield gauge(
        "spindle_damaged_replicas",
        "Replicas, of this broker or of leaders that it follows, whose records cannot be read.",
        counts.damaged,
    )
    yield gauge(
        f"{prefix}_under_replicated_partitions",
        "Led partitions with replicas out of sync; replicas that are being added do not count.",
        counts.under_replicated,
    )
    yield gauge(
        f"{prefix}_under_min_isr_partition_count",
        "Led partitions whose ISR has fewer than min.insync.replicas members.",
        counts.under_min_isr,
    )
    yield gauge(
        f"{prefix}_at_min_isr_partition_count",
        "Led partitions whose ISR has exactly min.insync.replicas members.",
        counts.at_min_isr,
    )
    yield gauge(
        f"{prefix}_reassigning_partitions",
        "Led partitions that are being reassigned.",
        counts.reassigning,
    )
    yield gauge(
        f"{prefix}_producer_id_count",
        "Idempotent producers in the state of this broker's replicas.",
        counts.producer_ids,
    )
    yield gauge(
        f"{prefix}_partitions_with_late_transactions_count",
        "Led partitions whose oldest open transaction got no record for 5 minutes longer than "
        "transaction.max.timeout.ms.",
        counts.with_late_transactions,
    )
    yield gauge(
        "kafka_server_assignments_manager_queued_replica_to_dir_assignments",
        "Replicas whose log directory the controller has not acknowledged.",
        broker.directory_reports.queued_count,
    )
    changes = broker.isr_changes
    yield counter(f"{prefix}_isr_expands", "Replicas that were added to an ISR.", changes.expands)
    yield counter(
        f"{prefix}_isr_shrinks", "Replicas that were removed from an ISR.", changes.shrinks
    )
    yield counter(
        f"{prefix}_failed_isr_updates",
        "Changes of an ISR that the controller refused.",
        changes.refusals,
    )


def fetcher_metrics(fetchers: ReplicaFetchers) -> Iterator[Metric]:
    """Yield the metrics of this broker's fetchers, by leader."""
    by_leader: dict[str, list[Fetcher]] = {}
    requests: dict[str, int] = {}
    for task in fetchers:
        by_leader.setdefault(str(task.leader_id), []).append(task.fetcher)
        requests[str(task.leader_id)] = requests.get(str(task.leader_id), 0) + task.requests
    lags = {leader: max(f.max_lag for f in of) for leader, of in by_leader.items()}
    prefix = "kafka_server_replica_fetcher_manager"
    yield gauge(
        f"{prefix}_max_lag",
        "Lag of this broker's slowest replica in records.",
        max(lags.values(), default=0),
    )
    yield gauge(
        f"{prefix}_failed_partitions_count",
        "Replicas that cannot be fetched until their leadership changes.",
        sum(len(fetcher.failed) for of in by_leader.values() for fetcher in of),
    )
    yield gauges(
        "kafka_server_fetcher_lag_metrics_max_lag",
        "Lag of this broker's slowest replica in records, by leader.",
        [({"leader": leader}, lag) for leader, lag in lags.items()],
    )
    yield gauges(
        "kafka_server_fetcher_stats_partition_count",
        "Replicas of this broker that are fetched, by leader.",
        [({"leader": leader}, sum(map(len, of))) for leader, of in by_leader.items()],
    )
    yield counters(
        "kafka_server_fetcher_stats_requests",
        "Fetch requests that the present fetchers have sent, by leader.",
        [({"leader": leader}, count) for leader, count in requests.items()],
    )
    yield counters(
        "kafka_server_fetcher_stats_bytes",
        "Bytes of records fetched by the present fetchers, by leader.",
        [({"leader": leader}, sum(f.bytes_in for f in of)) for leader, of in by_leader.items()],
    )


def move_metrics(moves: Moves) -> Iterator[Metric]:
    """Yield the metrics of moves between the directories of this broker (KIP-113)."""
    prefix = "kafka_server_replica_alter_log_dirs_manager"
    yield gauge(f"{prefix}_move_count", "Replicas that move to another directory.", len(moves))
    yield gauge(
        f"{prefix}_max_lag",
        "Records that the future log furthest behind lacks.",
        max((move.lag for move in moves), default=0),
    )
    yield counter(f"{prefix}_copied_bytes", "Bytes copied between directories.", moves.copied_bytes)
    yield counter(f"{prefix}_completed_moves", "Replicas moved to another directory.", moves.done)
    yield counter(
        f"{prefix}_failed_moves",
        "Moves ended by a failed directory, a damaged batch, or copies that differed.",
        moves.failed,
    )


def group_metrics(
    groups: GroupCoordinator, states: dict[str, int], offsets: int
) -> Iterator[Metric]:
    """Yield the metrics of the group coordinator."""
    prefix = "kafka_server_group_coordinator_metrics"
    yield gauges(
        f"{prefix}_classic_group_count",
        "Groups of the classic protocol that this broker coordinates, by state.",
        [({"state": state}, count) for state, count in sorted(states.items())],
    )
    yield gauge(
        f"{prefix}_num_offsets",
        "Committed offsets of the groups that this broker coordinates.",
        offsets,
    )
    yield gauge(
        f"{prefix}_num_partitions",
        "Partitions of __consumer_offsets whose coordinator is this broker.",
        len(groups.shards),
    )
