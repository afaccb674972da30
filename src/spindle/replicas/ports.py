"""Port: starts and stops replica fetchers."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from spindle.replicas.partition import Partition
from spindle.replication.follower_log import LogPosition


class FetchStart(NamedTuple):
    """A replica that follows `partition.leader_id` from where its log stands.

    `is_same_epoch` is True if the replica was fetched before in this leader epoch, maybe with
    another log: the leader is to name its offsets again although they are as before.
    """

    partition: Partition
    position: LogPosition
    is_same_epoch: bool = False


class ReplicaFetcherPort(Protocol):
    """Fetches what other brokers lead."""

    def follow(self, replicas: Sequence[FetchStart]) -> None:
        """Begin to fetch for these replicas, or begin anew in a new leader epoch."""
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
        """Stop fetching: begin no more work on the logs of these partitions."""
        ...
