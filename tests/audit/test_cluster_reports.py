"""The checks of what brokers report against the metadata of their cluster; no broker runs."""

from dataclasses import replace

import pytest

from spindle.audit.cluster_checks import compare_reports
from spindle.audit.reported_cluster import ReportedCluster
from spindle.client.admin.cluster import ClusterNode, QuorumDescription, QuorumReplica
from spindle.client.cluster_metadata import ClusterView, PartitionView, TopicView
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition

PARTITION = TopicPartition("orders", 0)
STRANGER = TopicPartition("gone", 3)
NOW_MS = 1_700_000_000_000


def directory(path: str, *partitions: TopicPartition, is_future: bool = False) -> LogDirView:
    replicas = {partition: ReplicaOnDisk(100, 0, is_future) for partition in partitions}
    return LogDirView(path, ErrorCode.NONE, -1, -1, False, replicas)


def voter(node_id: int, last_fetch_ms: int) -> QuorumReplica:
    return QuorumReplica(node_id, bytes(16), 5, last_fetch_ms, last_fetch_ms)


@pytest.fixture
def cluster() -> ReportedCluster:
    """One partition on brokers 1 and 2; nothing is wrong."""
    partition = PartitionView(0, 1, 3, (1, 2), (1, 2), ())
    topic = TopicView("orders", b"o" * 16, False, {0: partition})
    return ReportedCluster(
        {number: ClusterNode(number, "host", 9092, None, False) for number in (1, 2)},
        ClusterView("cluster", 1, {}, {"orders": topic}),
        {1: [directory("/a", PARTITION)], 2: [directory("/b"), directory("/c", PARTITION)]},
        {"orders": False},
        QuorumDescription(1, 1, 5, (voter(1, NOW_MS), voter(2, NOW_MS - 400)), (), {}),
    )


def found(cluster: ReportedCluster) -> list[tuple[str, str]]:
    return [(report.kind.text, report.path) for report in compare_reports(cluster)]


def with_broker_2(cluster: ReportedCluster, *directories: LogDirView) -> ReportedCluster:
    return replace(cluster, log_dirs={**cluster.log_dirs, 2: list(directories)})


def test_a_cluster_in_order_has_no_findings(cluster: ReportedCluster) -> None:
    assert found(cluster) == []


def test_replicas_are_missing_orphaned_duplicate_or_without_their_source(
    cluster: ReportedCluster,
) -> None:
    missing = with_broker_2(cluster, directory("/b"))
    assert found(missing) == [("replica-missing", "broker 2:/orders-0")]
    orphaned = with_broker_2(cluster, directory("/b", PARTITION, STRANGER))
    assert found(orphaned) == [("replica-orphaned", "broker 2:/b/gone-3")]
    twice = with_broker_2(cluster, directory("/b", PARTITION), directory("/c", PARTITION))
    assert found(twice) == [("replica-duplicate", "broker 2:/c/orders-0")]
    future = directory("/b", PARTITION, is_future=True)
    assert found(with_broker_2(cluster, future, directory("/c", PARTITION))) == []
    assert ("future-orphaned", "broker 2:/b/orders-0") in found(with_broker_2(cluster, future))


def test_a_replica_in_a_directory_that_is_offline_is_not_missing_as_well(
    cluster: ReportedCluster,
) -> None:
    offline = replace(directory("/c"), error=ErrorCode.KAFKA_STORAGE_ERROR)
    shown = found(with_broker_2(cluster, directory("/b"), offline))
    assert shown == [("directory-offline", "broker 2:/c")]


def test_brokers_and_voters_that_are_silent_are_named(cluster: ReportedCluster) -> None:
    silent = replace(cluster, log_dirs={**cluster.log_dirs, 2: "no answer"})
    (finding,) = compare_reports(silent)
    assert (finding.kind.text, finding.path) == ("broker-silent", "broker 2")
    assert "(no answer); the metadata places 1 replica on it" in finding.evidence
    quorum = QuorumDescription(1, 1, 5, (voter(1, NOW_MS), voter(7, NOW_MS - 45_000)), (), {})
    assert found(replace(cluster, quorum=quorum)) == [("broker-silent", "controller 7")]
    assert found(replace(cluster, quorum="refused")) == [("broker-silent", "metadata quorum")]


def test_a_partition_without_a_leader_is_offline(cluster: ReportedCluster) -> None:
    topic = cluster.view.topics["orders"]
    lost = replace(topic, partitions={0: replace(topic.partitions[0], leader=-1)})
    view = replace(cluster.view, topics={"orders": lost})
    assert found(replace(cluster, view=view)) == [("partition-offline", "partition orders-0")]
