"""Checks of the identities of log directories in `meta.properties`, alone and with each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spindle.audit.file_limits import refuse_odd_file
from spindle.audit.findings import Collector, FindingKind
from spindle.columnar.directory_files import FILE_SYSTEM
from spindle.common.errors import ConfigError
from spindle.common.uuids import Uuid, is_reserved_directory_id, uuid_text
from spindle.log.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE, read_clean_shutdown
from spindle.log.formats.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    parse_meta_properties,
)
from spindle.protocol.sentinels import NO_BROKER_EPOCH


def read_identity(findings: Collector, directory: Path) -> MetaProperties | None:
    """Return the identity of a log directory; None, and a finding, if it cannot be read."""
    path = directory / META_PROPERTIES
    kind = FindingKind.META_PROPERTIES
    try:
        refuse_odd_file(path)
        properties = parse_meta_properties(path.read_bytes(), str(path))
    except FileNotFoundError:
        findings.add(
            kind,
            path,
            "the file is missing, and the broker does not start without it; if the directory has "
            "no replicas either, its disk may not be mounted",
        )
        return None
    except (ConfigError, ValueError) as error:
        findings.add(kind, path, str(error).removeprefix(f"{path}: "))
        return None
    except OSError as error:
        findings.add_unreadable(path, error)
        return None
    if properties.cluster_id is None or properties.node_id is None:
        # Only version 0 may lack them, and a file that lost its content has no version either.
        findings.add(kind, path, "it has no cluster.id and node.id: its content is lost")
        return None
    if properties.node_id < 0:
        findings.add(kind, path, f"node.id is {properties.node_id}")
    directory_id = properties.directory_id
    if directory_id is None:
        if properties.version:
            findings.add(kind, path, "it has no directory.id")
    elif is_reserved_directory_id(directory_id):
        findings.add(kind, path, f"directory.id {uuid_text(directory_id)} is a reserved one")
    return properties


def closing_epoch(directory: Path) -> int:
    """Return the broker epoch of the run that closed a log directory cleanly, -1 if unknown."""
    try:
        refuse_odd_file(directory / CLEAN_SHUTDOWN_FILE)
        epoch = read_clean_shutdown(FILE_SYSTEM, str(directory))
    except OSError:
        return NO_BROKER_EPOCH
    return NO_BROKER_EPOCH if epoch is None else epoch


class IdentifiedRoot(NamedTuple):
    """The identity of a log directory.

    Attributes:
        properties: None if they cannot be read.
        broker_epoch: of the run that closed it cleanly, -1 if unknown.
    """

    path: Path
    properties: MetaProperties | None
    broker_epoch: int


def compare_identities(findings: Collector, directories: Sequence[IdentifiedRoot]) -> None:
    """Compare the identities of log directories of one cluster with each other.

    Each broker epoch of a cluster belongs to one run of one broker. So directories that were
    closed by the same run are of the same node.
    """
    kind = FindingKind.DIRECTORY_IDENTITY
    ids: dict[Uuid, Path] = {}
    nodes: dict[tuple[str | None, int], tuple[int | None, Path]] = {}
    cluster: tuple[str, Path] | None = None
    for directory in directories:
        properties, path = directory.properties, directory.path / META_PROPERTIES
        if properties is None:
            continue
        if properties.directory_id is not None:
            other = ids.setdefault(properties.directory_id, directory.path)
            if other != directory.path:
                text = uuid_text(properties.directory_id)
                findings.add(kind, path, f"directory.id {text} is that of {other}, too")
        if properties.cluster_id is not None:
            cluster = cluster or (properties.cluster_id, directory.path)
            if properties.cluster_id != cluster[0]:
                findings.add(
                    kind,
                    path,
                    f"cluster.id is {properties.cluster_id}, but that of {cluster[1]} is "
                    f"{cluster[0]}",
                )
        if directory.broker_epoch > 0:
            run = (properties.cluster_id, directory.broker_epoch)
            node_id, closed = nodes.setdefault(run, (properties.node_id, directory.path))
            if properties.node_id != node_id:
                findings.add(
                    kind,
                    path,
                    f"node.id is {properties.node_id}, but that of {closed} is {node_id}, and "
                    f"both were closed by the broker with epoch {directory.broker_epoch}",
                )
