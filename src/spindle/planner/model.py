"""A cluster as the planner sees it: brokers, log directories, and replicas with their sizes."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spindle.common.ids import NO_LEADER, TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerModel:
    """A broker. A broker without a rack counts as a rack of its own."""

    broker_id: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class DirectoryModel:
    """A log directory.

    Attributes:
        capacity_bytes: the size of the file system; 0 if it is unknown: then the directory receives
        nothing.
        used_bytes: used bytes of the file system, including files that are not replicas.
        deleted_bytes: the part of `used_bytes` that deleted replicas have until their deletion
            delay is over. A plan does not count them as used, but copies nothing into their space.
        deletion_delay_ms: how long a replica that leaves keeps its space
            (`log.segment.delete.delay.ms`).
        is_cordoned: gets no further replicas.
        is_online: its broker runs and can read it. An offline one keeps its replicas or loses
            them; a plan counts neither its capacity nor its fill.
    """

    broker_id: int
    path: str
    capacity_bytes: int
    used_bytes: int
    is_cordoned: bool = False
    is_online: bool = True
    deleted_bytes: int = 0
    deletion_delay_ms: int = 60_000

    def __str__(self) -> str:
        return f"{self.broker_id}:{self.path}"

    @property
    def kept_bytes(self) -> int:
        """The used bytes without deleted replicas."""
        return self.used_bytes - self.deleted_bytes

    @property
    def fill(self) -> float:
        """The used share of the capacity, without deleted replicas, from 0 to 1."""
        return self.kept_bytes / self.capacity_bytes if self.capacity_bytes else 0.0


@dataclass(frozen=True, slots=True)
class PartitionModel:
    """A partition and its replicas.

    Attributes:
        directories: the directory of each replica in Kafka's order, as an index into
            `ClusterModel.directories`.
        size_bytes: the size of each replica, in the same order.
        write_bytes_per_second: the growth of each replica.
        leader: the id of the broker that leads, `NO_LEADER` if none does.
    """

    name: TopicPartition
    directories: tuple[int, ...]
    size_bytes: tuple[int, ...]
    write_bytes_per_second: int = 0
    leader: int = NO_LEADER


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """A cluster at one moment.

    Raises:
        ValueError: the parts contradict each other.
    """

    brokers: Sequence[BrokerModel]
    directories: Sequence[DirectoryModel]
    partitions: Sequence[PartitionModel]

    def __post_init__(self) -> None:
        known = Counter(broker.broker_id for broker in self.brokers)
        _refuse_repeated("broker", known)
        _refuse_repeated("directory", Counter(map(str, self.directories)))
        _refuse_repeated("partition", Counter(partition.name for partition in self.partitions))
        for directory in self.directories:
            if directory.broker_id not in known:
                raise ValueError(
                    f"directory {directory} is on broker {directory.broker_id}, which is absent"
                )
            if directory.capacity_bytes < 0 or directory.used_bytes < 0:
                raise ValueError(f"directory {directory} has a negative capacity or use")
            if not 0 <= directory.deleted_bytes <= directory.used_bytes:
                raise ValueError(f"directory {directory} has deleted bytes that it does not use")
        for partition in self.partitions:
            self._check(partition)

    def _check(self, partition: PartitionModel) -> None:
        places = partition.directories
        if not places or len(places) != len(partition.size_bytes):
            raise ValueError(f"{partition.name} needs one size for each replica, and a replica")
        if min(places) < 0 or max(places) >= len(self.directories):
            raise ValueError(f"{partition.name} is in a directory that the model lacks: {places}")
        if min(partition.size_bytes) < 0 or partition.write_bytes_per_second < 0:
            raise ValueError(f"{partition.name} has a negative size or rate")
        if len({self.directories[place].broker_id for place in places}) < len(places):
            raise ValueError(f"{partition.name} has two replicas on one broker")

    def directories_of(self, broker_id: int) -> list[int]:
        """Return the indexes of a broker's directories."""
        return [
            i for i, directory in enumerate(self.directories) if directory.broker_id == broker_id
        ]

    def cordoned_brokers(self, leaving: Collection[int] = ()) -> frozenset[int]:
        """Return the brokers whose online directories are all cordoned.

        Since Kafka 4.4, controllers refuse a reassignment that includes such a broker, also if it
        has a replica already (KIP-1066).

        Args:
            leaving: directories that count as cordoned.
        """
        is_cordoned: dict[int, bool] = {}
        for i, directory in enumerate(self.directories):
            if directory.is_online:
                own = directory.is_cordoned or i in leaving
                is_cordoned[directory.broker_id] = (
                    is_cordoned.get(directory.broker_id, True) and own
                )
        return frozenset(broker_id for broker_id, all_are in is_cordoned.items() if all_are)


def _refuse_repeated(kind: str, counts: Mapping[Any, int]) -> None:
    for name, count in counts.items():
        if count > 1:
            raise ValueError(f"{kind} {name} is there {count} times")
