"""Three brokers of Apache Kafka under three controllers of ours: all tasks of a controller.

`--candidate kafka` runs the same against Kafka's own controllers, which gave the expected answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from peers.java_tools import JavaTools, ToolResult
from peers.node import KafkaNode, Node
from peers.split_cluster import SplitCluster
from peers.verified_traffic import VerifiedTraffic
from waiting import wait_for, wait_until

pytestmark = pytest.mark.timeout(300)
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools, candidate_class: type[Node]
) -> Iterator[SplitCluster]:
    """Start one cluster for the module; every test leaves all but its own topics unchanged."""
    folder = tmp_path_factory.mktemp("split")
    with SplitCluster(folder, java_tools, [candidate_class] * 3, [KafkaNode] * 3) as cluster:
        yield cluster


def create(cluster: SplitCluster, topic: str, assignment: str, *configs: str) -> None:
    words = [word for config in configs for word in ("--config", config)]
    cluster.run(
        "topics", "--create", "--topic", topic, "--replica-assignment", assignment, *words
    ).check()
    cluster.wait_healthy(topic)


def alter(cluster: SplitCluster, kind: str, name: str, *words: str) -> ToolResult:
    entity = ("--entity-name", name) if name else ("--entity-default",)
    return cluster.run("configs", "--entity-type", kind, *entity, "--alter", *words)


def described(cluster: SplitCluster, kind: str, name: str) -> str:
    entity = ("--entity-name", name) if name else ("--entity-default",)
    answer = cluster.run("configs", "--entity-type", kind, *entity, "--describe")
    return answer.check().stdout


def wait_unregistered(cluster: SplitCluster, broker: str) -> None:
    """Wait until the broker that is asked no longer lists this one: it hears of it later."""

    def listed() -> list[str]:
        answer = cluster.run("cluster", "list-endpoints", "--include-fenced-brokers").check()
        ids = [line.split()[0] for line in answer.lines]
        assert {"ID", "1", "3"} <= set(ids), answer.stdout
        return ids

    wait_for(listed, lambda ids: broker not in ids, limit_s=LIMIT_S, pause_s=0.1)


def wait_placeable(cluster: SplitCluster, factor: int, *, is_placeable: bool) -> None:
    """Wait until the controller could place so many replicas, which heartbeats must allow first."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def refusal() -> BaseException | None:
        topic = NewTopic("not-made", 1, factor)
        created = admin.create_topics([topic], validate_only=True)["not-made"]
        return created.exception(LIMIT_S)

    wait_for(refusal, lambda error: (error is None) == is_placeable, limit_s=LIMIT_S)


def test_settings_are_kept_and_refused_as_by_kafka(cluster: SplitCluster) -> None:
    alter(cluster, "brokers", "", "--add-config", "message.max.bytes=2000000").check()
    alter(cluster, "brokers", "1", "--add-config", "log.cleaner.threads=2").check()
    alter(cluster, "users", "alice", "--add-config", "producer_byte_rate=1024").check()
    scram = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    alter(cluster, "users", "bob", "--add-config", scram).check()
    alter(cluster, "client-metrics", "m", "--add-config", "interval.ms=1000").check()
    assert "message.max.bytes=2000000" in described(cluster, "brokers", "")
    assert "log.cleaner.threads=2" in described(cluster, "brokers", "1")
    assert "producer_byte_rate=1024.0" in described(cluster, "users", "alice")
    assert "SCRAM-SHA-256=iterations=4096" in described(cluster, "users", "bob")
    assert "interval.ms=1000" in described(cluster, "client-metrics", "m")
    refused = alter(cluster, "brokers", "", "--delete-config", "min.insync.replicas")
    assert refused.exit_code == 1
    assert "Cluster-level min.insync.replicas cannot be removed" in refused.stderr
    refused = alter(cluster, "users", "bob", "--delete-config", "SCRAM-SHA-512")
    assert "Attempt to delete a user credential that does not exist" in refused.stderr
    down = cluster.run("features", "downgrade", "--feature", "metadata.version=29")
    assert "Refusing to perform the requested downgrade" in down.stdout + down.stderr
    for direction, level in (("downgrade", 0), ("upgrade", 1)):
        cluster.run("features", direction, "--feature", f"share.version={level}").check()


