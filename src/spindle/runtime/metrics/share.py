"""Metrics of share groups: members' work, dead letters, and the coordinator of their states."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import Metric

from spindle.coordinator.share.delivery import AcknowledgeType
from spindle.runtime.broker.coordinators import Coordinators
from spindle.runtime.coordinator.group_coordinator import GroupCoordinator
from spindle.runtime.coordinator.share_coordinator import ShareCoordinator
from spindle.runtime.metrics.families import (
    counters,
    duration_metrics,
    gauge,
    gauges,
    summaries,
)
from spindle.runtime.share.counts import ShareCounts
from spindle.runtime.share.dead_letter_writer import DeadLetterWriter
from spindle.serving.cooperative import cooperatively


async def count_share_groups(groups: GroupCoordinator) -> Mapping[str, int]:
    """Return the share groups by state, with pauses for other work."""
    states: Counter[str] = Counter()
    for driver in list(groups.shards.values()):
        async for group in cooperatively(list(driver.shard.groups.share.values())):
            states[group.state.value] += 1
    return states


def share_metrics(coordinators: Coordinators, states: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the metrics. Call it on the event loop."""
    yield gauges(
        "kafka_server_group_coordinator_metrics_share_group_count",
        "Share groups that this broker coordinates, by state.",
        [({"state": state}, count) for state, count in sorted(states.items())],
    )
    share = coordinators.share_partitions
    prefix = "kafka_server_share_session_cache"
    yield gauge(
        f"{prefix}_share_sessions_count",
        "Sessions in which members of share groups fetch from this broker.",
        len(share.sessions),
    )
    yield gauge(
        f"{prefix}_share_partitions_count",
        "Partitions in these sessions.",
        share.sessions.partition_count,
    )
    yield from _group_metrics(share.counts, coordinators.dead_letters)
    yield from _coordinator_metrics(coordinators.share_states)


def _group_metrics(counts: ShareCounts, letters: DeadLetterWriter) -> Iterator[Metric]:
    prefix = "kafka_server_share_group_metrics"
    yield counters(
        f"{prefix}_record_acknowledgements",
        "Records that members of share groups have acknowledged, by type.",
        [
            ({"ack_type": kind.name.lower()}, counts.acknowledgements[kind])
            for kind in AcknowledgeType
        ],
    )
    yield from duration_metrics(
        f"{prefix}_partition_load_time",
        "Time to read the state of a share partition.",
        counts.loads,
    )
    yield summaries(
        f"{prefix}_topic_partitions_acquire_time_seconds",
        "Time from the arrival of a fetch to its first acquired records, by group.",
        [
            ({"group": group}, times.count, times.total_s, ())
            for group, times in sorted(counts.acquires.items())
        ],
    )
    yield summaries(
        f"{prefix}_request_topic_partitions_fetch_ratio",
        "Acquired partitions of a fetch, as a share of those in its session, by group.",
        [
            ({"group": group}, ratios.count, ratios.total, ())
            for group, ratios in sorted(counts.ratios.items())
        ],
    )
    prefix += "_dead_letter_queue"
    for name, documentation, by_group in (
        ("record_count", "Dead letters that were written, by group.", letters.written),
        ("total_produce_requests", "Requests that write dead letters, by group.", letters.produced),
        (
            "failed_produce_requests",
            "Batches of dead letters that could not be written, by group.",
            letters.failed,
        ),
    ):
        yield counters(
            f"{prefix}_{name}",
            documentation,
            [({"group": group}, count) for group, count in sorted(by_group.items())],
        )


def _coordinator_metrics(states: ShareCoordinator) -> Iterator[Metric]:
    prefix = "kafka_server_share_coordinator_metrics"
    yield from duration_metrics(
        f"{prefix}_write_latency",
        "Time to write the state of a share partition, until its replicas have it.",
        states.writes,
    )
    yield gauge(
        f"{prefix}_num_partitions",
        "Partitions of __share_group_state whose coordinator is this broker.",
        len(states.shards.by_partition),
    )
    yield gauges(
        f"{prefix}_last_pruned_offset",
        "Offset below which the redundant records of a partition of __share_group_state were "
        "deleted last.",
        [
            ({"partition": str(index)}, offset)
            for index, offset in sorted(states.pruned_offsets.items())
        ],
    )
