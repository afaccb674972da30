"""Topics of a split cluster whose leaders the test chooses, and moves."""

from __future__ import annotations

import json
from pathlib import Path

from peers.split_cluster import SplitCluster


def order(first: int) -> list[int]:
    """Return the replicas of a partition whose preferred leader is `first`."""
    return [first, *(number for number in (1, 2, 3) if number != first)]


def assignment(partitions: int, *leaders: int) -> str:
    """Return the replicas by partition; these leaders take turns."""
    chosen = [order(leaders[number % len(leaders)]) for number in range(partitions)]
    return ",".join(":".join(map(str, replicas)) for replicas in chosen)


def create(cluster: SplitCluster, topic: str, assigned: str, *configs: str) -> None:
    words = [word for one in (*configs, "min.insync.replicas=2") for word in ("--config", one)]
    cluster.run(
        "topics", "--create", "--topic", topic, "--replica-assignment", assigned, *words
    ).check()
    cluster.wait_healthy(topic)


def move(cluster: SplitCluster, folder: Path, topic: str, partitions: int, leader: int) -> None:
    """Make one broker the preferred leader of all partitions of a topic, and elect it."""
    plan = folder / "plan.json"
    rows = [
        {"topic": topic, "partition": number, "replicas": order(leader)}
        for number in range(partitions)
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    cluster.run("reassign-partitions", "--reassignment-json-file", str(plan), "--execute").check()
    wanted = ",".join(map(str, order(leader)))
    cluster.wait_for(topic, lambda p: p.replicas == wanted and p.is_healthy, f"on {wanted}")
    elected = [{"topic": topic, "partition": number} for number in range(partitions)]
    plan.write_text(json.dumps({"partitions": elected}))
    cluster.run(
        "leader-election", "--election-type", "preferred", "--path-to-json-file", str(plan)
    ).check()
    cluster.wait_for(topic, lambda p: p.leader == str(leader), f"led by {leader}")


def wait_until_not_led_by(cluster: SplitCluster, topic: str, broker: int) -> None:
    cluster.wait_for(topic, lambda p: p.leader not in (str(broker), "none"), f"not on {broker}")
