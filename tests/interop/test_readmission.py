"""`spindle disks` on a running broker, beside brokers of Kafka, under a controller of either kind.

A disk (ext4 on a loop device) dies under Kafka's verifiable producer, an empty one takes its place,
and the broker uses it without a restart; a directory is added and removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from peers.failing_disk import FailingDisk, why_no_failing_disks
from peers.java_tools import JavaTools
from peers.metadata_view import directories, directory_id
from peers.node import KafkaNode, Node, SpindleNode
from peers.split_cluster import SplitCluster
from peers.verified_traffic import VerifiedTraffic
from waiting import wait_for, wait_until

from spindle.cli.main import spindle

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(why_no_failing_disks() != "", reason=why_no_failing_disks() or "-"),
]
LIMIT_S = 60.0
OURS = 2
DISK = 2
"""The index of the log directory that is a disk of its own."""


@pytest.fixture(params=[KafkaNode, SpindleNode], ids=["kafka-controller", "spindle-controller"])
def mixed(
    request: pytest.FixtureRequest, tmp_path: Path, java_tools: JavaTools
) -> Iterator[tuple[SplitCluster, FailingDisk]]:
    """Start brokers 1 and 3 with Kafka and broker 2 with Spindle, which has a disk of its own."""
    disk = FailingDisk(tmp_path / "disk")
    kinds: list[type[Node]] = [KafkaNode, SpindleNode, KafkaNode]
    try:
        with SplitCluster(
            tmp_path, java_tools, [request.param], kinds, {OURS: disk.path}
        ) as cluster:
            yield cluster, disk
    finally:
        disk.remove()


def command(cluster: SplitCluster, *words: str) -> Result:
    return CliRunner().invoke(
        spindle, ["disks", words[0], "-b", cluster.bootstrap, "--json", *words[1:]]
    )


def done(cluster: SplitCluster, *words: str) -> Any:
    invocation = command(cluster, *words)
    assert invocation.exit_code == 0, invocation.output
    return json.loads(invocation.output)


def epoch_of(cluster: SplitCluster) -> str:
    """Return the line about our broker's registration in its own log."""
    lines = [line for line in cluster.brokers[OURS].output().splitlines() if "epoch" in line]
    registered = [line.rpartition("epoch ")[2] for line in lines if "registered broker" in line]
    assert len(set(registered)) == 1, registered
    return registered[-1]


def wait_for_replicas(node: Node, topic: str, count: int) -> None:
    """Wait until the broker has made its replicas: metadata shows them sooner."""
    folders = [*node.log_dirs, node.folder / "new"]
    wait_until(
        lambda: len([path for file in folders for path in file.glob(f"{topic}-*")]) >= count,
        f"{topic} has {count} replicas",
        limit_s=LIMIT_S,
    )


def wait_acknowledged(traffic: VerifiedTraffic, more: int) -> None:
    def count() -> int:
        return sum(len(records) for records in traffic.acknowledged().values())

    wanted = count() + more
    wait_for(count, lambda records: records >= wanted, f"{wanted} records", limit_s=LIMIT_S)


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "repaired"])
def test_a_dead_disk_comes_back_on_a_running_broker(
    mixed: tuple[SplitCluster, FailingDisk],
    java_tools: JavaTools,
    tmp_path: Path,
    is_replaced: bool,
) -> None:
    cluster, disk = mixed
    ours = cluster.brokers[OURS]
    path = ours.log_dirs[DISK]
    lost = directory_id(ours, DISK)
    words = ("--create", "--topic", "t", "--replica-assignment", ",".join(["1:2:3", "2:3:1"] * 3))
    cluster.run("topics", *words, "--config", "min.insync.replicas=2").check()
    cluster.wait_healthy("t")
    assert list(path.glob("t-*"))
    with VerifiedTraffic(tmp_path, cluster.bootstrap, "t") as traffic:
        wait_acknowledged(traffic, 300)
        disk.fail()
        cluster.wait_for(
            "t", lambda p: p.leader not in ("2", "none") or "2" in p.isr, "led by others"
        )
        wait_acknowledged(traffic, 300)
        dead = command(cluster, "online", str(OURS), str(path))
        assert dead.exit_code == 1, dead.output
        if is_replaced:
            disk.replace()
        else:
            disk.repair()
        answer = done(cluster, "online", str(OURS), str(path))
        assert answer["wasFormatted"] is is_replaced
        states = {replica["state"] for replica in answer["replicas"]}
        assert states == ({"created"} if is_replaced else {"found"})
        cluster.wait_healthy("t")
        wait_acknowledged(traffic, 300)
    assert traffic.check() > 900
    now = directory_id(ours, DISK)
    assert (now != lost) is is_replaced
    view = directories(java_tools, cluster.controllers[0])
    assert now in view.online[OURS]
    assert (lost in view.online[OURS]) is not is_replaced
    assert now in [places.get(OURS) for places in view.replicas.values()]
    epoch_of(cluster)


def test_a_directory_is_added_filled_and_retired(
    mixed: tuple[SplitCluster, FailingDisk], java_tools: JavaTools, tmp_path: Path
) -> None:
    cluster, _ = mixed
    ours = cluster.brokers[OURS]
    new = ours.folder / "new"
    refused = command(cluster, "add", "1", str(new))
    assert refused.exit_code == 1
    assert "is not a Spindle broker, or an older one" in str(refused.exception)
    answer = done(cluster, "add", str(OURS), str(new))
    assert answer["directoryId"] in directories(java_tools, cluster.controllers[0]).online[OURS]
    cluster.run("topics", "--create", "--topic", "t", "--replica-assignment", "2,2,2,2").check()
    wait_for_replicas(ours, "t", 4)
    assert len(list(new.glob("t-*"))) == 1
    in_use = command(cluster, "remove", str(OURS), str(new))
    assert in_use.exit_code == 1
    plan = tmp_path / "moves.json"
    plan.write_text(json.dumps(json.loads(in_use.output)["reassignment"]))
    moving = ("--reassignment-json-file", str(plan))
    cluster.run("reassign-partitions", *moving, "--execute").check()
    outputs: list[str] = []

    def is_removed() -> bool:
        removal = command(cluster, "remove", str(OURS), str(new))
        outputs.append(removal.output)
        return removal.exit_code == 0

    wait_until(is_removed, lambda: outputs[-1], limit_s=LIMIT_S, pause_s=0.1)
    view = directories(java_tools, cluster.controllers[0])
    assert answer["directoryId"] not in view.online[OURS]
    assert all(p.is_healthy for p in cluster.describe("t"))
    epoch_of(cluster)
