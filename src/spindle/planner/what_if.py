"""Hypothetical changes of a cluster: more or fewer brokers and directories."""

from collections.abc import Sequence
from dataclasses import dataclass

from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel


@dataclass(frozen=True, slots=True)
class ClusterChanges:
    """The changes that `what_if` assumes.

    Attributes:
        added_brokers: brokers that the cluster does not have yet.
        added_directories: directories of existing or added brokers.
        removed_brokers: ids of brokers that the plan empties.
        removed_directories: indexes into `ClusterModel.directories`, which the plan empties.
    """

    added_brokers: Sequence[BrokerModel] = ()
    added_directories: Sequence[DirectoryModel] = ()
    removed_brokers: Sequence[int] = ()
    removed_directories: Sequence[int] = ()


def changed(cluster: ClusterModel, changes: ClusterChanges) -> tuple[ClusterModel, list[int]]:
    """Return the cluster with all additions, and the directories to empty.

    Raises:
        ValueError: an addition exists already, or the broker of one does not or is removed; or a
            removed broker does not exist.
    """
    known = [broker.broker_id for broker in cluster.brokers]
    for broker_id in changes.removed_brokers:
        if broker_id not in known:
            names = ", ".join(map(str, sorted(known)))
            raise ValueError(f"there is no broker {broker_id} to remove; there are {names}")
    for broker in changes.added_brokers:
        if broker.broker_id in known:
            raise ValueError(f"broker {broker.broker_id} exists already and cannot be added")
    added = {broker.broker_id for broker in changes.added_brokers}
    paths = set(map(str, cluster.directories))
    for directory in changes.added_directories:
        if str(directory) in paths:
            raise ValueError(f"directory {directory} exists already and cannot be added")
        broker_id = directory.broker_id
        if broker_id in changes.removed_brokers:
            raise ValueError(
                f"directory {directory} cannot be added to broker {broker_id}, which is removed"
            )
        if broker_id not in known and broker_id not in added:
            raise ValueError(
                f"there is no broker {broker_id} for directory {directory}; add it, too"
            )
    future = ClusterModel(
        [*cluster.brokers, *changes.added_brokers],
        [*cluster.directories, *changes.added_directories],
        cluster.partitions,
    )
    leaving = [
        number
        for number, directory in enumerate(cluster.directories)
        if directory.broker_id in changes.removed_brokers or number in changes.removed_directories
    ]
    return future, leaving
