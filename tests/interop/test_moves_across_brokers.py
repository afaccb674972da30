"""kafka-reassign-partitions with `log_dirs` on three nodes: to other brokers and other directories.

The first test has the steps of a recording of Apache Kafka 4.3.1; both are played on both programs.
The tests depend on their order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from peers.clients import settings
from peers.compare import Answer
from peers.java_tools import JavaTools
from peers.node import KafkaNode, Node
from peers.trio import Trio, TrioPair, running

# The first test starts six nodes.
pytestmark = pytest.mark.timeout(300)

TOPIC = "r"
RECORDS = 4000
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory,
    candidate_class: type[Node],
    java_tools: JavaTools,
) -> Iterator[TrioPair]:
    folder = tmp_path_factory.mktemp("moving-trios")
    trios = [
        Trio(kind, folder / name, java_tools, {"log.segment.bytes": "1048576"})
        for name, kind in (("reference", KafkaNode), ("candidate", candidate_class))
    ]
    with running(trios, folder) as pair:
        for trio in trios:
            created = ("--create", "--topic", TOPIC, "--replica-assignment", "1:2,2:1")
            trio.run("topics", *created).check()
            fill(trio, range(RECORDS))
        yield pair


def fill(trio: Trio, numbers: range) -> None:
    producer = Producer(settings(trio.nodes[1], enable_idempotence=True))
    for number in numbers:
        for partition in (0, 1):
            producer.produce(TOPIC, b"%08d" % number + b"." * 1000, partition=partition)
    assert producer.flush(LIMIT_S) == 0


def places(trio: Trio) -> dict[tuple[str, int], Path]:
    """Return the directory of every replica, by partition and broker."""
    answer = trio.run("log-dirs", "--describe", "--topic-list", TOPIC).check()
    document = json.loads(answer.lines[-1])
    return {
        (entry["partition"], broker["broker"]): Path(directory["logDir"])
        for broker in document["brokers"]
        for directory in broker["logDirs"]
        for entry in directory["partitions"]
        if not entry["isFuture"]
    }


class Plan:
    """A reassignment of one of the clusters."""

    def __init__(self, trio: Trio, pair: TrioPair, *rows: tuple[list[int], list[str]]) -> None:
        self._trio = trio
        entries = [
            {"topic": TOPIC, "partition": number, "replicas": replicas, "log_dirs": log_dirs}
            for number, (replicas, log_dirs) in enumerate(rows)
        ]
        self._words = (
            "--reassignment-json-file",
            pair.write(f"{id(self)}.json", {"version": 1, "partitions": entries}),
        )

    def answer(self, *words: str) -> Answer:
        code, lines = self._trio.answer("reassign-partitions", *self._words, *words)
        return code, sorted(line for line in lines if not line.startswith('{"version"'))

    def until_complete(self) -> Answer:
        self._trio.until(
            # A broker may not know the new replicas yet: "... rather than ...".
            lambda lines: not any("in progress" in li or "rather than" in li for li in lines),
            *("reassign-partitions", *self._words, "--verify", "--preserve-throttles"),
        )
        return self.answer("--verify")


def test_replicas_move_to_other_brokers_and_into_named_directories(clusters: TrioPair) -> None:
    def script(trio: Trio) -> Answer:
        named = str(trio.nodes[3].log_dirs[1])
        # Kafka's tool may fail to cancel a move of a replica that the cancellation has removed from
        # its new broker, so the plan that is cancelled names no directories.
        given_up = Plan(trio, clusters, ([2, 3], ["any", "any"]), ([3, 1], ["any", "any"]))
        plan = Plan(trio, clusters, ([2, 3], ["any", named]), ([3, 1], [named, "any"]))
        answers = [
            given_up.answer("--execute", "--throttle", "100000"),
            given_up.answer("--execute"),
            given_up.answer("--cancel"),
            given_up.answer("--verify"),
            plan.answer("--execute"),
            plan.until_complete(),
            trio.answer("topics", "--describe", "--topic", TOPIC),
        ]
        placed = places(trio)
        assert (placed["r-0", 3], placed["r-1", 3]) == (Path(named), Path(named))
        return answers

    answers = clusters.compare(script)
    assert "Reassignment of replica r-0-3 completed successfully." in answers[5][1]


def test_a_replica_on_another_broker_moves_on_into_a_directory_named_later(
    clusters: TrioPair,
) -> None:
    def script(trio: Trio) -> Answer:
        placed = places(trio)
        rows = []
        for partition, replicas in (("r-0", [1, 2]), ("r-1", [3, 1])):
            rows.append((replicas, [other(trio, placed.get((partition, b)), b) for b in replicas]))
        plan = Plan(trio, clusters, *rows)
        answers = [plan.answer("--execute"), plan.until_complete()]
        after = places(trio)
        for (replicas, log_dirs), partition in zip(rows, ("r-0", "r-1"), strict=True):
            moved = [str(after[partition, broker]) for broker in replicas]
            assert moved == log_dirs, (partition, moved)
        return answers

    clusters.compare(script)


def other(trio: Trio, present: Path | None, broker: int) -> str:
    """Return the directory of the broker in which the replica is not."""
    first, second = trio.nodes[broker].log_dirs
    return str(second if present == first else first)


@contextmanager
def traffic(trio: Trio) -> Iterator[list[int]]:
    """Produce with an idempotent producer meanwhile; the numbers that were acknowledged."""
    acknowledged: list[int] = []
    is_over = threading.Event()

    def work() -> None:
        producer = Producer(settings(trio.nodes[1], enable_idempotence=True, linger_ms=0))
        number = RECORDS
        while not is_over.is_set():

            def reported(error: object, _: object, number: int = number) -> None:
                assert error is None, error
                acknowledged.append(number)

            producer.produce(TOPIC, b"%08d" % number, partition=0, on_delivery=reported)
            producer.poll(0.002)
            number += 1
        assert producer.flush(LIMIT_S) == 0

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()


def consumed(trio: Trio, count: int) -> list[int]:
    consumer = Consumer(settings(trio.nodes[1], group_id="all"))
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    consumed: list[int] = []
    while len(consumed) < count:
        messages = consumer.consume(1000, 10.0)
        assert messages, f"{len(consumed)} of {count} records"
        consumed += [int((message.value() or b"")[:8]) for message in messages]
    consumer.close()
    return consumed


def test_leader_and_follower_move_between_directories_while_a_producer_sends(
    clusters: TrioPair,
) -> None:
    def script(trio: Trio) -> Answer:
        placed = places(trio)
        rows = [
            ([1, 2], [other(trio, placed["r-0", broker], broker) for broker in (1, 2)]),
            ([3, 1], [other(trio, placed["r-1", broker], broker) for broker in (3, 1)]),
        ]
        plan = Plan(trio, clusters, *rows)
        with traffic(trio) as acknowledged:
            trio.until(lambda _: bool(acknowledged), "cluster", "cluster-id")
            answers = [plan.answer("--execute"), plan.until_complete()]
        after = places(trio)
        assert [str(after["r-0", broker]) for broker in (1, 2)] == rows[0][1]
        assert consumed(trio, RECORDS + len(acknowledged)) == [*range(RECORDS), *acknowledged]
        return answers

    clusters.compare(script)
