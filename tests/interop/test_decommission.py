"""A log directory and a broker are taken out of service, step by step, with Kafka's own tools.

The steps are those of docs/guide/operations.md. Every record is still there at the end, and the
cordon refuses what would put replicas back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.java_tools import JavaTools, ToolResult
from peers.node import Node, SpindleNode
from peers.trio import Trio
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)
LIMIT_S = 60.0
RECORDS = 600
TOPIC = "kept"


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools) -> Iterator[Trio]:
    cluster = Trio(SpindleNode, tmp_path_factory.mktemp("spindle"), java_tools)
    try:
        cluster.start()
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.remove()


def cordon(trio: Trio, broker: int, value: str | None) -> ToolResult:
    change = (
        ("--delete-config", "cordoned.log.dirs")
        if value is None
        else ("--add-config", f"cordoned.log.dirs={value}")
    )
    entity = ("--entity-type", "brokers", "--entity-name", str(broker))
    return trio.run("configs", "--alter", *entity, *change)


def directories(trio: Trio, broker: int) -> dict[str, list[str]]:
    """Return the replicas in each directory of a broker, as kafka-log-dirs shows them."""
    done = trio.run("log-dirs", "--describe", "--broker-list", str(broker)).check()
    (described,) = json.loads(done.stdout.splitlines()[-1])["brokers"]
    return {
        log_dir["logDir"]: sorted(replica["partition"] for replica in log_dir["partitions"])
        for log_dir in described["logDirs"]
    }


def partitions(trio: Trio) -> list[tuple[str, int, list[int]]]:
    """Return topic, partition and replicas of all partitions, as kafka-topics shows them."""
    partitions = []
    for line in trio.run("topics", "--describe").check().stdout.splitlines():
        fields = dict(part.split(": ", 1) for part in line.strip().split("\t") if ": " in part)
        if "Partition" in fields:
            replicas = [int(number) for number in fields["Replicas"].split(",")]
            partitions.append((fields["Topic"], int(fields["Partition"]), replicas))
    return partitions


def move(trio: Trio, file: Path, plan: list[dict[str, Any]]) -> None:
    """Carry out a plan with kafka-reassign-partitions, and wait until it is completed."""
    file.write_text(json.dumps({"version": 1, "partitions": plan}))
    words = ("reassign-partitions", "--reassignment-json-file", str(file))
    trio.run(*words, "--execute").check()

    def is_done() -> bool:
        text = trio.run(*words, "--verify").stdout
        return "in progress" not in text and text.count("complete") >= len(plan)

    wait_until(is_done, "the reassignment does not end")


def produce(trio: Trio, first: int) -> None:
    producer = Producer({"bootstrap.servers": trio.bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=number % 6)
    assert producer.flush(LIMIT_S) == 0


def consumed(trio: Trio, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": trio.bootstrap, "group.id": "check"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(6)])
    values: list[int] = []
    deadline = time.monotonic() + LIMIT_S
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, 1.0):
            assert message.error() is None, message.error()
            values.append(int(message.value() or b"-1"))
    consumer.close()
    return sorted(values)


def is_offline(trio: Trio, broker: int) -> bool:
    words = ("list-endpoints", "--include-fenced-brokers")
    lines = trio.run("cluster", *words).check().stdout.splitlines()
    return any(line.split()[0] == str(broker) and " fenced" in line for line in lines[1:])


def test_a_log_directory_is_taken_out_of_service(trio: Trio, tmp_path: Path) -> None:
    create = ("--create", "--topic", TOPIC, "--partitions", "6", "--replication-factor", "3")
    trio.run("topics", *create).check()
    produce(trio, 0)
    node = trio.nodes[2]
    leaving, staying = (str(path) for path in reversed(node.log_dirs))
    assert directories(trio, 2)[leaving], "the first placement uses both directories"

    cordon(trio, 2, leaving).check()
    trio.run("topics", "--create", "--topic", "later", "--partitions", "4").check()
    assert not [name for name in directories(trio, 2)[leaving] if name.startswith("later")]

    held = directories(trio, 2)[leaving]
    plan: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": number,
            "replicas": replicas,
            "log_dirs": [staying if broker == 2 else "any" for broker in replicas],
        }
        for topic, number, replicas in partitions(trio)
        if f"{topic}-{number}" in held and 2 in replicas
    ]
    move(trio, tmp_path / "directory.json", plan)
    assert directories(trio, 2) == {staying: sorted(directories(trio, 2)[staying]), leaving: []}
    back = [{**plan[0], "log_dirs": [leaving if b == 2 else "any" for b in plan[0]["replicas"]]}]
    file = tmp_path / "back.json"
    file.write_text(json.dumps({"version": 1, "partitions": back}))
    words = ("--reassignment-json-file", str(file), "--execute", "--timeout", "1000")
    refused = trio.run("reassign-partitions", *words)
    assert refused.exit_code == 1
    assert "InvalidReplicaAssignmentException" in refused.stdout + refused.stderr

    produce(trio, RECORDS)
    assert node.stop() in (0, 143)
    node.log_dirs = [Path(staying)]
    node.write_properties()
    node.start()
    trio.wait_ready()
    assert list(directories(trio, 2)) == [staying]
    cordon(trio, 2, None).check()
    produce(trio, 2 * RECORDS)
    assert consumed(trio, 3 * RECORDS) == list(range(3 * RECORDS))


def test_a_broker_is_taken_out_of_service(trio: Trio, tmp_path: Path) -> None:
    cordon(trio, 3, "*").check()
    refused = trio.run(
        "topics", "--create", "--topic", "r3", "--partitions", "1", "--replication-factor", "3"
    )
    assert refused.exit_code == 1
    assert "some brokers have all their log directories cordoned" in refused.stdout
    plan = [
        {
            "topic": topic,
            "partition": number,
            "replicas": [broker for broker in replicas if broker != 3] or [1],
        }
        for topic, number, replicas in partitions(trio)
        if 3 in replicas
    ]
    move(trio, tmp_path / "broker.json", plan)
    wait_until(lambda: not any(directories(trio, 3).values()), "replicas stay on the broker")

    stopped: Node = trio.nodes[3]
    assert stopped.stop() in (0, 143)
    wait_until(lambda: is_offline(trio, 3), "the stopped broker is not fenced")
    done = trio.run("cluster", "unregister", "--id", "3").check()
    assert done.stdout.strip() == "Broker 3 is no longer registered."
    assert all(3 not in replicas for _, _, replicas in partitions(trio))
    again = trio.run("cluster", "unregister", "--id", "3")
    assert again.exit_code == 1
    assert "Broker ID 3 is not currently registered" in again.stdout + again.stderr
    assert consumed(trio, 3 * RECORDS) == list(range(3 * RECORDS))


def test_a_broker_that_was_unregistered_while_it_ran_stops_in_order(trio: Trio) -> None:
    """Kafka's hangs in its controlled shutdown."""
    trio.run("cluster", "unregister", "--id", "2").check()
    assert trio.nodes[2].stop() in (0, 143)
