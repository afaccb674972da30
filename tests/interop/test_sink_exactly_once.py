"""The sink on Apache Kafka and on Spindle: every death, then a stream whose processes are killed.

The rows are read by librdkafka with `read_committed`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from peers import spark_venv
from peers.clients import create
from peers.committed_reader import committed_values
from peers.node import KafkaNode, Node
from sink_run import SinkRun
from sink_scenarios import SCENARIOS, Scenario
from waiting import wait_until

pytestmark = pytest.mark.timeout(600)

PROGRAM = Path(__file__).with_name("spark_sink_stream.py")
NODE_OVERRIDES = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
PARTITIONS = 3
BATCHES = 16
ROWS_PER_BATCH = 500
DRIVER_KILLS = 2
LIMIT_S = 400.0
DAEMON = "spindle.pipeline.spark.python_daemon"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = KafkaNode(tmp_path_factory.mktemp("kafka") / "node", overrides=dict(NODE_OVERRIDES))
    try:
        with node:
            yield node
    finally:
        node.remove()


@pytest.fixture(scope="module")
def candidate(
    tmp_path_factory: pytest.TempPathFactory, candidate_class: type[Node]
) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("candidate") / "node"
    node = candidate_class(folder, overrides=dict(NODE_OVERRIDES))
    try:
        with node:
            yield node
    finally:
        node.remove()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_rows_are_written_once_to_kafka(
    kafka: Node, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = scenario.__name__
    create(kafka, topic, 2)
    scenario(SinkRun(kafka.bootstrap, topic, f"query-{topic}", "first"), monkeypatch)


def start(plan: dict[str, Any], errors: Path) -> subprocess.Popen[str]:
    """Start the stream in a process group of its own, so that its JVM can be killed with it."""
    with errors.open("a") as log:
        process = subprocess.Popen(
            [str(spark_venv.python()), str(PROGRAM)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, text=True,
            env=spark_venv.environment(), start_new_session=True,
        )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(plan))
    process.stdin.close()
    return process


def kill_group(process: subprocess.Popen[str]) -> None:
    """End the driver, its JVM and its workers as kill -9 does."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_a_worker(process: subprocess.Popen[str], chance: random.Random) -> None:
    """Kill one Python worker of the tasks, if there is any now."""
    children = psutil.Process(process.pid).children(recursive=True)
    daemons = [child.pid for child in children if DAEMON in _command(child)]
    # The daemon forks the workers; without it, all tasks that run now fail as well.
    workers = [pid for pid in daemons if _parent(pid) in daemons]
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _parent(pid: int) -> int | None:
    try:
        parent: int = psutil.Process(pid).ppid()
    except psutil.Error:
        return None
    return parent


def committed_batches(checkpoint: Path) -> int:
    """Return how many batches Spark has noted as done."""
    folder = checkpoint / "commits"
    return sum(file.name.isdecimal() for file in folder.iterdir()) if folder.is_dir() else 0


@pytest.mark.parametrize("peer", ["candidate", "kafka"])
def test_each_row_of_a_stream_is_there_once_whatever_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path, peer: str
) -> None:
    node: Node = request.getfixturevalue(peer)
    create(node, "stream", PARTITIONS)
    checkpoint = tmp_path / "checkpoint"
    plan = {
        "bootstrap": node.bootstrap,
        "topic": "stream",
        "checkpoint": str(checkpoint),
        "batches": BATCHES,
        "rows_per_batch": ROWS_PER_BATCH,
    }
    chance = random.Random(12)
    errors = tmp_path / "errors"
    process = start(plan, errors)
    kills, hit = 0, 0

    def is_done_despite_kills() -> bool:
        nonlocal process, kills, hit
        done = committed_batches(checkpoint)
        if done >= BATCHES:
            return True
        if process.poll() is not None:  # more failures of one task than Spark allows
            process = start(plan, errors)
        elif kills < DRIVER_KILLS and done >= (kills + 1) * BATCHES // (DRIVER_KILLS + 1):
            time.sleep(chance.random())
            kill_group(process)
            kills += 1
            process = start(plan, errors)
        elif done > hit:  # a worker in each batch, at some time in it
            time.sleep(chance.random())
            kill_a_worker(process, chance)
            hit = done
        return False

    def state() -> tuple[int, str]:
        return committed_batches(checkpoint), errors.read_text()[-3000:]

    try:
        wait_until(is_done_despite_kills, state, limit_s=LIMIT_S)
        assert process.wait(120) == 0, errors.read_text()[-3000:]
    finally:
        if process.poll() is None:
            kill_group(process)
    assert kills == DRIVER_KILLS
    parts = committed_values(node.bootstrap, "stream", PARTITIONS)
    values = sorted(int(value or b"") for part in parts.values() for value in part)
    assert len(values) >= BATCHES * ROWS_PER_BATCH
    assert values == list(range(len(values)))
