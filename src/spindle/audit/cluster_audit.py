"""The part of an audit that queries brokers: metadata, directories, and replicas on other
machines."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from spindle.audit.cluster_checks import compare_reports, place_on_broker
from spindle.audit.confirmation import confirm_findings
from spindle.audit.fetched_replicas import (
    BrokerReplicas,
    ReplicaFetch,
    WantedReplica,
    fetch_replicas,
    not_fetched,
)
from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.log_directory import ListedLogDirectory
from spindle.audit.placement import ClusterPlacement
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import ClosingState, ReplicaPlace
from spindle.audit.reported_cluster import ReportedCluster, read_cluster, read_placement
from spindle.audit.workers import AuditProgress, log_bytes
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ConfigError
from spindle.common.ids import TopicPartition
from spindle.log.formats.names import LogKind

_SILENT_LEADER: Final = "the leader of its partition does not answer, which knows where it begins"


class ClusterAudit:
    """Queries the brokers of a cluster for an audit.

    Args:
        fetches_replicas: fetch replicas that are in no directory of this machine.

    Raises:
        ApiError, ClientError: no broker returned the brokers and topics.
    """

    def __init__(self, client: WireClient, *, fetches_replicas: bool) -> None:
        self._client = client
        self._fetches_replicas = fetches_replicas
        self.cluster = read_cluster(client)

    def load_placement(self) -> ClusterPlacement:
        """Return the present metadata."""
        return read_placement(self._client)

    def check_identity(self, directories: Sequence[ListedLogDirectory]) -> None:
        """Refuse directories of another cluster, whose replicas this metadata does not know.

        Raises:
            ConfigError: names the directory and both clusters.
        """
        expected = self.cluster.view.cluster_id
        for directory in directories:
            cluster_id = None if directory.properties is None else directory.properties.cluster_id
            if cluster_id is not None and expected is not None and cluster_id != expected:
                raise ConfigError(
                    f"{directory.path} belongs to cluster {cluster_id}, but the brokers are of "
                    f"{expected}"
                )

    def fetched_replicas(
        self,
        here: Sequence[ReplicaPlace],
        bytes_per_second: int | None,
        fetch: ReplicaFetch | None,
        on_progress: Callable[[AuditProgress], None],
    ) -> list[AuditedReplica]:
        """Fetch the replicas that are not on this machine.

        Args:
            here: the replicas on this machine.
            bytes_per_second: maximum rate of fetches from each log directory, None for no limit.
        """
        if not self._fetches_replicas:
            return []
        seen = {(place.node_id, place.partition) for place in here if place.kind is LogKind.CURRENT}
        wanted = {
            broker: [place for place in places if (broker, place.place.partition) not in seen]
            for broker, places in _reported_places(self.cluster).items()
        }
        audited: list[AuditedReplica] = []
        for replicas in wanted.values():
            silent = [
                replica for replica in replicas if self._has_silent_leader(replica.place.partition)
            ]
            audited += [not_fetched(replica.place, _SILENT_LEADER) for replica in silent]
            for replica in silent:
                replicas.remove(replica)
        brokers = [
            BrokerReplicas(node, wanted[node.node_id])
            for node in self.cluster.nodes.values()
            if wanted.get(node.node_id)
        ]
        return audited + (fetch or fetch_replicas)(
            self._client, brokers, bytes_per_second=bytes_per_second, on_progress=on_progress
        )

    def _has_silent_leader(self, partition: TopicPartition) -> bool:
        leader = self.cluster.view.topics[partition.topic].partitions[partition.partition].leader
        return isinstance(self.cluster.log_dirs.get(leader, ""), str)

    def confirmed_findings(
        self, directories: Sequence[ListedLogDirectory], recheck_ms: int
    ) -> list[AuditFinding]:
        """Return the findings that several scans of the cluster agree on.

        Args:
            directories: those on this machine; their files are compared with the reports of
                brokers.
        """

        def look() -> tuple[list[AuditFinding], bool]:
            cluster = read_cluster(self._client)
            return [*compare_reports(cluster), *short_replicas(cluster, directories)], True

        return confirm_findings(look, recheck_ms)


def _reported_places(cluster: ReportedCluster) -> dict[int, list[WantedReplica]]:
    """Return the replicas that are where the metadata places them, by broker."""
    places: dict[int, list[WantedReplica]] = {}
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
                    LogKind.CURRENT,
                    ClosingState.IN_USE,
                    broker,
                    is_compacted=cluster.policies.get(partition.topic),
                )
                places.setdefault(broker, []).append(
                    WantedReplica(place, topic.topic_id, replica.size_bytes)
                )
    return places


def short_replicas(
    cluster: ReportedCluster, directories: Sequence[ListedLogDirectory]
) -> list[AuditFinding]:
    """Return the replicas on this machine whose files are smaller than their broker reports.

    The broker reported earlier, and a log only grows, except by retention and compaction; their
    effect does not show in several scans.
    """
    findings = Collector()
    for directory in directories:
        if directory.state is not ClosingState.IN_USE:
            continue
        for place in directory.replicas:
            answer = cluster.log_dirs.get(-1 if place.node_id is None else place.node_id, "")
            if isinstance(answer, str) or place.kind is not LogKind.CURRENT:
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
