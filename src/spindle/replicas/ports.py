"""Port: starts and stops replica fetchers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from spindle.replicas.partition import Partition
from spindle.replication.follower_log import LogPosition


class FetchStart(NamedTuple):
    """A replica that fetches from `partition.leader_id`, starting at the end of its log.

    `is_same_epoch` is True if the replica was already fetched in this leader epoch, maybe with
    another log. The leader must then send its offsets again, although they have not changed.
    """

    partition: Partition
    position: LogPosition
    is_same_epoch: bool = False


class ReplicaFetcherPort(Protocol):
    """Fetches the partitions that other brokers lead."""

    def follow(self, replicas: Sequence[FetchStart]) -> None:
        """Start fetching for these replicas, or restart in a new leader epoch."""
        ...

    def lag(self, partition: Partition) -> int:
        """Return the number of committed records missing here, as of the last fetch response.

        -1 if the partition is not fetched, or the leader has not responded yet.
        """
        ...

    def throttle(self, partition: Partition) -> None:
        """Apply a changed `is_throttled_as_follower`."""
        ...

    def stop(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching, and start no more work on the logs of these partitions."""
        ...
