"""Places on a command line: `BROKER`, `BROKER:DIR`, `BROKER:RACK`."""

import posixpath

import click

from spindle.cli.failure import CommandFailed
from spindle.cli.plan.snapshot import UNREADABLE
from spindle.planner.model import ClusterModel


def parse_place(text: str) -> tuple[int, str | None]:
    """Return the broker id, and the part after the colon if there is one.

    Raises:
        click.BadParameter: the broker is not a number.
    """
    broker, colon, rest = text.partition(":")
    if not broker.isdecimal() or (colon and not rest):
        raise click.BadParameter(f"{text!r} is not BROKER or BROKER:DIR, such as 2 or 2:/data/1")
    return int(broker), rest or None


def plain_place(place: str) -> str:
    """Return a place with its path normalized: shell completion appends a slash.

    Raises:
        click.BadParameter: the broker id is not a number.
    """
    broker_id, path = parse_place(place)
    return place if path is None else f"{broker_id}:{posixpath.normpath(path)}"


def place_text(place: str) -> str:
    """Return how a text names `BROKER` or `BROKER:DIR`: `broker 2`, or `2:/data/1`."""
    return place if ":" in place else f"broker {place}"


def directory_names(cluster: ClusterModel) -> dict[int, str]:
    """Return the names of the directories that a table shows, by index.

    Brokers do not report the replicas of failed directories: one row, with the names of all failed
    directories of the broker, shows these replicas.
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

    A broker that does not answer has one directory for the replicas that the metadata places on
    it, and no directory if it places none there. With a directory that has failed come all replicas
    that the broker shows in no directory.

    Raises:
        CommandFailed: there is no such broker or directory.
    """
    if broker_id not in [broker.broker_id for broker in cluster.brokers]:
        known = ", ".join(str(broker.broker_id) for broker in cluster.brokers)
        raise CommandFailed(f"there is no broker {broker_id}; there are {known}")
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
        raise CommandFailed(
            f"broker {broker_id} does not report its log directories, because it does not answer: "
            f"start it, or empty the whole of it, as broker {broker_id} without a directory"
        )
    if not matching and path is not None:
        shown = [cluster.directories[directory].path for directory in own]
        known = ", ".join(name for name in shown if name != UNREADABLE) or "none"
        raise CommandFailed(f"broker {broker_id} has no log directory {path}; it has {known}")
    if any(not cluster.directories[number].is_online for number in matching):
        # A broker does not say which replicas a failed directory has.
        matching += [
            directory for directory in own if cluster.directories[directory].path == UNREADABLE
        ]
    return sorted(set(matching))
