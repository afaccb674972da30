"""Compare the metadata of a cluster with its brokers' reports of their log directories."""

from collections.abc import Mapping, Sequence
from typing import Final

from spindle.audit.findings import AuditFinding, Collector, FindingKind
from spindle.audit.reported_cluster import ReportedCluster
from spindle.client.cluster_metadata import PartitionView
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import count_noun

MAX_VOTER_SILENCE_MS: Final = 30_000
"""A voter fetches the metadata log every half second or so."""


def place_on_broker(broker: int, directory: str, partition: object = "") -> str:
    """Return the path of a finding about files that this machine does not see."""
    return f"broker {broker}:{directory}" + (f"/{partition}" if partition else "")


def compare_reports(cluster: ReportedCluster) -> list[AuditFinding]:
    """Return contradictions to the metadata, and brokers that do not respond."""
    findings = Collector()
    partitions = {
        TopicPartition(topic.name, number): partition
        for topic in cluster.view.topics.values()
        for number, partition in topic.partitions.items()
    }
    _check_brokers(findings, cluster, partitions)
    for broker, answer in cluster.log_dirs.items():
        if not isinstance(answer, str):
            _check_directories(findings, broker, answer)
            _check_replicas(findings, broker, answer, partitions, cluster.view.refused)
    for partition, view in partitions.items():
        if view.leader not in cluster.nodes:
            replicas = ", ".join(map(str, view.replicas))
            evidence = f"it has no leader; its replicas are on brokers {replicas}"
            findings.add(FindingKind.PARTITION_OFFLINE, f"partition {partition}", evidence)
    _check_quorum(findings, cluster)
    return findings.found


def _check_brokers(
    findings: Collector,
    cluster: ReportedCluster,
    partitions: Mapping[TopicPartition, PartitionView],
) -> None:
    hosted = [broker for partition in partitions.values() for broker in partition.replicas]
    for broker in sorted({*cluster.nodes, *hosted}):
        answer = cluster.log_dirs.get(broker, "no broker of this id is registered")
        if isinstance(answer, str):
            count = count_noun(hosted.count(broker), "replica")
            evidence = f"it does not answer ({answer}); the metadata places {count} on it"
            findings.add(FindingKind.BROKER_SILENT, f"broker {broker}", evidence)


def _check_directories(findings: Collector, broker: int, answer: Sequence[LogDirView]) -> None:
    for log_dir in answer:
        if log_dir.error is not ErrorCode.NONE:
            evidence = f"the broker does not use the directory: {log_dir.error.name}"
            findings.add(
                FindingKind.DIRECTORY_OFFLINE, place_on_broker(broker, log_dir.path), evidence
            )


def _check_replicas(
    findings: Collector,
    broker: int,
    answer: Sequence[LogDirView],
    partitions: Mapping[TopicPartition, PartitionView],
    refused: Mapping[str, ErrorCode],
) -> None:
    current: dict[TopicPartition, str] = {}
    for directory in answer:
        for partition, replica in directory.replicas.items():
            if replica.is_future or partition.topic in refused:
                continue
            path = place_on_broker(broker, directory.path, partition)
            other = current.setdefault(partition, directory.path)
            registered = partitions.get(partition)
            if other != directory.path:
                evidence = f"the broker has {partition} in {other} as well"
                findings.add(FindingKind.REPLICA_DUPLICATE, path, evidence)
            elif registered is None:
                evidence = f"the metadata has no partition {partition}"
                findings.add(FindingKind.REPLICA_ORPHANED, path, evidence)
            elif broker not in registered.replicas:
                brokers = ", ".join(map(str, registered.replicas))
                evidence = f"the metadata places {partition} on brokers {brokers}, not here"
                findings.add(FindingKind.REPLICA_ORPHANED, path, evidence)
    for directory in answer:
        for partition, replica in directory.replicas.items():
            if replica.is_future and partition not in current:
                path = place_on_broker(broker, directory.path, partition)
                evidence = f"the broker has no current replica of {partition}"
                findings.add(FindingKind.FUTURE_ORPHANED, path, evidence)
    if any(log_dir.error is not ErrorCode.NONE for log_dir in answer):
        return  # a missing replica may be in the offline directory
    for partition, registered in partitions.items():
        if broker in registered.replicas and partition not in current:
            evidence = f"the metadata places {partition} on this broker, which does not have it"
            findings.add(
                FindingKind.REPLICA_MISSING, place_on_broker(broker, "", partition), evidence
            )


def _check_quorum(findings: Collector, cluster: ReportedCluster) -> None:
    """Check that all voters follow the metadata log, by the clock of the leader."""
    quorum = cluster.quorum
    if isinstance(quorum, str):
        evidence = f"no broker reports its state: {quorum}"
        findings.add(FindingKind.BROKER_SILENT, "metadata quorum", evidence)
        return
    now_ms = max((voter.last_caught_up_ms for voter in quorum.voters), default=-1)
    for voter in quorum.voters:
        if voter.node_id == quorum.leader_id or now_ms < 0:
            continue
        silence_ms = now_ms - voter.last_fetch_ms
        if silence_ms > MAX_VOTER_SILENCE_MS:
            since = "" if voter.last_fetch_ms < 0 else f" for {silence_ms // 1000} s"
            evidence = f"it has not fetched the metadata log{since}"
            findings.add(FindingKind.BROKER_SILENT, f"controller {voter.node_id}", evidence)
