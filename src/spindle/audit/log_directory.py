"""Audit of the root of one log directory, and of several directories against each other."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spindle.audit.closing_state import ClosingState, state_of
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.odd_files import refuse_odd_file
from spindle.audit.replica import CheckpointedOffsets, ReplicaPlace
from spindle.common.errors import ConfigError, CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, uuid_text
from spindle.log.formats.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    read_offset_checkpoint,
)
from spindle.log.formats.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    parse_meta_properties,
)
from spindle.log.formats.names import PASSED_OVER, DirectoryKind, parse_directory_name
from spindle.pipeline.segments.small_files import FILE_SYSTEM

_AUDITED: tuple[DirectoryKind, ...] = (
    DirectoryKind.CURRENT,
    DirectoryKind.FUTURE,
    DirectoryKind.STRAY,
)


@dataclass(frozen=True, slots=True)
class ListedLogDirectory:
    """The root of a log directory as one look found it.

    Attributes:
        properties: None if `meta.properties` is missing or malformed.
        replicas: current, future and stray replicas, by name.
    """

    path: Path
    state: ClosingState
    properties: MetaProperties | None
    replicas: tuple[ReplicaPlace, ...]
    findings: tuple[AuditFinding, ...]


def list_log_directory(
    path: Path, compacted: Mapping[str, bool] | None = None
) -> ListedLogDirectory:
    """Read the small files and the names in a log directory.

    Args:
        compacted: whether topics are compacted, as far as that is known.

    A directory that cannot be listed is a finding.
    """
    findings = Collector()
    try:
        state = state_of(path)
        # The checkpoints are read before the logs: a log that grows meanwhile is ahead of them.
        offsets = {name: _checkpoint(findings, path / name) for name in OFFSET_CHECKPOINTS}
        names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    except OSError as error:
        _unreadable(findings, path, error)
        return ListedLogDirectory(path, ClosingState.KILLED, None, (), tuple(findings.found))
    properties = _properties(findings, path)
    node_id = None if properties is None else properties.node_id
    replicas = []
    known: set[TopicPartition] = set()
    for name in names:
        if name in PASSED_OVER:
            continue
        try:
            parsed = parse_directory_name(name)
        except ValueError:
            findings.add(
                FindingKind.DIRECTORY_NAME, path / name, "the name is not one of a partition"
            )
            continue
        partition = parsed.topic_partition
        known.add(partition)
        if parsed.kind in _AUDITED:
            checkpointed = CheckpointedOffsets(
                offsets[RECOVERY_POINTS].get(partition),
                offsets[LOG_STARTS].get(partition),
                offsets[HIGH_WATERMARKS].get(partition),
                offsets[CLEANER_OFFSETS].get(partition),
            )
            is_compacted = None if compacted is None else compacted.get(partition.topic)
            replicas.append(
                ReplicaPlace(
                    path / name, partition, parsed.kind, state, node_id, checkpointed, is_compacted
                )
            )
        if parsed.kind is DirectoryKind.STRAY:
            findings.add(
                FindingKind.REPLICA_STRAY,
                path / name,
                f"the metadata does not place {partition} in this directory",
            )
    for partition in sorted(offsets[RECOVERY_POINTS].keys() - known):
        findings.add(
            FindingKind.REPLICA_MISSING,
            path / str(partition),
            f"{RECOVERY_POINTS} names {partition}, which has no directory here",
        )
    return ListedLogDirectory(path, state, properties, tuple(replicas), tuple(findings.found))


def _checkpoint(findings: Collector, path: Path) -> Mapping[TopicPartition, int]:
    try:
        refuse_odd_file(path)
        return read_offset_checkpoint(FILE_SYSTEM, str(path))
    except FileNotFoundError:
        return {}
    except CorruptLog as error:
        findings.add(FindingKind.CHECKPOINT_FILE, path, error.finding)
    except OSError as error:
        _unreadable(findings, path, error)
    return {}


def _properties(findings: Collector, directory: Path) -> MetaProperties | None:
    path = directory / META_PROPERTIES
    kind = FindingKind.META_PROPERTIES
    try:
        refuse_odd_file(path)
        properties = parse_meta_properties(path.read_bytes(), str(path))
    except FileNotFoundError:
        findings.add(kind, path, "the file is missing, so the broker takes the disk for a new one")
        return None
    except (ConfigError, ValueError) as error:
        findings.add(kind, path, str(error).removeprefix(f"{path}: "))
        return None
    except OSError as error:
        _unreadable(findings, path, error)
        return None
    if properties.version and properties.directory_id is None:
        findings.add(kind, path, "it has no directory.id")
    return properties


def _unreadable(findings: Collector, path: Path, error: OSError) -> None:
    reason = error.strerror or str(error)
    findings.add(FindingKind.UNREADABLE, path, f"it cannot be read: {reason}")


def compare_directories(
    directories: Sequence[ListedLogDirectory], topic_ids: Mapping[Path, Uuid | None]
) -> list[AuditFinding]:
    """Compare directories of one or several nodes with each other.

    Args:
        topic_ids: by the path of the replica's directory.
    """
    findings = Collector()
    _compare_identities(findings, directories)
    nodes: dict[int | None, list[ReplicaPlace]] = {}
    for directory in directories:
        for place in directory.replicas:
            nodes.setdefault(place.node_id, []).append(place)
    for places in nodes.values():
        _compare_replicas(findings, places, topic_ids)
    return findings.found


def _compare_identities(findings: Collector, directories: Sequence[ListedLogDirectory]) -> None:
    kind = FindingKind.DIRECTORY_IDENTITY
    ids: dict[Uuid, Path] = {}
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


def _compare_replicas(
    findings: Collector, places: Sequence[ReplicaPlace], topic_ids: Mapping[Path, Uuid | None]
) -> None:
    """Compare the replicas of one node."""
    current: dict[TopicPartition, Path] = {}
    for place in places:
        if place.kind is not DirectoryKind.CURRENT or place.is_metadata_log:
            continue
        other = current.setdefault(place.partition, place.path)
        if other != place.path:
            ids = [topic_ids.get(path) for path in (other, place.path)]
            same = "the same topic id" if ids[0] == ids[1] else "another topic id"
            findings.add(
                FindingKind.REPLICA_DUPLICATE,
                place.path,
                f"the node has {place.partition} in {other} as well, with {same}",
            )
    for place in places:
        if place.kind is DirectoryKind.FUTURE and place.partition not in current:
            findings.add(
                FindingKind.FUTURE_ORPHANED,
                place.path,
                f"the directories hold no current replica of {place.partition}",
            )