def test_reassignment_adds_removes_and_is_cancelled(cluster: SplitCluster, tmp_path: Path) -> None:
    create(cluster, "moved", "1:2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for _ in range(64):
        producer.produce("moved", bytes(16_384))
    assert producer.flush(30) == 0
    plan = tmp_path / "plan.json"

    def reassign(replicas: list[int], *words: str) -> ToolResult:
        partition = {"topic": "moved", "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return cluster.run("reassign-partitions", "--reassignment-json-file", str(plan), *words)

    reassign([3, 1, 2], "--execute", "--throttle", "1000").check()
    listed = cluster.run("reassign-partitions", "--list").check().stdout
    assert "moved-0: replicas: 3,1,2. adding: 3." in listed
    assert "Successfully cancelled" in reassign([3, 1, 2], "--cancel").check().stdout
    (cancelled,) = cluster.wait_for("moved", lambda p: p.replicas == "1,2", "cancelled")
    assert cancelled.leader == "1"

    reassign([3, 1], "--execute").check()
    (moved,) = cluster.wait_for("moved", lambda p: p.replicas == "3,1" and p.is_healthy, "moved")
    assert moved.leader in ("1", "3")
    assert "is completed" in reassign([3, 1], "--verify").check().stdout
    refused = reassign([1, 2, 3], "--execute", "--disallow-replication-factor-change")
    assert "The replication factor is changed from 2 to 3" in refused.stdout + refused.stderr
    elected = cluster.run("leader-election", "--election-type", "preferred", "--topic", "moved",
                          "--partition", "0").check()  # fmt: skip
    assert "moved-0" in elected.stdout
    cluster.wait_for("moved", lambda p: p.leader == "3", "led by the preferred replica")


def test_cordoned_brokers_get_no_replicas_by_themselves(cluster: SplitCluster) -> None:
    alter(cluster, "brokers", "2", "--add-config", "cordoned.log.dirs=*").check()
    wait_placeable(cluster, 3, is_placeable=False)
    refused = cluster.run("topics", "--create", "--topic", "c", "--replication-factor", "3")
    assert "cannot be reached because only 2 broker(s) are registered or some" in refused.stdout
    create(cluster, "by-hand", "2")
    alter(cluster, "brokers", "2", "--delete-config", "cordoned.log.dirs").check()
    wait_placeable(cluster, 3, is_placeable=True)
    words = ("--topic", "racks", "--partitions", "6", "--replication-factor", "2")
    cluster.run("topics", "--create", *words).check()
    # Broker 2 is the only one in its rack.
    cluster.wait_for("racks", lambda p: "2" in p.replicas, "with a replica in each rack")


def test_nothing_acknowledged_is_lost_while_brokers_and_controllers_go(
    cluster: SplitCluster, tmp_path: Path
) -> None:
    create(cluster, "kept", "1:2:3,2:3:1,3:1:2", "min.insync.replicas=2")
    one, two = cluster.brokers[1], cluster.brokers[2]
    with VerifiedTraffic(tmp_path, cluster.bootstrap, "kept") as traffic:
        one.kill()
        cluster.wait_for("kept", lambda p: p.leader != "1" and "1" not in p.isr, "without 1")
        one.start()
        cluster.wait_healthy("kept")
        controller = cluster.active_controller()
        controller.kill()
        assert cluster.active_controller() is not controller
        controller.start()
        assert two.stop() == 143
        cluster.wait_for("kept", lambda p: p.leader != "2" and "2" not in p.isr, "without 2")
        cluster.run("cluster", "unregister", "--id", "2").check()
        wait_unregistered(cluster, "2")
        two.start()
        cluster.wait_healthy("kept")
    assert traffic.check() > 1000


def test_the_last_replicas_are_remembered_and_unclean_election_is_asked_for(
    cluster: SplitCluster,
) -> None:
    create(cluster, "elr", "2:3", "min.insync.replicas=2")
    two, three = cluster.brokers[2], cluster.brokers[3]
    three.kill()
    (left,) = cluster.wait_for("elr", lambda p: p.isr == "2", "led by 2 alone")
    assert left.elr == "3"
    two.kill()
    (left,) = cluster.wait_for("elr", lambda p: p.leader == "none", "without a leader")
    assert (left.isr, left.elr) == ("", "2,3")
    three.start()
    # The broker was killed, so it may lack records and is no longer eligible.
    (left,) = cluster.wait_for("elr", lambda p: p.elr == "2", "left to 2")
    assert left.leader == "none"
    cluster.run("leader-election", "--election-type", "unclean", "--topic", "elr",
                "--partition", "0").check()  # fmt: skip
    (led,) = cluster.wait_for("elr", lambda p: p.leader == "3", "led by 3")
    assert led.elr == ""
    two.start()
    cluster.wait_healthy("elr")


def test_a_failed_directory_takes_its_replicas_out(cluster: SplitCluster) -> None:
    create(cluster, "lost", "1:2,1:3,1:2,1:3")
    broker = cluster.brokers[1]
    path = broker.log_dirs[
        1
    ]  # the first directory holds the metadata log; without it the node stops
    # The broker learns of its replicas a moment after the controller has created them.
    wait_until(
        lambda: len([d for log_dir in broker.log_dirs for d in log_dir.glob("lost-*")]) >= 4,
        limit_s=60,
        pause_s=0.1,
    )
    held = sorted(int(d.name.rpartition("-")[2]) for d in path.glob("lost-*"))
    assert len(held) == 2
    away = path.rename(path.with_name("away"))
    path.write_text("not a directory any more")
    partitions = cluster.wait_for("lost", lambda p: "1" not in p.isr, "left by 1", held)
    assert [n for n, p in enumerate(partitions) if p.leader != "1"] == held, partitions
    broker.kill()
    path.unlink()
    away.rename(path)
    broker.start()
    cluster.wait_healthy("lost")
