"""A cluster of three changes from Kafka to Spindle and back, node by node, under traffic.

Directories and ports stay. Records are acknowledged by all in-sync replicas, most of the time on
both programs; the controller quorum is mixed in the same way. At the end, the replicas of a
partition are equal on all disks.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.cluster import Cluster
from peers.java_tools import JavaTools
from peers.paths import OLDER_RELEASE, RELEASE
from peers.verified_traffic import VerifiedTraffic

pytestmark = pytest.mark.timeout(400)

TOPIC = "under-way"
LIMIT_S = 30.0


def create(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(LIMIT_S)


def check_replicas(cluster: Cluster) -> None:
    """Assert that the replicas of each partition hold the same bytes."""
    cluster.kill()
    result = cluster.replicas(TOPIC)
    assert sorted(result) == list(range(6))
    for partition, replicas in result.items():
        assert len(replicas) == 3
        assert replicas[0] == replicas[1] == replicas[2], f"replicas of {partition} differ"
    assert any(replicas[0] for replicas in result.values())


def test_a_cluster_changes_hands_node_by_node_and_back(tmp_path: Path) -> None:
    with Cluster(tmp_path, ["kafka"] * 3) as cluster:
        create(cluster)
        with VerifiedTraffic(tmp_path, cluster.bootstrap, TOPIC) as traffic:
            for program in ("spindle", "kafka"):
                for seat in cluster.seats:
                    cluster.wait_in_sync([TOPIC])
                    cluster.hand_over(seat, program, is_killed=seat == 2)
            cluster.wait_in_sync([TOPIC])
        assert traffic.check() > 1000
        check_replicas(cluster)


def test_kafkas_nodes_are_upgraded_beside_spindle_and_back(
    tmp_path: Path, java_tools: JavaTools
) -> None:
    """From 4.3.1 to 4.4.0, back before the upgrade is finalised, and on to the newest level."""
    old, new = f"kafka {OLDER_RELEASE}", f"kafka {RELEASE}"
    with Cluster(tmp_path, [old, old, "spindle"], release="4.3") as cluster:
        create(cluster)
        with VerifiedTraffic(tmp_path, cluster.bootstrap, TOPIC) as traffic:
            for seat, program, is_killed in (
                (1, new, False),
                (2, new, True),
                (1, old, True),
                (1, new, False),
            ):
                cluster.wait_in_sync([TOPIC])
                cluster.hand_over(seat, program, is_killed=is_killed)
            cluster.wait_in_sync([TOPIC])
            upgrade = ("upgrade", "--release-version", "4.4")
            java_tools.run("features", "--bootstrap-server", cluster.bootstrap, *upgrade).check()
            for seat in cluster.seats:
                cluster.wait_in_sync([TOPIC])
                cluster.restart(seat, is_killed=True)
            cluster.wait_in_sync([TOPIC])
        assert traffic.check() > 1000
        check_replicas(cluster)


@pytest.mark.parametrize(
    "programs", [("kafka", "kafka", "spindle"), ("spindle", "spindle", "kafka")]
)
def test_every_node_of_a_mixed_cluster_is_killed_under_traffic(
    tmp_path: Path, programs: tuple[str, str, str]
) -> None:
    with Cluster(tmp_path, programs) as cluster:
        create(cluster)
        with VerifiedTraffic(tmp_path, cluster.bootstrap, TOPIC) as traffic:
            for seat in cluster.seats:
                cluster.wait_in_sync([TOPIC])
                cluster.restart(seat, is_killed=True)
            cluster.wait_in_sync([TOPIC])
        assert traffic.check() > 1000
        check_replicas(cluster)
