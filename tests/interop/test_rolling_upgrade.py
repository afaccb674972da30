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
from peers.verified_traffic import VerifiedTraffic

pytestmark = pytest.mark.timeout(400)

TOPIC = "under-way"
LIMIT_S = 30.0


def create(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(LIMIT_S)


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
        cluster.check_equal_replicas(TOPIC, 6)


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
        cluster.check_equal_replicas(TOPIC, 6)
