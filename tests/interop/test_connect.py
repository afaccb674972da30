"""Kafka Connect on Spindle: lines of a file go into a topic, and from there into another file.

Workers and brokers are stopped and killed meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from peers.cluster import QUICK_FAILOVER, Cluster
from peers.committed_reader import committed_values
from peers.connect_worker import ConnectWorker, write_properties
from peers.node import KafkaNode, Node
from peers.paths import java_can_compile
from waiting import wait_until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not java_can_compile(), reason="a development kit of Java is needed"),
]
LIMIT_S = 90.0
TOPIC = "lines"
INTERNAL = ("connect-configs", "connect-offsets", "connect-status")


@pytest.fixture
def cluster(tmp_path: Path, candidate_class: type[Node]) -> Iterator[Cluster]:
    program = "kafka" if candidate_class is KafkaNode else "spindle"
    overrides = {**QUICK_FAILOVER, "min.insync.replicas": "2"}
    with Cluster(tmp_path / "nodes", [program] * 3, overrides) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        yield cluster


class GrowingFile:
    """A file that gets lines, one every 10 ms, as long as the `with` block runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> GrowingFile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _write(self) -> None:
        with self.path.open("a") as file:
            while not self._stopped.wait(0.01):
                self.lines.append(f"line {len(self.lines)}")
                file.write(f"{self.lines[-1]}\n")
                file.flush()


def copied(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def wait_more(path: Path, count: int) -> None:
    """Return after the copy has got this many more lines."""
    wanted = len(copied(path)) + count
    wait_until(
        lambda: len(copied(path)) >= wanted,
        lambda: f"{len(copied(path))} of {wanted} lines are copied",
        limit_s=LIMIT_S,
    )


def wait_for_line(path: Path, line: str) -> None:
    wait_until(
        lambda: line in copied(path),
        lambda: f"{line!r} is not copied, {copied(path)[-1:]} is the last one",
        limit_s=LIMIT_S,
    )


def source(file: Path) -> dict[str, str]:
    return {
        "name": "source",
        "connector.class": "LineSource",
        "tasks.max": "1",
        "file": str(file),
        "topic": TOPIC,
    }


def sink(file: Path) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "LineSink",
        "tasks.max": "1",
        "file": str(file),
        "topics": TOPIC,
        "consumer.override.auto.offset.reset": "earliest",
    }


def values(cluster: Cluster) -> list[str]:
    (part,) = committed_values(cluster.bootstrap, TOPIC, 1).values()
    return [value.decode() for value in part if value is not None]


def test_a_standalone_worker_continues_after_a_stop(cluster: Cluster, tmp_path: Path) -> None:
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    connectors = [
        write_properties(tmp_path / "source.properties", source(origin)),
        write_properties(tmp_path / "sink.properties", sink(copy)),
    ]
    properties = {
        "bootstrap.servers": cluster.bootstrap,
        "offset.storage.file.filename": str(tmp_path / "offsets"),
    }
    worker = ConnectWorker(tmp_path / "worker", properties, *connectors)
    with worker:
        with GrowingFile(origin) as written:
            wait_more(copy, 100)
            worker.stop()
            worker.start()
            wait_more(copy, 100)
            cluster.restart(1, is_killed=False)
            wait_more(copy, 100)
        wait_for_line(copy, written.lines[-1])
        worker.stop()
    assert values(cluster) == written.lines
    assert copied(copy) == written.lines


def test_an_exactly_once_source_repeats_no_line(cluster: Cluster, tmp_path: Path) -> None:
    """Each of two workers is killed, and a broker; the last one reads on alone."""
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    properties = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "connect",
        "config.storage.topic": INTERNAL[0],
        "offset.storage.topic": INTERNAL[1],
        "offset.storage.partitions": "3",
        "status.storage.topic": INTERNAL[2],
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "1000",
        "producer.transaction.timeout.ms": "10000",
    }
    workers = [ConnectWorker(tmp_path / f"worker{number}", properties) for number in (1, 2)]
    with workers[0], workers[1]:
        with GrowingFile(origin) as written:
            workers[0].create("source", source(origin))
            workers[1].create("sink", sink(copy))
            workers[0].wait_running("source")
            wait_more(copy, 100)
            workers[0].restart()
            wait_more(copy, 100)
            workers[0].wait_running("source")
            workers[1].restart()
            wait_more(copy, 100)
            cluster.restart(2, is_killed=True)
            wait_more(copy, 100)
            workers[1].wait_running("sink")
            workers[0].stop()
            wait_more(copy, 100)
        wait_for_line(copy, written.lines[-1])
    assert values(cluster) == written.lines
    assert list(dict.fromkeys(copied(copy))) == written.lines
    assert policies(cluster) == dict.fromkeys(INTERNAL, "compact")


def policies(cluster: Cluster) -> dict[str, str | None]:
    """Return the cleanup.policy of the topics that the workers have made."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in INTERNAL]
    return {
        resource.name: future.result(30)["cleanup.policy"].value
        for resource, future in admin.describe_configs(resources).items()
    }
