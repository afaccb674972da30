"""Choose the partitions of a read, the replica to read of each, and its range of offsets.

The end of a partition is the high watermark. While a broker runs it comes from the directory's
checkpoint, which lags by up to `replica.high.watermark.checkpoint.interval.ms` (5 s); in a
directory that no broker uses it is the log end. For read_committed the end is the last stable
offset below it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from spindle.client.cluster_metadata import ClusterView
from spindle.columnar.corruption import CorruptBatches
from spindle.columnar.directory_files import FILE_SYSTEM, is_in_use, read_leader_epochs
from spindle.columnar.segment_log import SegmentLog
from spindle.columnar.transaction_state import last_stable_offset
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, uuid_text
from spindle.log.formats.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offset_checkpoint,
)
from spindle.log.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE
from spindle.pipeline.errors import DataLoss, rights_explained
from spindle.pipeline.options.topics import Assign, Selection, Subscribe, SubscribePattern
from spindle.pipeline.segments.broker_state import LiveCluster
from spindle.pipeline.segments.discovery import (
    FormattedLogDirectory,
    PartitionDirectory,
    expand_log_directories,
    find_replicas,
    select_topic_id,
)
from spindle.pipeline.segments.options import EndRule, SegmentOptions
from spindle.pipeline.segments.replica_choice import candidates


@dataclass(frozen=True, slots=True)
class ReadablePartition:
    """A partition and the replica to read: offsets [log_start_offset, end_offset)."""

    partition: TopicPartition
    topic_id: Uuid
    directory: FormattedLogDirectory
    log: SegmentLog
    log_start_offset: int
    end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]


class LogDirectoryState:
    """Checkpoints of a log directory, each read at most once for a plan."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def is_in_use(self) -> bool:
        return is_in_use(self.path)

    @cached_property
    def was_shut_down_cleanly(self) -> bool:
        return (self.path / CLEAN_SHUTDOWN_FILE).exists()

    @cached_property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        return self._checkpoint(HIGH_WATERMARKS)

    @cached_property
    def log_starts(self) -> dict[TopicPartition, int]:
        return self._checkpoint(LOG_STARTS)

    @cached_property
    def recovery_points(self) -> dict[TopicPartition, int]:
        return self._checkpoint(RECOVERY_POINTS)

    def _checkpoint(self, name: str) -> dict[TopicPartition, int]:
        return read_offset_checkpoint(FILE_SYSTEM, str(self.path / name))


@rights_explained()
def readable_partitions(
    options: SegmentOptions, cluster: LiveCluster | None = None
) -> list[ReadablePartition]:
    """Return the partitions that the options select, ordered by topic and partition.

    Args:
        options: The partitions to read, and their directories.
        cluster: Asked for topic ids and ends; None takes both from the directories.

    Raises:
        ValueError: a topic or partition is in none of the directories, or a topic has several ids.
        DataLoss: no replica in the directories reaches the end that the cluster gave.
    """
    replicas = find_replicas(expand_log_directories(options.log_directories))
    wanted = [replica for replica in replicas if options.selection.wants(replica.partition)]
    _check_all_found(options.selection, wanted, options.log_directories)
    by_topic: dict[str, list[PartitionDirectory]] = {}
    for replica in wanted:
        by_topic.setdefault(replica.partition.topic, []).append(replica)
    # Ask before reading the logs: a log then reaches at least the end that the cluster reported.
    ends: Mapping[TopicPartition, int] = {}
    leaders: Mapping[TopicPartition, int] = {}
    if cluster is not None:
        view = cluster.view(sorted(by_topic))
        _check_cluster(wanted, view, cluster)
        present = {name: topic.topic_id for name, topic in view.topics.items()}
        options = replace(options, topic_ids={**present, **options.topic_ids})
        leaders = _leaders(view)
        partitions = sorted({replica.partition for replica in wanted})
        ends = cluster.end_offsets(partitions, is_read_committed=options.is_read_committed)
        options = replace(options, end_rule="logEnd")
    states = {
        replica.directory.path: LogDirectoryState(replica.directory.path) for replica in wanted
    }
    readable_partitions: list[ReadablePartition] = []
    for topic, replicas_of_topic in sorted(by_topic.items()):
        topic_id = select_topic_id(topic, replicas_of_topic, options.topic_ids.get(topic))
        by_partition: dict[TopicPartition, list[PartitionDirectory]] = {}
        for replica in replicas_of_topic:
            if replica.topic_id == topic_id:
                by_partition.setdefault(replica.partition, []).append(replica)
        for partition, copies in sorted(by_partition.items()):
            readable = [
                _readable(copy, states[copy.directory.path], options.end_rule)
                for copy in candidates(copies, options.replica, leaders.get(partition))
            ]
            # One replica for each partition; the first of equals.
            best = max(readable, key=_progress)
            if cluster is not None:
                best = _ended(best, ends[best.partition], options.fail_on_data_loss)
            elif options.is_read_committed:
                best = _committed(best, options.corrupt_batches)
            readable_partitions.append(best)
    return readable_partitions


