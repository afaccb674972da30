"""The state of a cluster at one time, as all pages of the console show it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spindle.cli.disks.rates import DiskRate, MoveRate
from spindle.cli.status.cluster_status import Status
from spindle.client.disks import DiskView
from spindle.client.log_dirs import LogDirView
from spindle.common.ids import TopicPartition
from spindle.operations.directories import DirectoryKey
from spindle.planner.forecast.time_to_full import TimeToFull


class ListedReplica(NamedTuple):
    """A replica in a directory. `path` is None if the broker does not report it."""

    broker_id: int
    path: str | None
    size_bytes: int
    offset_lag: int


MoveId = tuple[int, str, int, str]
"""Broker, topic, partition and target directory of a move between directories."""


@dataclass(frozen=True, slots=True)
class ConsoleSnapshot:
    """The responses of one poll.

    Attributes:
        time_ms: when it was taken, since 1970.
        log_dirs: the replicas of each broker, or the reason why it does not report them.
        rates: of directories, since the poll before; only brokers of Spindle report them.
        move_rates: of moves between directories of one broker.
        forecasts: when each directory is full, by the history of this console.
    """

    time_ms: int
    status: Status
    log_dirs: Mapping[int, Sequence[LogDirView] | str]
    rates: Mapping[DirectoryKey, DiskRate]
    move_rates: Mapping[MoveId, MoveRate]
    forecasts: Mapping[DirectoryKey, TimeToFull]

    def disks(self) -> Iterator[tuple[int, DiskView]]:
        """Yield every known directory with its broker, in order."""
        for report in self.status.reports:
            for disk in report.disks.disks if report.disks is not None else ():
                yield report.node.node_id, disk

    def disk(self, broker_id: int, path: str) -> DiskView | None:
        """Return a directory; None if no broker reports it."""
        return next((d for b, d in self.disks() if b == broker_id and d.path == path), None)

    def replicas_on(self, broker_id: int, path: str) -> dict[TopicPartition, int]:
        """Return the replicas in a directory with their bytes, without copies of moves."""
        views = self.log_dirs.get(broker_id, ())
        if isinstance(views, str):
            return {}
        return {
            where: replica.size_bytes
            for view in views
            if view.path == path
            for where, replica in view.replicas.items()
            if not replica.is_future
        }

    def places(self, topic: str) -> dict[int, list[ListedReplica]]:
        """Return where the replicas of a topic lie, by partition, in the order of the metadata."""
        known: dict[tuple[int, int], ListedReplica] = {}
        for broker_id, views in self.log_dirs.items():
            for view in views if not isinstance(views, str) else ():
                for where, replica in view.replicas.items():
                    if where.topic == topic and not replica.is_future:
                        known[where.partition, broker_id] = ListedReplica(
                            broker_id, view.path, replica.size_bytes, replica.offset_lag
                        )
        topic_view = self.status.view.topics.get(topic)
        if topic_view is None:
            return {}
        return {
            number: [
                known.get((number, broker), ListedReplica(broker, None, -1, -1))
                for broker in partition.replicas
            ]
            for number, partition in topic_view.partitions.items()
        }

    def topic_sizes(self) -> dict[str, int]:
        """Return the bytes of all replicas of each topic."""
        sizes: dict[str, int] = {}
        for views in self.log_dirs.values():
            for view in views if not isinstance(views, str) else ():
                for where, replica in view.replicas.items():
                    sizes[where.topic] = sizes.get(where.topic, 0) + replica.size_bytes
        return sizes
