"""Brokers and log directories, as operations name them."""

import posixpath
from typing import Final, NamedTuple

from spindle.client.cluster_metadata import no_broker_text
from spindle.operations.errors import OperationFailed
from spindle.planner.model import ClusterModel

UNREADABLE: Final = "(unreadable)"
"""The path for replicas whose directory is not reported by a broker."""

DirectoryKey = tuple[int, str]
"""A broker and the path of one of its directories."""


class DrainTarget(NamedTuple):
    """A broker, or one of its log directories.

    Attributes:
        path: None for the whole broker.
    """

    broker: int
    path: str | None = None

    def __str__(self) -> str:
        return str(self.broker) if self.path is None else f"{self.broker}:{self.path}"

    @property
    def text(self) -> str:
        """The name in texts: `broker 2`, or `2:/data/1`."""
        return f"broker {self}" if self.path is None else str(self)


def drain_target(broker: int, directory: str | None) -> DrainTarget:
    """Return the target with its path normalized: `/disk3/` and `/disk3` are one directory."""
    return DrainTarget(broker, None if directory is None else posixpath.normpath(directory))


def directory_names(cluster: ClusterModel) -> dict[int, str]:
    """Return the names of the directories that a table shows, by index.

    Brokers do not report the replicas of failed directories: one row, with the names of all failed
    directories of a broker, shows these replicas.
    """
    directories = cluster.directories
    names = {number: directory.path for number, directory in enumerate(directories)}
    for number, directory in enumerate(directories):
        if directory.path == UNREADABLE:
            failed = [
                other
                for other in cluster.directories_of(directory.broker_id)
                if other != number and not directories[other].is_online
            ]
            if failed:
                names[number] = ", ".join(names.pop(other) for other in failed)
    return names


def find_directories(cluster: ClusterModel, broker_id: int, path: str | None) -> list[int]:
    """Return the indexes of one directory of a broker, or of all of them.

    A broker that does not respond has one directory for the replicas that the metadata places on
    it, and no directory without replicas. A failed directory includes all replicas that its broker
    reports in no directory.

    Raises:
        OperationFailed: there is no such broker or directory.
    """
    known_ids = [broker.broker_id for broker in cluster.brokers]
    if broker_id not in known_ids:
        raise OperationFailed(no_broker_text(broker_id, known_ids))
    own = cluster.directories_of(broker_id)
    plain = None if path is None else posixpath.normpath(path)
    paths = {
        directory: posixpath.normpath(cluster.directories[directory].path) for directory in own
    }
    matching = [directory for directory in own if plain is None or paths[directory] == plain]
    if (
        not matching
        and path is not None
        and {cluster.directories[directory].path for directory in own} <= {UNREADABLE}
    ):
        raise OperationFailed(
            f"broker {broker_id} does not report its log directories, because it does not answer: "
            f"start it, or empty the whole broker: give {broker_id} without a directory"
        )
    if not matching and path is not None:
        shown = [cluster.directories[directory].path for directory in own]
        known = ", ".join(name for name in shown if name != UNREADABLE) or "none"
        raise OperationFailed(f"broker {broker_id} has no log directory {path}; it has {known}")
    if any(not cluster.directories[number].is_online for number in matching):
        # A broker does not say which replicas a failed directory has.
        matching += [
            directory for directory in own if cluster.directories[directory].path == UNREADABLE
        ]
    return sorted(set(matching))
