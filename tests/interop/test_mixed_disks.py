"""Directories of brokers of both programs under a controller of either one.

A directory is cordoned, a replica moves into another directory, and a disk dies (ext4 that was shut
down); the metadata log of the controller says what it understood. `--candidate kafka` runs the same
on Kafka alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from peers.failing_disk import FailingDisk, why_no_failing_disks
from peers.java_tools import JavaTools, ToolResult
from peers.metadata_view import Directories, directories, directory_id
from peers.node import KafkaNode, Node
from peers.split_cluster import SplitCluster
from peers.verified_traffic import VerifiedTraffic
from waiting import wait_for

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(why_no_failing_disks() != "", reason=why_no_failing_disks() or "-"),
]
LIMIT_S = 60.0
DISK = 2
"""The index of the log directory that is a disk of its own."""

KAFKA, CANDIDATE = 1, 2
both_brokers = pytest.mark.parametrize("number", [KAFKA, CANDIDATE], ids=["kafka", "candidate"])


class MixedDisks:
    """Broker 1 is Kafka's, 2 is the candidate's, 3 belongs to the program of the controller."""

    def __init__(self, cluster: SplitCluster, tools: JavaTools, disks: dict[int, FailingDisk]):
        self.cluster = cluster
        self.disks = disks
        self._tools = tools

    def create(self, topic: str, assignment: str) -> None:
        words = ("--create", "--topic", topic, "--replica-assignment", assignment)
        self.cluster.run("topics", *words, "--config", "min.insync.replicas=1").check()
        self.cluster.wait_healthy(topic)

    def fill(self, topic: str) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 5})
        for _ in range(200):
            producer.produce(topic, bytes(1000), partition=0)
        assert producer.flush(LIMIT_S) == 0

    def recorded(self) -> Directories:
        return directories(self._tools, self.cluster.controllers[0])

    def until(self, is_so: Callable[[Directories], bool]) -> Directories:
        """Wait until the controller has recorded this."""
        return wait_for(self.recorded, is_so, limit_s=LIMIT_S, pause_s=0.1)

    def cordon(self, number: int, *indexes: int) -> None:
        """Cordon exactly these directories of a broker, and wait until the controller knows."""
        broker = self.cluster.brokers[number]
        paths = ",".join(str(broker.log_dirs[index]) for index in indexes)
        how = (
            ("--add-config", f"cordoned.log.dirs=[{paths}]")
            if indexes
            else ("--delete-config", "cordoned.log.dirs")
        )
        self.configure(number, *how)
        ids = sorted(directory_id(broker, index) for index in indexes)
        self.until(lambda view: sorted(view.cordoned[number]) == ids)

    def configure(self, number: int, *how: str) -> None:
        entity = ("--entity-type", "brokers", "--entity-name", str(number))
        self.cluster.run("configs", *entity, "--alter", *how).check()

    def move(self, folder: Path, topic: str, replicas: dict[int, str], *words: str) -> ToolResult:
        """Reassign partition 0; `replicas` are the target directories by broker."""
        plan = folder / "plan.json"
        partition = {
            "topic": topic,
            "partition": 0,
            "replicas": list(replicas),
            "log_dirs": list(replicas.values()),
        }
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return self.cluster.run(
            "reassign-partitions", "--reassignment-json-file", str(plan), *words
        )


@pytest.fixture(scope="module", params=["kafka", "candidate"])
def mixed(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    java_tools: JavaTools,
    candidate_class: type[Node],
) -> Iterator[MixedDisks]:
    """Start the brokers under a controller of the program that the parameter names."""
    folder = tmp_path_factory.mktemp("mixed-disks")
    leader = KafkaNode if request.param == "kafka" else candidate_class
    disks = {number: FailingDisk(folder / f"disk{number}") for number in (KAFKA, CANDIDATE)}
    paths = {number: disk.path for number, disk in disks.items()}
    kinds: list[type[Node]] = [KafkaNode, candidate_class, leader]
    try:
        with SplitCluster(folder, java_tools, [leader], kinds, paths) as cluster:
            yield MixedDisks(cluster, java_tools, disks)
    finally:
        for disk in disks.values():
            disk.remove()


@both_brokers
def test_a_cordoned_directory_gets_no_replicas(
    mixed: MixedDisks, tmp_path: Path, number: int
) -> None:
    broker = mixed.cluster.brokers[number]
    topic = f"cordoned-{number}"
    mixed.cordon(number, 1)
    mixed.create(topic, ",".join([str(number)] * 4))
    view = mixed.until(lambda view: None not in _places(view, topic, 4, broker))
    used = {_places(view, topic, 4, broker)[n] for n in range(4)}
    assert used == {0, DISK}
    refused = mixed.move(tmp_path, topic, {number: str(broker.log_dirs[1])}, "--execute",
                         "--timeout", "2000")  # fmt: skip
    assert "Replica assignment is invalid." in refused.stdout

    mixed.configure(number, "--add-config", "cordoned.log.dirs=*")
    mixed.until(lambda view: len(view.cordoned[number]) == 3)
    words = ("--create", "--topic", f"everywhere-{number}", "--replication-factor", "3")
    refused = mixed.cluster.run("topics", *words)
    assert "some brokers have all their log directories cordoned" in refused.stdout
    mixed.cordon(number)
    mixed.cluster.run("topics", *words).check()
    mixed.cluster.wait_healthy(f"everywhere-{number}")


@both_brokers
def test_a_replica_moves_within_a_broker_and_to_the_other_program(
    mixed: MixedDisks, tmp_path: Path, number: int
) -> None:
    broker, other = mixed.cluster.brokers[number], 3 - number
    topic = f"moved-{number}"
    mixed.create(topic, f"{number}:3")
    mixed.fill(topic)
    view = mixed.until(lambda view: None not in _places(view, topic, 1, broker))
    (source,) = _places(view, topic, 1, broker)
    assert source is not None
    target = (source + 1) % 3
    plan = {number: str(broker.log_dirs[target]), 3: "any"}
    mixed.move(tmp_path, topic, plan, "--execute").check()
    mixed.until(lambda view: _places(view, topic, 1, broker) == [target])
    _until_done(mixed, tmp_path, topic, plan, f"{topic}-0-{number} completed successfully")
    assert not (broker.log_dirs[source] / f"{topic}-0").exists()

    receiver = mixed.cluster.brokers[other]
    plan = {other: str(receiver.log_dirs[DISK]), 3: "any"}
    mixed.move(tmp_path, topic, plan, "--execute").check()
    mixed.until(lambda view: _places(view, topic, 1, receiver) == [DISK])
    _until_done(mixed, tmp_path, topic, plan, f"{topic}-0-{other} completed successfully")
    (moved,) = mixed.cluster.wait_for(topic, lambda p: p.is_healthy, "in sync")
    assert moved.replicas == f"{other},3"
    assert _bytes(broker, topic) == b""
    assert _bytes(receiver, topic) == _bytes(mixed.cluster.brokers[3], topic) != b""


@both_brokers
def test_a_disk_dies_and_is_replaced_and_nothing_is_lost(
    mixed: MixedDisks, tmp_path: Path, number: int
) -> None:
    cluster, broker, other = mixed.cluster, mixed.cluster.brokers[number], 3 - number
    topic, spared = f"hit-{number}", f"spared-{number}"
    lost = directory_id(broker, DISK)
    mixed.cordon(number, 0, 1)
    mixed.create(topic, f"{number}:{other}:3,{other}:3:{number},3:{number}:{other}")
    mixed.cordon(number, DISK)
    mixed.create(spared, f"{number}:3,3:{number}")
    mixed.cordon(number)
    mixed.until(lambda view: _places(view, topic, 3, broker) == [DISK] * 3)
    with VerifiedTraffic(tmp_path, cluster.bootstrap, topic) as traffic:
        _until_acknowledged(traffic, 300)
        mixed.disks[number].fail()
        gone = str(number)
        cluster.wait_for(
            topic, lambda p: p.leader not in (gone, "none") and gone not in p.isr, "without it"
        )
        view = mixed.until(lambda view: lost not in view.online[number])
        assert len(view.online[number]) == 2
        assert _offline(cluster, number) == [str(broker.log_dirs[DISK])]
        assert all(p.is_healthy for p in cluster.describe(spared))
        assert cluster.describe(spared)[0].leader == gone
        # The acknowledged records from here on are those of the remaining replicas.
        _until_acknowledged(traffic, len(_all(traffic)) + 300)

        broker.stop()
        mixed.disks[number].replace()
        broker.format("--ignore-formatted")
        broker.start()
        cluster.wait_healthy(topic, spared)
        assert directory_id(broker, DISK) != lost
        view = mixed.until(lambda view: None not in _places(view, topic, 3, broker))
        assert lost not in view.replicas[topic, 0].values()
    assert traffic.check() > 600


def _places(view: Directories, topic: str, partitions: int, broker: Node) -> list[int | None]:
    """Return the index of the directory of each partition; None if the controller has none."""
    ids = [
        directory_id(broker, index)
        for index, path in enumerate(broker.log_dirs)
        if (path / "meta.properties").exists()
    ]
    directory_ids = [
        view.replicas.get((topic, n), {}).get(broker.node_id, "") for n in range(partitions)
    ]
    return [ids.index(name) if name in ids else None for name in directory_ids]


def _until_done(
    mixed: MixedDisks, folder: Path, topic: str, plan: dict[int, str], what: str
) -> None:
    wait_for(
        lambda: mixed.move(folder, topic, plan, "--verify").stdout,
        lambda printed: what in printed,
        what,
        limit_s=LIMIT_S,
        pause_s=0.1,
    )


def _all(traffic: VerifiedTraffic) -> list[tuple[int, int]]:
    return [record for some in traffic.acknowledged().values() for record in some]


def _until_acknowledged(traffic: VerifiedTraffic, count: int) -> None:
    wait_for(lambda: len(_all(traffic)), lambda n: n >= count, f"{count} records", limit_s=LIMIT_S)


def _offline(cluster: SplitCluster, number: int) -> list[str]:
    """Return the directories of a broker that `kafka-log-dirs` shows with an error."""
    answer = cluster.run("log-dirs", "--describe", "--broker-list", str(number)).check()
    (described,) = json.loads(answer.lines[-1])["brokers"]
    return [log_dir["logDir"] for log_dir in described["logDirs"] if log_dir["error"] is not None]


def _bytes(node: Node, topic: str) -> bytes:
    files = sorted(file for path in node.log_dirs for file in (path / f"{topic}-0").glob("*.log"))
    return b"".join(file.read_bytes() for file in files)
