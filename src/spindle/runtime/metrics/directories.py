"""Metrics of the log directories: a row for each, with its path in the label `log_dir`."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import Metric

from spindle.disks.executor import DirectoryExecutor
from spindle.disks.io_counts import PARTS, DirectoryIo, OperationCounts, bucket_limit_ns
from spindle.disks.log_directory import LogDirectory
from spindle.replicas.directory_counts import DirectoryCounts
from spindle.replicas.moves.move import Moves
from spindle.replicas.replica_manager import ReplicaManager
from spindle.runtime.metrics.families import counters, gauge, gauges, histograms, summaries

_MANAGER: Final = "kafka_log_log_manager"
_DIRECTORY: Final = f"{_MANAGER}_log_directory"
_S: Final = 1e9
_MS: Final = 1000
_OCTAVES: Final = range(14, 35)
"""Limits of the shown buckets, as powers of two in nanoseconds: from 16 us to 17 s."""


def disk_metrics(disks: Iterable[DirectoryExecutor]) -> Iterator[Metric]:
    """Yield the metrics of the threads of all directories, including the metadata directory."""
    threads = list(disks)
    labelled_io = [({"log_dir": thread.io.path}, thread.io) for thread in threads]
    yield from _flush_metrics(labelled_io)
    yield counters(
        f"{_DIRECTORY}_read_bytes",
        "Bytes read from files of the directory.",
        [(labels, io.reads.size_bytes) for labels, io in labelled_io],
    )
    yield counters(
        f"{_DIRECTORY}_written_bytes",
        "Bytes written to files of the directory.",
        [(labels, io.writes.size_bytes) for labels, io in labelled_io],
    )
    by_operation = [
        ({**labels, "operation": name}, counts)
        for labels, io in labelled_io
        for name, counts in (("read", io.reads), ("write", io.writes), ("sync", io.syncs))
    ]
    yield histograms(
        f"{_DIRECTORY}_io_time_seconds",
        "Operations on files of the directory, and their time.",
        [(labels, _buckets(counts), counts.total_ns / _S) for labels, counts in by_operation],
    )
    yield counters(
        f"{_DIRECTORY}_io_errors",
        "Operations on files of the directory that failed.",
        [(labels, counts.errors) for labels, counts in by_operation],
    )
    loads = [({"log_dir": thread.io.path}, thread.load()) for thread in threads]
    yield gauges(
        f"{_DIRECTORY}_queue_length",
        "Jobs that wait for the directory's I/O thread.",
        [(labels, load.queue_length) for labels, load in loads],
    )
    yield counters(
        f"{_DIRECTORY}_busy_time_seconds",
        "Time that the directory's I/O thread has spent in jobs.",
        [(labels, load.busy_ns / _S) for labels, load in loads],
    )
    yield gauges(
        f"{_DIRECTORY}_hang_time_seconds",
        "Time for which a thread has waited for the disk without any progress.",
        [(labels, load.hang_ms / _MS) for labels, load in loads],
    )
    yield gauges(
        f"{_DIRECTORY}_failure",
        "1 for a directory that has failed; the label says why.",
        [
            ({"log_dir": thread.io.path, "reason": thread.failure.reason}, 1)
            for thread in threads
            if thread.failure is not None
        ],
    )


def _buckets(counts: OperationCounts) -> list[tuple[float, int]]:
    """Return (limit in seconds, operations below it) of each bucket; the last limit is infinite."""
    buckets = []
    below, begin = 0, 0
    for octave in _OCTAVES:
        end = (octave + 1) * PARTS
        below += sum(counts.buckets[begin:end])
        buckets.append((bucket_limit_ns(end - 1) / _S, below))
        begin = end
    buckets.append((float("inf"), below + sum(counts.buckets[begin:])))
    return buckets


def _flush_metrics(found: Collection[tuple[dict[str, str], DirectoryIo]]) -> Iterator[Metric]:
    prefix = "kafka_log_log_flush_stats_log_flush"
    yield summaries(
        f"{prefix}_time_seconds",
        "Flushes of files to the device, and their time.",
        [(labels, io.syncs.count, io.syncs.total_ns / _S, ()) for labels, io in found],
    )
    yield gauges(
        f"{prefix}_longest_time_seconds",
        "The longest flush of a file since the last scrape.",
        [(labels, io.syncs.take_longest_ns() / _S) for labels, io in found],
    )
    yield counters(
        f"{prefix}_errors",
        "Flushes that failed.",
        [(labels, io.syncs.errors) for labels, io in found],
    )


def directory_metrics(
    replicas: ReplicaManager, counts: DirectoryCounts, capacities: Mapping[str, tuple[int, int]]
) -> Iterator[Metric]:
    """Yield the metrics of the content of the directories.

    Args:
        capacities: total and usable bytes by path, where they are known.
    """
    labelled = [({"log_dir": directory.path}, directory) for directory in replicas.directories]
    yield gauge(
        f"{_MANAGER}_offline_log_directory_count",
        "Log directories that have failed.",
        sum(directory.is_offline for _, directory in labelled),
    )
    yield gauge(
        f"{_MANAGER}_cordoned_log_directory_count",
        "Log directories that are cordoned.",
        sum(replicas.is_cordoned(directory) for _, directory in labelled),
    )
    yield gauges(
        f"{_DIRECTORY}_offline",
        "1 for a directory that has failed.",
        [(labels, directory.is_offline) for labels, directory in labelled],
    )
    yield from _cordon_metrics(replicas, labelled)
    yield gauges(
        f"{_DIRECTORY}_partition_count",
        "Replicas in the directory.",
        [(labels, counts.partitions[directory]) for labels, directory in labelled],
    )
    yield gauges(
        f"{_DIRECTORY}_leader_count",
        "Partitions that this broker leads with a replica in the directory.",
        [(labels, counts.leaders[directory]) for labels, directory in labelled],
    )
    yield gauges(
        f"{_DIRECTORY}_size_bytes",
        "Bytes of the segments in the directory.",
        [(labels, counts.size_bytes[directory]) for labels, directory in labelled],
    )
    known = [({"log_dir": path}, *sizes) for path, sizes in capacities.items()]
    yield gauges(
        f"{_DIRECTORY}_total_bytes",
        "Capacity of the file system that holds the directory.",
        [(labels, total) for labels, total, _ in known],
    )
    yield gauges(
        f"{_DIRECTORY}_usable_bytes",
        "Free bytes of the file system that holds the directory.",
        [(labels, usable) for labels, _, usable in known],
    )
    yield gauges(
        f"{_DIRECTORY}_future_partition_count",
        "Replicas that move into the directory.",
        [(labels, counts.futures[directory]) for labels, directory in labelled],
    )
    yield from _move_metrics(replicas.moves, labelled)


def _cordon_metrics(
    replicas: ReplicaManager, labelled: Collection[tuple[dict[str, str], LogDirectory]]
) -> Iterator[Metric]:
    """Yield the cordoned directories and the causes."""
    yield gauges(
        f"{_DIRECTORY}_cordoned",
        "1 for a cordoned directory, which gets no new replicas.",
        [(labels, replicas.is_cordoned(directory)) for labels, directory in labelled],
    )
    yield gauges(
        f"{_DIRECTORY}_cordon_cause",
        "1 for each cause of a cordon: configuration, or watermark (nearly full).",
        [
            ({**labels, "cause": str(cordon.cause)}, 1)
            for labels, directory in labelled
            for cordon in replicas.directory_cordons(directory)
        ],
    )


def _move_metrics(
    moves: Moves, labelled: Collection[tuple[dict[str, str], LogDirectory]]
) -> Iterator[Metric]:
    """Yield the moves between directories, by target."""
    into = {directory: [m for m in moves if m.target is directory] for _, directory in labelled}
    yield gauges(
        f"{_DIRECTORY}_move_remaining_bytes",
        "Bytes that are still to be copied into the directory.",
        [(labels, sum(m.remaining_bytes for m in into[at])) for labels, at in labelled],
    )
    yield gauges(
        f"{_DIRECTORY}_move_max_lag",
        "Records that the directory's future log furthest behind lacks.",
        [(labels, max((m.lag for m in into[at]), default=0)) for labels, at in labelled],
    )
    yield counters(
        f"{_DIRECTORY}_move_copied_bytes",
        "Bytes copied into the directory by moves from other directories.",
        [(labels, moves.copied_bytes_into(at)) for labels, at in labelled],
    )
