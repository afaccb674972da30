"""Find the replicas in the given log directories, and choose the one to read of each partition.

A replica is identified by (topic id, partition), never by its directory name alone, because a topic
that is deleted and created again has the same name. Directories of several nodes may be given
together: a partition is read from one replica only.
"""

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from spindle.columnar.directory_files import current_replica, read_topic_id
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID, Uuid, uuid_text
from spindle.log.formats.meta_properties import (
    MetaProperties,
    meta_properties_path,
    parse_meta_properties,
)
from spindle.pipeline.errors import rights_explained


class LogDirectoryIdentity(NamedTuple):
    """The identity of a log directory; None for what old versions of Kafka do not write."""

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None


class FormattedLogDirectory(NamedTuple):
    """A formatted log directory."""

    path: Path
    properties: MetaProperties

    @property
    def identity(self) -> LogDirectoryIdentity:
        properties = self.properties
        return LogDirectoryIdentity(
            properties.cluster_id, properties.node_id, properties.directory_id
        )


class PartitionDirectory(NamedTuple):
    """The directory of a partition's current replica; future replicas and strays are left out."""

    partition: TopicPartition
    topic_id: Uuid
    directory: FormattedLogDirectory

    @property
    def path(self) -> Path:
        return self.directory.path / str(self.partition)


def identity_of(path: Path) -> LogDirectoryIdentity | None:
    """Return the identity of the log directory at a path, None if there is none."""
    file = Path(meta_properties_path(str(path)))
    try:
        properties = parse_meta_properties(file.read_bytes(), str(file))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FormattedLogDirectory(path, properties).identity


@rights_explained()
def expand_log_directories(text: str) -> list[FormattedLogDirectory]:
    """Return the log directories of a comma list of paths and globs, in the order given.

    Raises:
        ValueError: a path or glob names no directory, or one without `meta.properties`, or the
            directories belong to different clusters.
        ConfigError: a `meta.properties` is malformed.
    """
    directories: list[FormattedLogDirectory] = []
    for part in (part.strip() for part in text.split(",")):
        paths = sorted(glob.glob(part)) if glob.has_magic(part) else [part]
        folders = [Path(path) for path in paths if Path(path).is_dir()]
        if not folders:
            raise ValueError(f"option logDirs: {part!r} names no directory")
        directories += [_identified(path) for path in folders]
    if not directories:
        raise ValueError("option logDirs is empty; want log directories or a glob of them")
    _check_one_cluster(directories)
    return directories


@rights_explained()
def find_replicas(directories: Iterable[FormattedLogDirectory]) -> list[PartitionDirectory]:
    """Return all current replicas, ordered by directory, then by topic and partition."""
    replicas: list[PartitionDirectory] = []
    for directory in directories:
        names = sorted(entry.name for entry in directory.path.iterdir() if entry.is_dir())
        partitions = [(current_replica(name), directory.path / name) for name in names]
        replicas += sorted(
            PartitionDirectory(partition, read_topic_id(path) or ZERO_UUID, directory)
            for partition, path in partitions
            if partition is not None
        )
    return replicas


def select_topic_id(
    topic: str, replicas: Sequence[PartitionDirectory], wanted: Uuid | None
) -> Uuid:
    """Return the id of the topic that is read.

    Raises:
        ValueError: the directories hold the topic under several ids and none of them is wanted.
    """
    by_id: dict[Uuid, list[str]] = {}
    for replica in replicas:
        by_id.setdefault(replica.topic_id, []).append(str(replica.path))
    if wanted is not None:
        if wanted not in by_id:
            raise ValueError(f"topic {topic!r} with id {uuid_text(wanted)} is in no log directory")
        return wanted
    if len(by_id) > 1:
        places = "; ".join(f"{uuid_text(key)} in {paths[0]}" for key, paths in by_id.items())
        raise ValueError(
            f"topic {topic!r} is there under several ids ({places}): it was deleted and created "
            f'again. Name the one to read with the option topicIds, e.g. {{"{topic}": "..."}}'
        )
    return next(iter(by_id))


def _identified(path: Path) -> FormattedLogDirectory:
    file = Path(meta_properties_path(str(path)))
    try:
        return FormattedLogDirectory(
            path.resolve(), parse_meta_properties(file.read_bytes(), str(file))
        )
    except FileNotFoundError:
        raise ValueError(
            f"option logDirs: {path} has no {file.name}: it is not a formatted log directory"
        ) from None


def _check_one_cluster(directories: Sequence[FormattedLogDirectory]) -> None:
    clusters: dict[str, Path] = {}
    for directory in directories:
        if directory.properties.cluster_id is not None:
            clusters.setdefault(directory.properties.cluster_id, directory.path)
    if len(clusters) > 1:
        (one, first), (other, second) = list(clusters.items())[:2]
        raise ValueError(
            f"option logDirs mixes clusters: {first} belongs to {one}, {second} to {other}"
        )