def _check_cluster(
    replicas: Sequence[PartitionDirectory], view: ClusterView, cluster: LiveCluster
) -> None:
    for replica in replicas:
        cluster_id = replica.directory.identity.cluster_id
        if None not in (cluster_id, view.cluster_id) and cluster_id != view.cluster_id:
            raise ValueError(
                f"option logDirs: {replica.directory.path} belongs to cluster {cluster_id}, "
                f"but the brokers at {cluster} are cluster {view.cluster_id}"
            )


def _leaders(view: ClusterView) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, number): partition.leader
        for topic in view.topics.values()
        for number, partition in topic.partitions.items()
    }


def describe(partition: ReadablePartition) -> str:
    """Return partition and topic id as text for messages."""
    return f"{partition.partition} (topic id {uuid_text(partition.topic_id)})"


def _readable(
    replica: PartitionDirectory, directory: LogDirectoryState, rule: EndRule
) -> ReadablePartition:
    log = SegmentLog(replica.path)
    partition = replica.partition
    log_start = max(log.first_offset, directory.log_starts.get(partition, 0))
    is_closed = directory.was_shut_down_cleanly and not directory.is_in_use
    is_recovered = directory.is_in_use or is_closed
    checked_from = None if is_recovered else directory.recovery_points.get(partition, 0)
    end = log.end_offset(checked_from, checks_crcs=not is_closed)
    if rule == "checkpoint" or (rule == "auto" and directory.is_in_use):
        end = min(end, directory.high_watermarks.get(partition, 0))
    return ReadablePartition(
        partition,
        replica.topic_id,
        replica.directory,
        log,
        log_start,
        max(log_start, end),
        read_leader_epochs(replica.path),
    )


def _progress(partition: ReadablePartition) -> tuple[int, int]:
    """Return the newest leader epoch and the end, in which the replica to read is the greatest.

    A longer log of an older epoch may end with records that no later leader has.
    """
    epochs = partition.leader_epochs
    return epochs[-1][0] if epochs else -1, partition.end_offset


def _committed(partition: ReadablePartition, corrupt: CorruptBatches) -> ReadablePartition:
    try:
        end = last_stable_offset(
            partition.log, partition.end_offset, passes_damage=corrupt is not CorruptBatches.FAIL
        )
    except CorruptLog as damage:
        raise CorruptLog(
            damage.path,
            damage.position,
            f"{damage.finding}. It may be the begin of a transaction that is still open, so "
            "read_committed cannot say where to stop: let the broker repair the log, or set "
            "corruptBatches to skip to read past the damage",
        ) from damage
    return replace(partition, end_offset=max(partition.log_start_offset, end))


def _ended(partition: ReadablePartition, end: int, fail_on_data_loss: bool) -> ReadablePartition:
    if end > partition.end_offset:
        if fail_on_data_loss:
            raise DataLoss(
                f"{describe(partition)}: the cluster has it up to offset {end}, the replica in "
                f"{partition.log.path} ends at {partition.end_offset}: it is not in sync"
            )
        return partition
    return replace(partition, end_offset=max(partition.log_start_offset, end))


def _check_all_found(
    selection: Selection, replicas: Sequence[PartitionDirectory], directories: str
) -> None:
    topic_partitions = {replica.partition for replica in replicas}
    match selection:
        case Subscribe(topics):
            found_topics = {partition.topic for partition in topic_partitions}
            missing = [topic for topic in topics if topic not in found_topics]
        case Assign(partitions):
            missing = [
                str(partition) for partition in partitions if partition not in topic_partitions
            ]
        case SubscribePattern(pattern):
            missing = [] if topic_partitions else [f"a topic that matches {pattern!r}"]
    if missing:
        raise ValueError(f"not in the log directories {directories}: {', '.join(missing)}")
