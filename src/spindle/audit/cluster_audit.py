"""The part of an audit that asks brokers: metadata, directories, and replicas on other machines."""

from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

from spindle.audit.closing_state import ClosingState
from spindle.audit.cluster_checks import compare_reports, place_on_broker
from spindle.audit.fetched_replica import audit_fetched_replica
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.log_directory import ListedLogDirectory
from spindle.audit.placement import ClusterPlacement
from spindle.audit.replica import AuditedReplica, ReplicaPlace, unreadable_replica
from spindle.audit.reported_cluster import ReportedCluster, read_cluster, read_placement
from spindle.audit.second_looks import confirm
from spindle.audit.throttle import ReadThrottle
from spindle.audit.workers import log_bytes
from spindle.client.cluster import BrokerAddress
from spindle.client.wire.cluster import WireClient
from spindle.client.wire.every_broker import BROKER_FAILURES, ask_every_broker
from spindle.common.errors import ApiError, ConfigError
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.log.formats.names import DirectoryKind

_SILENT_LEADER: Final = "the leader of its partition does not answer, which knows where it begins"


class _Wanted(NamedTuple):
    place: ReplicaPlace
    topic_id: Uuid


class ClusterAudit:
    """Asks the brokers of a cluster on behalf of an audit.

    Args:
        fetches_replicas: replicas that no directory of this machine holds are fetched.

    Raises:
        ApiError, ClientError: no broker named the brokers and topics.
    """

    def __init__(self, client: WireClient, *, fetches_replicas: bool) -> None:
        self._client = client
        self._fetches_replicas = fetches_replicas
        self.cluster = read_cluster(client)

    def load_placement(self) -> ClusterPlacement:
        """Return the present metadata."""
        return read_placement(self._client)

    def check_identity(self, directories: Sequence[ListedLogDirectory]) -> None:
        """Refuse directories of another cluster: nothing in them would be in its place.

        Raises:
            ConfigError: names the directory and both clusters.
        """
        expected = self.cluster.view.cluster_id
        for each in directories:
            found = None if each.properties is None else each.properties.cluster_id
            if found is not None and expected is not None and found != expected:
                raise ConfigError(
                    f"{each.path} belongs to cluster {found}, but the brokers are of {expected}"
                )

    def fetched_replicas(
        self, here: Sequence[ReplicaPlace], bytes_per_second: int | None
    ) -> list[AuditedReplica]:
        """Fetch the replicas that are not on this machine, from all brokers at the same time.

        Args:
            here: the replicas on this machine.
            bytes_per_second: what is fetched at most from each log directory, None for no limit.
        """
        if not self._fetches_replicas:
            return []
        seen = {
            (each.node_id, each.partition) for each in here if each.kind is DirectoryKind.CURRENT
        }
        wanted = {
            broker: [each for each in places if (broker, each.place.partition) not in seen]
            for broker, places in _reported_places(self.cluster).items()
        }
        directories = {each.place.path.parent for places in wanted.values() for each in places}
        throttle = ReadThrottle(bytes_per_second, directories, get_context("fork"))
        nodes = [node for node in self.cluster.nodes.values() if wanted.get(node.node_id)]
        answers = ask_every_broker(
            self._client,
            nodes,
            lambda client, broker: self._fetch(client, broker, wanted[broker.node_id], throttle),
        )
        found = []
        for answer in answers.values():
            if isinstance(answer, Exception):
                raise answer
            found += answer
        return found

    def _fetch(
        self,
        client: WireClient,
        broker: BrokerAddress,
        wanted: Sequence[_Wanted],
        throttle: ReadThrottle,
    ) -> list[AuditedReplica]:
        found = []
        for number, (place, topic_id) in enumerate(wanted):
            if isinstance(self.cluster.log_dirs.get(self._leader(place.partition), ""), str):
                found.append(_not_fetched(place, _SILENT_LEADER))
                continue
            wait = partial(throttle.wait, place.path.parent)
            try:
                found.append(audit_fetched_replica(client, broker, place, topic_id, on_bytes=wait))
            except ApiError as error:
                if not _has_moved(client, place):
                    found.append(_not_fetched(place, str(error)))
            except BROKER_FAILURES as error:
                # Each further request might take as long to fail.
                reason = f"{error}; with it {len(wanted) - number - 1} more replicas of the broker"
                found.append(_not_fetched(place, reason))
                break
        return found

    def _leader(self, partition: TopicPartition) -> int:
        return self.cluster.view.topics[partition.topic].partitions[partition.partition].leader

    def confirmed_findings(
        self, directories: Sequence[ListedLogDirectory], second_look_ms: int
    ) -> list[AuditFinding]:
        """Return what is wrong in several looks at the cluster.

        Args:
            directories: those on this machine; their files are compared with what brokers report.
        """

        def look() -> tuple[list[AuditFinding], bool]:
            cluster = read_cluster(self._client)
            return [*compare_reports(cluster), *short_replicas(cluster, directories)], True

        return confirm(look, second_look_ms)


def _reported_places(cluster: ReportedCluster) -> dict[int, list[_Wanted]]:
    """Return the replicas that are where the metadata places them, by broker."""
    places: dict[int, list[_Wanted]] = {}
    for broker, answer in cluster.log_dirs.items():
        for directory in () if isinstance(answer, str) else answer:
            for partition, replica in sorted(directory.replicas.items()):
                topic = cluster.view.topics.get(partition.topic)
                registered = None if topic is None else topic.partitions.get(partition.partition)
                if replica.is_future or topic is None or registered is None:
                    continue
                if broker not in registered.replicas:
                    continue
                place = ReplicaPlace(
                    Path(place_on_broker(broker, directory.path, partition)),
                    partition,
                    DirectoryKind.CURRENT,
                    ClosingState.IN_USE,
                    broker,
                    is_compacted=cluster.policies.get(partition.topic),
                )
                places.setdefault(broker, []).append(_Wanted(place, topic.topic_id))
    return places


def _has_moved(client: WireClient, place: ReplicaPlace) -> bool:
    """Return whether the metadata has taken the replica from its broker meanwhile."""
    name, number = place.partition
    topic = client.metadata().topics.get(name)
    found = None if topic is None else topic.partitions.get(number)
    return found is None or place.node_id not in found.replicas


def _not_fetched(place: ReplicaPlace, reason: str) -> AuditedReplica:
    return unreadable_replica(place, OSError(f"it was not fetched: {reason}"))


def short_replicas(
    cluster: ReportedCluster, directories: Sequence[ListedLogDirectory]
) -> list[AuditFinding]:
    """Return the replicas on this machine whose files are smaller than their broker believes.

    The broker was asked before, and a log grows, unless retention or compaction is at work: what
    they do at one moment is not there in several looks.
    """
    findings = Collector()
    for directory in directories:
        if directory.state is not ClosingState.IN_USE:
            continue
        for place in directory.replicas:
            answer = cluster.log_dirs.get(-1 if place.node_id is None else place.node_id, "")
            if isinstance(answer, str) or place.kind is not DirectoryKind.CURRENT:
                continue
            for view in answer:
                replica = view.replicas.get(place.partition)
                if replica is None or replica.is_future or view.path != str(directory.path):
                    continue
                size_bytes = log_bytes(place.path)
                if size_bytes < replica.size_bytes and place.path.is_dir():
                    findings.replica = str(place.path)
                    findings.add(
                        FindingKind.REPLICA_SIZE,
                        place.path,
                        f"its segments have {size_bytes} bytes, but broker {place.node_id} "
                        f"believes {replica.size_bytes}",
                    )
    return findings.found
