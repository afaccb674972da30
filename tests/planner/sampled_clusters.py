"""Histories of a small cluster, made sample by sample."""

from collections.abc import Mapping

from spindle.common.ids import TopicPartition
from spindle.planner.forecast.samples import BrokerSample, ClusterSample, DirectorySample, LedSample

GIB = 2**30
HOUR_S = 3600
CAPACITY = 1000 * GIB


def part(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def directory(
    sizes: Mapping[int, float], others: float = 10.0, moving: float = 0.0
) -> DirectorySample:
    """Return a directory; all numbers are in GiB, `sizes` by partition of topic t."""
    used = int((sum(sizes.values()) + others + moving) * GIB)
    held = {part(number): int(size * GIB) for number, size in sizes.items()}
    return DirectorySample(True, CAPACITY, CAPACITY - used, int(moving * GIB), held)


def led(start: int, end: int, topic_id: str = "id") -> LedSample:
    return LedSample(topic_id, start, end)


def sample(hour: float, brokers: Mapping[int, BrokerSample | None]) -> ClusterSample:
    return ClusterSample(int(hour * HOUR_S * 1000), brokers)


def alone(
    hour: float,
    directories: Mapping[str, DirectorySample],
    offsets: Mapping[int, LedSample] | None = None,
) -> ClusterSample:
    """Return a sample of broker 1."""
    samples = {part(number): offset for number, offset in (offsets or {}).items()}
    return sample(hour, {1: BrokerSample(directories, samples)})
