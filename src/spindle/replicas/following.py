"""The port through which a broker's followers are fed; the runtime implements it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from spindle.replicas.partition import Partition
from spindle.replication.follower_log import LogPosition


class Following(NamedTuple):
    """A replica that follows `partition.leader_id` from where its log stands."""

    partition: Partition
    position: LogPosition


class ReplicaFetching(Protocol):
    """Fetches from the leaders of other brokers."""

    def follow(self, replicas: Sequence[Following]) -> None:
        """Begin to fetch."""
        ...

    def throttle(self, partition: Partition) -> None:
        """`is_throttled_as_follower` has changed."""
        ...

    def stop(self, partitions: Iterable[Partition]) -> None:
        """Cease to fetch: no work on these logs is begun any more."""
        ...
