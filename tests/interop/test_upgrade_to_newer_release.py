"""A mixed cluster goes from the older release of Kafka to the newest one, under traffic, and back.

Seats 1 and 2 are Kafka's, seat 3 is Spindle's: brokers and voters in one. The nodes are replaced
one by one while `metadata.version` stays that of the older release, so that each of them can go
back. The finalized level is raised at the end; from then on, no node of the older release may join.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.cluster import Cluster
from peers.java_tools import JavaTools
from peers.node import NodeFailed
from peers.paths import OLDER_RELEASE, RELEASE
from peers.verified_traffic import VerifiedTraffic
from waiting import wait_until

pytestmark = pytest.mark.timeout(400)

TOPIC = "under-way"
LIMIT_S = 30.0
PROGRAMS = (f"kafka-{OLDER_RELEASE}", f"kafka-{OLDER_RELEASE}", "spindle")


def create(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(TOPIC, 6, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(LIMIT_S)


def finalized(cluster: Cluster, tools: JavaTools) -> str:
    """Return the name of the finalized metadata.version."""
    described = tools.run("features", "--bootstrap-server", cluster.bootstrap, "describe").check()
    (line,) = [line for line in described.lines if "metadata.version" in line]
    return line.split("FinalizedVersionLevel:")[1].split()[0]


def upgrade(cluster: Cluster, tools: JavaTools) -> None:
    """Raise the levels; the leader learns only after a moment that each voter supports them."""
    words = ("--bootstrap-server", cluster.bootstrap, "upgrade", "--release-version", "4.4")

    def is_raised() -> bool:
        done = tools.run("features", *words)
        assert not done.exit_code or "not all of the voters support it" in done.stdout, done
        return not done.exit_code

    wait_until(is_raised, "all voters support the levels of 4.4", limit_s=LIMIT_S)


def roll(cluster: Cluster, seats: tuple[int, ...], program: str) -> None:
    for seat in seats:
        cluster.wait_in_sync([TOPIC])
        cluster.hand_over(seat, program, is_killed=seat == 2)
    cluster.wait_in_sync([TOPIC])


def test_a_mixed_cluster_is_upgraded_and_goes_back_before_its_level_is_raised(
    tmp_path: Path, java_tools: JavaTools
) -> None:
    with Cluster(tmp_path, PROGRAMS, format_flags=("--release-version", "4.3")) as cluster:
        create(cluster)
        with VerifiedTraffic(tmp_path, cluster.bootstrap, TOPIC) as traffic:
            roll(cluster, (1, 2), f"kafka-{RELEASE}")
            assert finalized(cluster, java_tools) == "4.3-IV0"
            roll(cluster, (2, 1), f"kafka-{OLDER_RELEASE}")
            roll(cluster, (3, 1, 2), f"kafka-{RELEASE}")
            roll(cluster, (3,), "spindle")
            upgrade(cluster, java_tools)
            assert finalized(cluster, java_tools) == "4.4-IV2"
            downgrade = ("downgrade", "--release-version", "4.3")
            refused = java_tools.run(
                "features", "--bootstrap-server", cluster.bootstrap, *downgrade
            )
            assert refused.exit_code == 1
            assert "might delete metadata information" in refused.stdout + refused.stderr
            roll(cluster, (3, 1), "spindle")
        assert traffic.check() > 1000
        with pytest.raises(NodeFailed):
            cluster.hand_over(2, f"kafka-{OLDER_RELEASE}")
        cluster.hand_over(2, f"kafka-{RELEASE}")
        cluster.wait_in_sync([TOPIC])
        cluster.check_equal_replicas(TOPIC, 6)
