"""Streams of our source next to those of Spark's built-in one, on Spindle and on Apache Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from peers import spark_venv
from peers.clients import create
from peers.compare import Answer
from peers.node import KafkaNode, Node
from waiting import wait_for

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.producer import BlockingProducer
from spindle.client.blocking.settings import client_settings
from spindle.common.ids import TopicPartition
from spindle.protocol.records.builder import SimpleRecord

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).parent
RECORDS_PER_PARTITION = 30_000
KILLS = 2
START_LIMIT_S = 120.0


def start(program: str, plan: dict[str, Any], errors: Path) -> subprocess.Popen[str]:
    """Start a program of Spark in a process group of its own, so that its JVM dies with it."""
    with errors.open("w") as log:
        process = subprocess.Popen(
            [str(spark_venv.python()), str(HERE / program)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env=spark_venv.environment(), start_new_session=True,
        )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(plan))
    process.stdin.close()
    return process


def finish(process: subprocess.Popen[str], errors: Path) -> Answer:
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    assert process.wait() == 0, errors.read_text()[-3000:]
    return json.loads(lines[-1])


@pytest.fixture(scope="module", params=["candidate", "kafka"])
def node(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    candidate_class: type[Node],
) -> Any:
    node_class = candidate_class if request.param == "candidate" else KafkaNode
    # The timestamps of the records are old, and retention would remove them after five minutes.
    one = node_class(
        tmp_path_factory.mktemp("streams") / "node", overrides={"log.retention.ms": "-1"}
    )
    try:
        with one:
            yield one
    finally:
        one.remove()


@pytest.fixture(scope="module")
def scenes(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = tmp_path_factory.mktemp("scenes")
    errors = folder / "errors"
    plan = {"bootstrap": node.bootstrap, "folder": str(folder)}
    return finish(start("spark_streams.py", plan, errors), errors)


def test_batches_are_those_of_the_built_in_source(scenes: Answer) -> None:
    batches = scenes["same_batches"]
    assert batches["spindle"] == batches["kafka"]
    assert batches["spindle-segments"] == batches["kafka"]
    assert sum(map(len, batches["kafka"])) == 427 + 90
    assert len(batches["kafka"]) >= 4


def test_both_sources_take_turns_on_one_checkpoint(scenes: Answer) -> None:
    assert scenes["one_checkpoint"] == {"counts": [60] * 5, "different": 300}


def test_a_repeated_batch_has_the_same_rows(scenes: Answer) -> None:
    batches = scenes["repeated_batches"]
    assert [len(rows) for rows in batches["first"]] == [100, 100, 50]
    assert batches["repeated"] == batches["first"]


def test_a_topic_that_was_created_again_is_not_taken_for_the_first(scenes: Answer) -> None:
    scene = scenes["created_again"]
    assert scene["first"] == 40
    assert "topic 'reborn' was deleted and created again" in scene["refusal"]
    assert scene["left"] == [f"value {n}" for n in range(1000, 1060)]


def test_offsets_of_finished_batches_are_committed_to_a_group(scenes: Answer) -> None:
    assert scenes["lag_of_a_group"] == {"watched-0": 70, "watched-1": 30}


def fill(node: Node, topic: str) -> None:
    create(node, topic, 2)
    with WireClient(client_settings({"bootstrap.servers": node.bootstrap})) as client:
        producer = BlockingProducer(client)
        for base in range(0, RECORDS_PER_PARTITION, 500):
            for partition in (0, 1):
                records = [
                    SimpleRecord(None, b"%d-%d" % (partition, n), 1_700_000_000_000 + n)
                    for n in range(base, base + 500)
                ]
                producer.send(TopicPartition(topic, partition), records)


def batch_ids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("[0-9]*")] if folder.is_dir() else []


def kill_in_a_batch(process: subprocess.Popen[str], checkpoint: Path, errors: Path) -> int:
    """Kill the driver when it has planned a new batch and not committed it; return the batch."""
    before = max(batch_ids(checkpoint / "offsets"), default=-1)

    def planned_batch() -> int:
        assert process.poll() is None, errors.read_text()[-3000:]
        return max(batch_ids(checkpoint / "offsets"), default=-1)

    planned = wait_for(
        planned_batch,
        lambda batch: batch > before and batch not in batch_ids(checkpoint / "commits"),
        "the stream plans a batch",
        limit_s=START_LIMIT_S,
        pause_s=0.005,
    )
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return planned


def test_a_driver_that_is_killed_in_its_batches_loses_and_repeats_nothing(
    node: Node, tmp_path: Path
) -> None:
    fill(node, "copied")
    plan = {
        "bootstrap": node.bootstrap, "topic": "copied", "folder": str(tmp_path),
        "max_offsets": 6000, "finish": False,
    }  # fmt: skip
    errors = tmp_path / "errors"
    for _ in range(KILLS):
        process = start("spark_stream_copy.py", plan, errors)
        try:
            kill_in_a_batch(process, tmp_path / "checkpoint", errors)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert len(batch_ids(tmp_path / "checkpoint" / "offsets")) >= KILLS
    copied = finish(start("spark_stream_copy.py", plan | {"finish": True}, errors), errors)
    assert copied == {
        "rows": 2 * RECORDS_PER_PARTITION,
        "different": 2 * RECORDS_PER_PARTITION,
        "values": 2 * RECORDS_PER_PARTITION,
        "last": {"0": RECORDS_PER_PARTITION - 1, "1": RECORDS_PER_PARTITION - 1},
    }
