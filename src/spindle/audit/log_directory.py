"""Audit of the root of one log directory, and comparison of several directories."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spindle.audit.directory_checkpoints import DirectoryCheckpoints
from spindle.audit.directory_identities import (
    IdentifiedRoot,
    closing_epoch,
    compare_identities,
    read_identity,
)
from spindle.audit.file_limits import refuse_odd_file
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.replica_place import ClosingState, ReplicaPlace, state_of
from spindle.columnar.directory_files import FILE_SYSTEM
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.log.formats.checkpoints import OFFSET_CHECKPOINTS
from spindle.log.formats.meta_properties import META_PROPERTIES, MetaProperties
from spindle.log.formats.names import (
    LOG_SUFFIX,
    PARTITION_METADATA,
    PASSED_OVER,
    LogKind,
    parse_directory_name,
)
from spindle.log.formats.partition_metadata import read_partition_metadata
from spindle.protocol.sentinels import NO_BROKER_EPOCH

_AUDITED: tuple[LogKind, ...] = (
    LogKind.CURRENT,
    LogKind.FUTURE,
    LogKind.STRAY,
)


@dataclass(frozen=True, slots=True)
class ListedLogDirectory:
    """The root of a log directory in one scan.

    Attributes:
        properties: None if `meta.properties` is missing or malformed.
        replicas: current, future and stray replicas, by name.
        broker_epoch: of the run that closed the directory cleanly, -1 if unknown.
    """

    path: Path
    state: ClosingState
    properties: MetaProperties | None
    replicas: tuple[ReplicaPlace, ...]
    findings: tuple[AuditFinding, ...]
    broker_epoch: int = NO_BROKER_EPOCH


def list_log_directory(
    path: Path, compacted: Mapping[str, bool] | None = None
) -> ListedLogDirectory:
    """Read the small files and the names in a log directory; one that cannot be read is a finding.

    Args:
        compacted: whether topics are compacted, for topics whose policy is known.
    """
    findings = Collector()
    try:
        state = state_of(path)
        # The checkpoints are read before the logs: a log that grows meanwhile is ahead of them.
        checkpoints = DirectoryCheckpoints(findings, path)
        names = _directory_names(findings, path)
    except OSError as error:
        findings.add_unreadable(path, error)
        return ListedLogDirectory(path, ClosingState.KILLED, None, (), tuple(findings.found))
    if _is_empty(path, names):
        evidence = "it has neither meta.properties, nor checkpoints, nor replicas"
        findings.add(FindingKind.DIRECTORY_EMPTY, path, evidence)
        return ListedLogDirectory(path, state, None, (), tuple(findings.found))
    properties = read_identity(findings, path)
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
            offsets = checkpoints.of(partition)
            is_compacted = None if compacted is None else compacted.get(partition.topic)
            replicas.append(
                ReplicaPlace(
                    path / name, partition, parsed.kind, state, node_id, offsets, is_compacted
                )
            )
        if parsed.kind is LogKind.STRAY:
            findings.add(
                FindingKind.REPLICA_STRAY,
                path / name,
                f"the metadata does not place {partition} in this directory",
            )
        elif parsed.kind is LogKind.DELETED and state is not ClosingState.IN_USE:
            _check_deleted(findings, path / name)
    current = {place.partition for place in replicas if place.is_current_of_topic}
    is_closed = state is ClosingState.CLOSED
    checkpoints.check(current, known, is_closed=is_closed)
    if state is ClosingState.KILLED:
        checkpoints.check_after_kill(_created(replicas))
    epoch = closing_epoch(path) if is_closed else NO_BROKER_EPOCH
    own_findings = tuple(findings.found)
    return ListedLogDirectory(path, state, properties, tuple(replicas), own_findings, epoch)


def _check_deleted(findings: Collector, path: Path) -> None:
    """Report a log that waits for its deletion and has records, but no topic id.

    It may be the source of an interrupted move. A removal begins with the segments.
    """
    try:
        refuse_odd_file(path / PARTITION_METADATA)
        if read_partition_metadata(FILE_SYSTEM, str(path)) is not None:
            return
        reason = "there is no topic id"
    except CorruptLog as error:
        reason = f"the topic id cannot be read: {error.finding}"
    except OSError as error:
        findings.add_unreadable(path / PARTITION_METADATA, error)
        return
    with suppress(OSError):
        if any(segment.stat().st_size for segment in path.glob(f"*{LOG_SUFFIX}")):
            evidence = f"{reason}, so the broker neither puts the log back nor knows what it is"
            findings.add(FindingKind.REPLICA_ORPHANED, path, evidence)


def _is_empty(path: Path, names: Sequence[str]) -> bool:
    """Return whether a directory has no file of a broker or of `format`."""
    return not any((path / name).exists() for name in (META_PROPERTIES, *OFFSET_CHECKPOINTS)) and (
        not any(map(_is_replica_name, names))
    )


def _is_replica_name(name: str) -> bool:
    try:
        parse_directory_name(name)
    except ValueError:
        return False
    return name not in PASSED_OVER


def _created(replicas: Iterable[ReplicaPlace]) -> dict[TopicPartition, float]:
    """Return when the current replicas were created, in seconds since 1970."""
    created = {}
    for place in replicas:
        if place.is_current_of_topic:
            with suppress(OSError):
                created[place.partition] = (place.path / PARTITION_METADATA).stat().st_mtime
    return created


def _directory_names(findings: Collector, path: Path) -> list[str]:
    """Return the names of the directories in a log directory, sorted."""
    names = []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                if entry.is_dir():
                    names.append(entry.name)
            except OSError as error:  # a symbolic link to itself, for example
                findings.add_unreadable(path / entry.name, error)
    return sorted(names)


def compare_directories(
    directories: Sequence[ListedLogDirectory], topic_ids: Mapping[Path, Uuid | None]
) -> list[AuditFinding]:
    """Compare directories of one or several nodes with each other.

    Args:
        topic_ids: by the path of the replica's directory.
    """
    findings = Collector()
    compare_identities(
        findings,
        [
            IdentifiedRoot(directory.path, directory.properties, directory.broker_epoch)
            for directory in directories
        ],
    )
    nodes: dict[int | None, list[ReplicaPlace]] = {}
    for directory in directories:
        for place in directory.replicas:
            nodes.setdefault(place.node_id, []).append(place)
    for places in nodes.values():
        _compare_replicas(findings, places, topic_ids)
    return findings.found


def _compare_replicas(
    findings: Collector, places: Sequence[ReplicaPlace], topic_ids: Mapping[Path, Uuid | None]
) -> None:
    """Compare the replicas of one node."""
    current: dict[TopicPartition, Path] = {}
    for place in places:
        if not place.is_current_of_topic:
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
        if place.kind is LogKind.FUTURE and place.partition not in current:
            findings.add(
                FindingKind.FUTURE_ORPHANED,
                place.path,
                f"the directories hold no current replica of {place.partition}",
            )
