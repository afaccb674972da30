"""Compare the metadata of a cluster with the replicas on its disks."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.log_directory import ListedLogDirectory
from spindle.audit.replica_place import ReplicaPlace
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, uuid_text
from spindle.log.formats.meta_properties import META_PROPERTIES


class MetadataNotRead(Exception):
    """The audited directories have a metadata log, and the metadata in it cannot be used.

    Attributes:
        path: the folder of the log.
        reason: as a part of a sentence.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def finding(self) -> AuditFinding:
        """Return the finding, which names the checks that are left out."""
        evidence = (
            f"{self.reason}; so the replicas are not compared with the metadata of the cluster: "
            "missing, stray and orphaned replicas, topic ids, directory ids, cleanup policies and "
            "leaders"
        )
        return AuditFinding(FindingKind.METADATA_NOT_READ, str(self.path), evidence)


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """One partition: the nodes of its replicas and their directories, -1 for no leader.

    Attributes:
        directories: the id of the directory of each replica, in the order of `replicas`.
        elr: the replicas that may lead while none is in sync (KIP-966).
    """

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    leader: int
    elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedTopic:
    """A topic; `is_compacted` is None if it has the brokers' default policy."""

    name: str
    topic_id: Uuid
    is_compacted: bool | None
    partitions: Mapping[int, PlacedPartition]


@dataclass(frozen=True, slots=True)
class ClusterPlacement:
    """All topics of a cluster, by id, and the nodes of registered log directories, by their id.

    Attributes:
        voters: the node ids of the voters of the metadata quorum; empty if they are not known.
    """

    topics: Mapping[Uuid, PlacedTopic]
    nodes: Mapping[Uuid, int] = field(default_factory=dict)
    voters: Collection[int] = ()

    def partition(self, topic_id: Uuid, number: int) -> PlacedPartition | None:
        """Return a partition, None if there is none."""
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def policies(self) -> dict[str, bool]:
        """Return whether topics are compacted, for topics with their own policy."""
        return {
            topic.name: topic.is_compacted
            for topic in self.topics.values()
            if topic.is_compacted is not None
        }


def compare_with_metadata(
    placement: ClusterPlacement,
    directories: Sequence[ListedLogDirectory],
    topic_ids: Mapping[Path, Uuid | None],
) -> list[AuditFinding]:
    """Return the misplaced and the missing replicas.

    Args:
        topic_ids: by the path of the replica's directory; a replica that is not named was not
            audited.
    """
    findings = Collector()
    ids_of_names = {topic.name: topic.topic_id for topic in placement.topics.values()}
    paths: dict[tuple[int, Uuid, int], Path] = {}
    for directory, node in _identified(directories):
        for place in directory.replicas:
            topic_id = topic_ids.get(place.path)
            if not place.is_current_of_topic or topic_id is None:
                continue
            findings.replica = str(place.path)
            partition = placement.partition(topic_id, place.partition.partition)
            if partition is None:
                _add_unknown(findings, place, topic_id, ids_of_names.get(place.partition.topic))
            elif node not in partition.replicas:
                findings.add(
                    FindingKind.REPLICA_ORPHANED,
                    place.path,
                    f"the metadata places {place.partition} on nodes "
                    f"{', '.join(map(str, partition.replicas))}, not on node {node}",
                )
            else:
                paths[node, topic_id, place.partition.partition] = directory.path
    findings.replica = ""
    _check_nodes(findings, placement, directories)
    _check_places(findings, placement, directories, paths)
    return findings.found


def _check_nodes(
    findings: Collector,
    placement: ClusterPlacement,
    directories: Sequence[ListedLogDirectory],
) -> None:
    """Check that directories belong to the nodes that have registered them."""
    for directory, node in _identified(directories):
        directory_id = None if directory.properties is None else directory.properties.directory_id
        if directory_id is None:
            continue
        other = _lost_id(placement, directories, directory, node)
        if other is not None:
            findings.add(
                FindingKind.DIRECTORY_IDENTITY,
                directory.path / META_PROPERTIES,
                f"directory.id is {uuid_text(directory_id)}, which nobody has registered, but the "
                f"metadata places its replicas in directory {uuid_text(other)} of node {node}",
            )
        elif placement.nodes.get(directory_id, node) != node:
            findings.add(
                FindingKind.DIRECTORY_IDENTITY,
                directory.path / META_PROPERTIES,
                f"node.id is {node}, but node {placement.nodes[directory_id]} has registered "
                f"directory.id {uuid_text(directory_id)}",
            )


