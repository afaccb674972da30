"""The pipeline on Spark clusters of several processes; executors are killed during jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from peers.clients import create
from peers.committed_reader import committed_values
from peers.node import KafkaNode, Node
from peers.spark_cluster import SparkCluster

pytestmark = pytest.mark.timeout(900)

TOPIC = "rows"
PARTITIONS = 4
RECORDS = 100_000
EVERY_OFFSET_ONCE = [[number, RECORDS, RECORDS, 0, RECORDS - 1] for number in range(PARTITIONS)]
WRITTEN = 12_000
SPECULATION = ("started", "ended")
"""When the first attempt of a task goes on: its copy has started, or has ended its rows."""
SOURCES = {
    "spindle": {"parallelism": "24"},
    "spindle-segments": {"taskBytes": "2000000"},
}


@pytest.fixture(
    scope="module", params=["candidate on a standalone cluster", "kafka on local-cluster"]
)
def answer(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    candidate_class: type[Node],
) -> Iterator[dict[str, Any]]:
    """Return what every job found although executors were killed under it."""
    folder = tmp_path_factory.mktemp("cluster")
    is_standalone = "standalone" in request.param
    node = (candidate_class if is_standalone else KafkaNode)(folder / "node")
    with ExitStack() as stack:
        stack.callback(node.remove)
        stack.enter_context(node)
        fill(node)
        master = "local-cluster[2,1,1024]"
        if is_standalone:
            # Spark starts no copy of a task on the host that runs the first attempt.
            hosts = ("127.0.0.1", "127.0.0.2")
            master = stack.enter_context(SparkCluster(folder / "spark", hosts=hosts)).master
        yield play(node, master, folder, SPECULATION if is_standalone else ())


def fill(node: Node) -> None:
    create(node, TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0, "linger.ms": 20})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            while True:
                try:
                    producer.produce(TOPIC, value=b"%0100d" % number, partition=partition)
                    break
                except BufferError:  # The queue of the client is full.
                    producer.poll(1)
        producer.poll(0)
    assert producer.flush(60) == 0


def play(node: Node, master: str, folder: Path, speculation: Sequence[str]) -> dict[str, Any]:
    servers = {"kafka.bootstrap.servers": node.bootstrap}
    common = {**servers, "subscribe": TOPIC}
    sources: dict[str, Any] = {
        name: {
            "format": name,
            "options": {**common, **extra},
            "table": str(folder / name),
            "jobs": ["read", "export", *(["stream"] if name == "spindle" else [])],
        }
        for name, extra in SOURCES.items()
    }
    topics = {name: f"written-{name}" for name in ("sink", *speculation)}
    for topic in topics.values():
        create(node, topic, PARTITIONS)
    writes = {
        name: {"rows": WRITTEN, "options": {**servers, "topic": topic}}
        for name, topic in topics.items()
    }
    sources["sink"] = {**writes.pop("sink"), "tasks": 24, "jobs": ["sink"]}
    for name, entry in writes.items():
        entry["folder"] = str(folder / name)
    plan = {"master": master, "sources": sources, "speculation": writes}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("spark_kills.py"))],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for name in SOURCES:
        answer[name]["table"] = offsets_by_partition(folder / name)
    answer["written"] = {
        name: sorted(
            int(value or b"")
            for part in committed_values(node.bootstrap, topic, PARTITIONS).values()
            for value in part
        )
        for name, topic in topics.items()
    }
    return answer


def offsets_by_partition(table: Path) -> dict[int, list[int]]:
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["partition", "offset"])
    by_partition: dict[int, list[int]] = {}
    for partition, offset in zip(*rows.to_pydict().values(), strict=True):
        by_partition.setdefault(partition, []).append(offset)
    return {partition: sorted(offsets) for partition, offsets in by_partition.items()}


def was_in_the_middle(job: dict[str, Any]) -> bool:
    done: int = job["tasks_done_at_kill"]
    return 0 < done < job["tasks_total"] and bool(job["killed"])


@pytest.mark.parametrize("source", SOURCES)
def test_a_read_is_exact_although_executors_die(answer: dict[str, Any], source: str) -> None:
    job = answer[source]["read"]
    assert was_in_the_middle(job)
    assert job["result"] == EVERY_OFFSET_ONCE


@pytest.mark.parametrize("source", SOURCES)
def test_an_export_is_exact_although_executors_die(answer: dict[str, Any], source: str) -> None:
    job = answer[source]["export"]
    assert was_in_the_middle(job)
    assert job["result"] == PARTITIONS * RECORDS
    expected = list(range(RECORDS))
    assert answer[source]["table"] == dict.fromkeys(range(PARTITIONS), expected)


def test_a_stream_is_exact_although_executors_die(answer: dict[str, Any]) -> None:
    job = answer["spindle"]["stream"]
    assert was_in_the_middle(job)
    assert job["result"] == EVERY_OFFSET_ONCE


def test_a_write_is_exact_although_executors_die(answer: dict[str, Any]) -> None:
    assert was_in_the_middle(answer["sink"]["sink"])
    assert answer["written"]["sink"] == list(range(WRITTEN))


@pytest.mark.parametrize("wakes", SPECULATION)
def test_a_write_is_exact_although_two_attempts_of_a_task_run_at_once(
    answer: dict[str, Any], wakes: str
) -> None:
    if "speculation" not in answer:
        pytest.skip("the workers of local-cluster are on one host")
    assert answer["speculation"][wakes]
    assert answer["written"][wakes] == list(range(WRITTEN))
