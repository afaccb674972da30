"""Samples of a cluster over time: sizes of directories and partitions as brokers report them."""

from collections.abc import Mapping
from dataclasses import dataclass

from spindle.common.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class DirectorySample:
    """A log directory in one sample.

    Attributes:
        total_bytes: of the file system; -1 if unknown.
        usable_bytes: of the file system; -1 if unknown.
        moving_bytes: copies of running moves, which are not in `sizes`.
        sizes: the bytes of each replica.
    """

    is_online: bool
    total_bytes: int
    usable_bytes: int
    moving_bytes: int
    sizes: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LedSample:
    """The leader's report of a partition: offsets from `start_offset` to before `end_offset`.

    `topic_id` distinguishes a topic from a deleted one of the same name.
    """

    topic_id: str
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """The sample of one broker.

    Attributes:
        directories: by path.
        led: the partitions that it leads, and whose offsets are known.
    """

    directories: Mapping[str, DirectorySample]
    led: Mapping[TopicPartition, LedSample]


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The samples of all brokers at one time.

    Attributes:
        time_ms: since the epoch.
        brokers: by id; None for a broker that did not respond.
    """

    time_ms: int
    brokers: Mapping[int, BrokerSample | None]

    @property
    def is_complete(self) -> bool:
        """Whether all brokers responded, and all their directories are online."""
        return all(
            broker is not None
            and all(directory.is_online for directory in broker.directories.values())
            for broker in self.brokers.values()
        )
