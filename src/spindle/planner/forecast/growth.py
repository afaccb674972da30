"""Growth rates of partitions and directories, from samples of a cluster.

Two rates differ. *Growth* is the change of a replica's size: producers add records, and retention
and compaction remove others. It determines when a directory is full. *Produced bytes* count only
the added records. They are computed from end offsets, and determine whether a throttled copy ever
catches up. Moves do not count as growth: the earlier size of a directory is the earlier size of the
replicas that it has in the last sample, in whichever directory they were, plus the other files of
its file system.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.planner.forecast.samples import BrokerSample, ClusterSample, DirectorySample, LedSample
from spindle.planner.forecast.trend import Point, Trend, fit_trend, span_of

_MS: Final = 1000
_MAX_POINTS: Final = 24
"""Maximum number of points in the trend of one partition; there may be many partitions."""


@dataclass(frozen=True, slots=True)
class PartitionRates:
    """Rates of a partition.

    Attributes:
        growth: of the size of one replica, in bytes per second; None with too few samples.
        produced_bytes_per_second: the mean over the history; 0 if it is unknown.
    """

    growth: Trend | None
    produced_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class DirectoryGrowth:
    """Growth of a log directory.

    Attributes:
        samples: the number of samples used.
        span_s: the seconds between the first and the last one.
        replicas: of all current replicas together, in bytes per second; None with too few samples
            or too short a history.
        other_files: of all other files of the file system; None if its use is unknown.
        all_files: of both.
    """

    samples: int
    span_s: float
    replicas: Trend | None
    other_files: Trend | None
    all_files: Trend | None

    def of_replicas_only(self) -> "DirectoryGrowth":
        """Return the growth of a directory without other files."""
        return replace(self, other_files=None, all_files=self.replicas)


def partition_rates(samples: Sequence[ClusterSample]) -> dict[TopicPartition, PartitionRates]:
    """Return the rates of the partitions of the last sample that has them.

    Args:
        samples: in order of their times.
    """
    led: dict[TopicPartition, list[tuple[float, int, LedSample]]] = {}
    for sample in samples:
        for broker in sample.brokers.values():
            for where, led_sample in broker.led.items() if broker else ():
                size = _size_of(broker, where) if broker else None
                if size is not None:
                    led.setdefault(where, []).append((sample.time_ms / _MS, size, led_sample))
    rates = {}
    for where, seen in led.items():
        own = [sample for sample in seen if sample[2].topic_id == seen[-1][2].topic_id]
        points = _thinned([(time_s, float(size)) for time_s, size, _ in own])
        rates[where] = PartitionRates(fit_trend(points), _produced(own))
    return rates


def _produced(seen: Sequence[tuple[float, int, LedSample]]) -> float:
    """Return the produced bytes per second: new offsets times the average size of a record."""
    records, elapsed_s = 0, 0.0
    record_bytes = []
    for (begin_s, before, first), (end_s, after, last) in pairwise(seen):
        new = last.end_offset - first.end_offset
        if new < 0 or end_s <= begin_s:
            continue
        records += new
        elapsed_s += end_s - begin_s
        if new and after > before and first.start_offset == last.start_offset:
            record_bytes.append((after - before) / new)
    if not records or not elapsed_s:
        return 0.0
    _, size, last = seen[-1]
    held = last.end_offset - last.start_offset
    bytes_per_record = median(record_bytes) if record_bytes else size / held if held > 0 else 0.0
    return records * bytes_per_record / elapsed_s


def _size_of(broker: BrokerSample, where: TopicPartition) -> int | None:
    for directory in broker.directories.values():
        if where in directory.sizes:
            return directory.sizes[where]
    return None


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Return at most `_MAX_POINTS` points, the first and the last one among them."""
    if len(points) <= _MAX_POINTS:
        return points
    step = (len(points) - 1) / (_MAX_POINTS - 1)
    return [points[round(number * step)] for number in range(_MAX_POINTS)]


def directory_growths(
    samples: Sequence[ClusterSample],
    held: Mapping[tuple[int, str], Collection[TopicPartition]] | None = None,
) -> dict[tuple[int, str], DirectoryGrowth]:
    """Return the growth of directories.

    Args:
        samples: in order of their times.
        held: the replicas of each directory by broker and path, for a hypothetical placement; None
            for the placement in the last sample of each broker.
    """
    if held is None:
        held = _last_held(samples)
    sizes = [(sample, _known_sizes(sample)) for sample in samples]
    return {key: _growth(*key, held[key], sizes) for key in sorted(held)}


def _last_held(
    samples: Sequence[ClusterSample],
) -> dict[tuple[int, str], Collection[TopicPartition]]:
    latest: dict[int, BrokerSample] = {}
    for sample in samples:
        latest |= {
            number: broker for number, broker in sample.brokers.items() if broker is not None
        }
    return {
        (number, path): directory.sizes.keys()
        for number, broker in latest.items()
        for path, directory in broker.directories.items()
    }


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The sizes of replicas in one sample: on each broker, and the largest on any."""

    by_broker: Mapping[int, Mapping[TopicPartition, int]]
    largest: Mapping[TopicPartition, int]
    is_complete: bool

    def of(self, broker_id: int, where: TopicPartition) -> int | None:
        """Return the size of a replica: 0 if the partition did not exist, None if unknown."""
        own = self.by_broker.get(broker_id, {}).get(where)
        if own is not None:
            return own
        return self.largest.get(where, 0 if self.is_complete else None)


def _known_sizes(sample: ClusterSample) -> _Sizes:
    by_broker: dict[int, dict[TopicPartition, int]] = {}
    largest: dict[TopicPartition, int] = {}
    for number, broker in sample.brokers.items():
        own = by_broker.setdefault(number, {})
        for directory in broker.directories.values() if broker else ():
            for where, size in directory.sizes.items():
                own[where] = size
                largest[where] = max(size, largest.get(where, 0))
    return _Sizes(by_broker, largest, sample.is_complete)


def _growth(
    broker_id: int,
    path: str,
    held: Collection[TopicPartition],
    sizes: Sequence[tuple[ClusterSample, _Sizes]],
) -> DirectoryGrowth:
    replicas: list[Point] = []
    others: list[Point] = []
    for sample, known in sizes:
        parts = [known.of(broker_id, where) for where in held]
        broker = sample.brokers.get(broker_id)
        if None in parts:
            continue
        time_s = sample.time_ms / _MS
        replicas.append((time_s, float(sum(part for part in parts if part is not None))))
        others += _other_files(time_s, broker.directories.get(path) if broker else None)
    known_others = dict(others)
    every = [
        (time_s, size + known_others[time_s]) for time_s, size in replicas if time_s in known_others
    ]
    return DirectoryGrowth(
        len(replicas),
        span_of(replicas),
        fit_trend(replicas),
        fit_trend(others),
        fit_trend(every),
    )


def _other_files(time_s: float, directory: DirectorySample | None) -> Iterator[Point]:
    """Yield the bytes of files that are not replicas, if they are known."""
    if directory is None or not directory.is_online:
        return
    if min(directory.total_bytes, directory.usable_bytes) >= 0:
        used = directory.total_bytes - directory.usable_bytes
        own = sum(directory.sizes.values()) + directory.moving_bytes
        yield time_s, float(max(0, used - own))