def _lost_id(
    placement: ClusterPlacement,
    directories: Sequence[ListedLogDirectory],
    directory: ListedLogDirectory,
    node: int,
) -> Uuid | None:
    """Return the former id of a directory with an unknown id, None if that is not certain.

    A failed disk that comes back has an unknown id as well. So either the node's other registered
    directories are audited, too, or this one holds the metadata log; and the metadata places all of
    its replicas in the one missing directory.
    """
    own = None if directory.properties is None else directory.properties.directory_id
    registered = {data for data, owner in placement.nodes.items() if owner == node}
    if own in placement.nodes or not registered:
        return None
    audited = {
        directory.properties.directory_id
        for directory, owner in _identified(directories)
        if owner == node and directory.properties is not None
    }
    missing = registered - audited
    is_whole_node = len(registered) > 1 or any(p.is_metadata_log for p in directory.replicas)
    if len(missing) != 1 or not is_whole_node:
        return None
    topics = {topic.name: topic for topic in placement.topics.values()}
    placed = set()
    for place in directory.replicas:
        topic = topics.get(place.partition.topic)
        partition = None if topic is None else topic.partitions.get(place.partition.partition)
        if place.is_current_of_topic and partition is not None and node in partition.replicas:
            placed.add(partition.directories[partition.replicas.index(node)])
    return next(iter(missing)) if placed == missing else None


def _identified(
    directories: Iterable[ListedLogDirectory],
) -> Iterable[tuple[ListedLogDirectory, int]]:
    for directory in directories:
        if directory.properties is not None and directory.properties.node_id is not None:
            yield directory, directory.properties.node_id


def _add_unknown(
    findings: Collector, place: ReplicaPlace, topic_id: Uuid, present: Uuid | None
) -> None:
    text = uuid_text(topic_id)
    if present is None:
        evidence = f"the metadata has no topic {place.partition.topic} with id {text}"
        findings.add(FindingKind.REPLICA_ORPHANED, place.path, evidence)
    elif present != topic_id:
        evidence = (
            f"its topic id is {text}, but topic {place.partition.topic} has {uuid_text(present)}"
        )
        findings.add(FindingKind.TOPIC_ID_STALE, place.path, evidence)
    else:
        evidence = f"the metadata has no partition {place.partition}"
        findings.add(FindingKind.REPLICA_ORPHANED, place.path, evidence)


def _check_places(
    findings: Collector,
    placement: ClusterPlacement,
    directories: Sequence[ListedLogDirectory],
    found: Mapping[tuple[int, Uuid, int], Path],
) -> None:
    """Check that the directories have all replicas that the metadata places there."""
    paths = {
        (node, directory.properties.directory_id): directory.path
        for directory, node in _identified(directories)
        if directory.properties is not None
    }
    for topic in placement.topics.values():
        for number, partition in topic.partitions.items():
            for node, directory_id in zip(partition.replicas, partition.directories, strict=True):
                wanted = paths.get((node, directory_id))
                if wanted is None:
                    continue  # that directory is not audited
                actual = found.get((node, topic.topic_id, number))
                name = TopicPartition(topic.name, number)
                if actual is None:
                    findings.add(
                        FindingKind.REPLICA_MISSING,
                        wanted / str(name),
                        f"the metadata places {name} in this directory, where it is not",
                    )
                elif actual != wanted:
                    findings.add(
                        FindingKind.DIRECTORY_ASSIGNMENT,
                        actual / str(name),
                        f"the metadata places {name} in {wanted}, but it is in {actual}",
                    )
