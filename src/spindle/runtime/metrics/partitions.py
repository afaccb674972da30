"""The page with the metrics of each replica; there may be a hundred thousand rows.

This module formats the text itself, because an object for each number would take ten times as long.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from spindle.replicas.partition import Partition
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.broker.replica_fetchers import ReplicaFetchers
from spindle.runtime.metrics.replicas import isr_health
from spindle.runtime.share.led_partition import LedSharePartition
from spindle.serving.cooperative import cooperatively


class Family(NamedTuple):
    """A metric with one value in each row; the name of a counter ends with `_total`."""

    name: str
    documentation: str
    kind: str = "gauge"


LOG_FAMILIES: Final = (
    Family("kafka_log_log_size_bytes", "Bytes of the segments of a replica."),
    Family("kafka_log_log_num_log_segments", "Segments of a replica."),
    Family("kafka_log_log_log_start_offset", "Log start offset of a replica."),
    Family("kafka_log_log_log_end_offset", "Log end offset of a replica."),
)
LEADER_FAMILIES: Final = (
    Family("kafka_cluster_partition_replicas_count", "Replicas of a led partition."),
    Family(
        "kafka_cluster_partition_in_sync_replicas_count", "Members of the ISR of a led partition."
    ),
    Family(
        "kafka_cluster_partition_under_replicated",
        "1 while replicas are out of sync; replicas that are being added do not count.",
    ),
    Family(
        "kafka_cluster_partition_under_min_isr",
        "1 while the ISR has fewer than min.insync.replicas members.",
    ),
    Family(
        "kafka_cluster_partition_at_min_isr",
        "1 while the ISR has exactly min.insync.replicas members.",
    ),
    Family(
        "kafka_cluster_partition_last_stable_offset_lag",
        "Records between the last stable offset and the high watermark.",
    ),
)
FOLLOWER_FAMILIES: Final = (
    Family(
        "kafka_server_fetcher_lag_metrics_consumer_lag",
        "Lag of a replica in records at its leader's last answer; -1 before the first answer.",
    ),
)

SHARE_FAMILIES: Final = (
    Family(
        "kafka_server_share_partition_metrics_in_flight_message_count",
        "Records of a led partition from the start offset of a share group to its next offset.",
    ),
    Family(
        "kafka_server_share_partition_metrics_in_flight_batch_count",
        "Runs of such records in the same state.",
    ),
    Family(
        "kafka_server_share_partition_metrics_acquisition_lock_timeout_total",
        "Records whose locks have expired.",
        "counter",
    ),
    Family(
        "kafka_server_share_partition_metrics_fetch_lock_time_seconds_total",
        "Time in which a fetch read a share partition, and others had to wait.",
        "counter",
    ),
)


class PartitionRows:
    """Labels and values of the rows, in the order of the families."""

    def __init__(self) -> None:
        self.logs: list[tuple[str, tuple[int, ...]]] = []
        self.led: list[tuple[str, tuple[int, ...]]] = []
        self.followed: list[tuple[str, tuple[int, ...]]] = []
        self.shared: list[tuple[str, tuple[float, ...]]] = []

    def add(self, partition: Partition) -> None:
        """Add a replica, unless its directory has failed."""
        if partition.is_offline:
            return
        log = partition.log
        name, number = partition.topic_partition
        labels = f'topic="{name}",partition="{number}"'
        log_dir = _escaped(partition.directory.path)
        self.logs.append(
            (
                f'{labels},log_dir="{log_dir}"',
                (log.size_bytes, len(log.segments), log.log_start_offset, log.log_end_offset),
            )
        )
        leader, known = partition.leader, partition.registration
        if leader is None or known is None:
            return
        health = isr_health(leader, known)
        lag = partition.high_watermark - partition.last_stable_offset
        self.led.append((labels, (len(known.replicas), *map(int, health), lag)))

    def add_shared(self, led: LedSharePartition) -> None:
        """Add a share partition whose state is read."""
        core = led.core
        if core is None:
            return
        name, number = led.hosted.topic_partition
        labels = f'group="{_escaped(led.key.group_id)}",topic="{name}",partition="{number}"'
        values = (core.in_flight, core.run_count, led.lock_timeouts, led.fetch_time_s)
        self.shared.append((labels, values))

    def text(self) -> bytes:
        """Return the rows in Prometheus' text format."""
        pages = (
            _text(LOG_FAMILIES, self.logs),
            _text(LEADER_FAMILIES, self.led),
            _text(FOLLOWER_FAMILIES, self.followed),
            _text(SHARE_FAMILIES, self.shared),
        )
        return "".join(line for page in pages for line in page).encode()


async def gather_rows(
    replicas: ReplicaManager,
    fetchers: ReplicaFetchers,
    shared: Iterable[LedSharePartition] = (),
) -> PartitionRows:
    """Read all replicas, with pauses for other work on the event loop."""
    rows = PartitionRows()
    async for partition in cooperatively(replicas):
        rows.add(partition)
    for task in fetchers:
        async for followed in cooperatively(task.fetcher):
            labels = (
                f'topic="{followed.topic}",partition="{followed.key.partition}",'
                f'leader="{task.leader_id}"'
            )
            rows.followed.append((labels, (followed.lag,)))
    async for led in cooperatively(shared):
        rows.add_shared(led)
    return rows


def _text(families: Iterable[Family], rows: Sequence[tuple[str, Sequence[float]]]) -> Iterator[str]:
    for column, (name, documentation, kind) in enumerate(families):
        yield f"# HELP {name} {documentation}\n# TYPE {name} {kind}\n"
        for labels, values in rows:
            yield f"{name}{{{labels}}} {values[column]}\n"


def _escaped(label: str) -> str:
    """Escape a path or a group for the text format; topic names need no escapes."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
