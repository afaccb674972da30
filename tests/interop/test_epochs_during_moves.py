"""A replica moves between directories of its broker while its partition changes leaders.

The copy must have every leader epoch of the log, and be the same as the replicas of other brokers.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from peers.clients import settings
from peers.compare import Answer
from peers.java_tools import JavaTools
from peers.node import KafkaNode, Node
from peers.trio import Trio, TrioPair, running

from spindle.protocol.records.batch import batches

TOPIC = "elected"
LIMIT_S = 60.0
SLOW = ("--replica-alter-log-dirs-throttle", "60000")
FAST = ("--replica-alter-log-dirs-throttle", "100000000")


class Moving:
    """Partition 0 of a topic on brokers 1, 2 and 3; its replica on broker 1 moves."""

    def __init__(self, trio: Trio, clusters: TrioPair) -> None:
        self.trio = trio
        self._clusters = clusters
        self.sent = 0
        trio.run("topics", "--create", "--topic", TOPIC, "--replica-assignment", "1:2:3").check()
        self.send(2000)
        self.source = self.place(1)
        (self.target,) = [path for path in trio.nodes[1].log_dirs if path != self.source]

    def place(self, number: int) -> Path:
        """Return the log directory of a broker's replica."""
        paths = self.trio.nodes[number].log_dirs
        (file,) = [path for path in paths if (path / f"{TOPIC}-0").exists()]
        return file

    def send(self, count: int) -> None:
        producer = Producer(settings(self.trio, enable_idempotence=True, linger_ms=5))
        for number in range(self.sent, self.sent + count):
            producer.produce(TOPIC, b"%06d" % number + b"." * 1000, partition=0)
        assert producer.flush(LIMIT_S) == 0
        self.sent += count

    def execute(self, replicas: list[int], directory: str, *words: str) -> None:
        directories = [directory if replica == 1 else "any" for replica in replicas]
        entry = {"topic": TOPIC, "partition": 0, "replicas": replicas, "log_dirs": directories}
        path = self._clusters.write("plan.json", {"version": 1, "partitions": [entry]})
        execute = ("--reassignment-json-file", path, "--execute", "--additional")
        self.trio.run("reassign-partitions", *execute, *words).check()

    def lead(self, *replicas: int) -> None:
        """Make the first one the preferred leader, and elect it."""
        self.execute([*replicas], "any")
        where = ("--topic", TOPIC, "--partition", "0")
        described = f"Leader: {replicas[0]}"
        self.trio.until(
            lambda lines: any(f"Replicas: {replicas[0]}," in line for line in lines),
            *("topics", "--describe", "--topic", TOPIC),
        )
        self.trio.run("leader-election", "--election-type", "preferred", *where)
        self.trio.until(
            lambda lines: any(described in line for line in lines),
            *("topics", "--describe", "--topic", TOPIC),
        )

    def is_moving(self) -> bool:
        return any(self.target.glob(f"{TOPIC}-0.*-future"))

    def until_moved(self) -> None:
        def is_done(lines: list[str]) -> bool:
            document = next(json.loads(line) for line in lines if line.startswith("{"))
            rows = [
                (log_dir["logDir"], replica["isFuture"])
                for log_dir in document["brokers"][0]["logDirs"]
                for replica in log_dir["partitions"]
            ]
            return rows == [(str(self.target), False)]

        self.trio.until(
            is_done, "log-dirs", "--describe", "--topic-list", TOPIC, "--broker-list", "1"
        )

    def replica(self, number: int) -> tuple[list[str], list[tuple[int, int, int]]]:
        """Return the epochs of a stopped broker's replica, and (offset, epoch, CRC) of its
        batches."""
        folder = self.place(number) / f"{TOPIC}-0"
        epochs = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        stored = []
        for file in sorted(folder.glob("*.log")):
            data = file.read_bytes()
            stored += [(h.base_offset, h.leader_epoch, h.crc) for _, h in batches(data)]
        return epochs, stored


def test_a_copy_has_the_epochs_of_elections_that_it_saw(
    tmp_path: Path, candidate_class: type[Node], java_tools: JavaTools
) -> None:
    trios = [
        Trio(kind, tmp_path / name, java_tools)
        for name, kind in (("reference", KafkaNode), ("candidate", candidate_class))
    ]
    with running(trios, tmp_path) as clusters:

        def script(trio: Trio) -> Answer:
            moving = Moving(trio, clusters)
            moving.execute([1, 2, 3], str(moving.target), *SLOW)
            moving.lead(2, 1, 3)
            moving.send(100)
            moving.lead(1, 2, 3)
            moving.send(100)
            assert moving.is_moving()
            moving.execute([1, 2, 3], str(moving.target), *FAST)
            moving.until_moved()
            moving.send(100)
            for node in trio.nodes.values():
                node.kill()
            copy, *others = [moving.replica(number) for number in (1, 2, 3)]
            assert copy == others[0] == others[1]
            epochs = copy[0]
            assert len(epochs) == 3
            return epochs, [epoch for _, epoch, _ in copy[1]][-1]

        clusters.compare(script)


pytestmark = pytest.mark.timeout(400)
