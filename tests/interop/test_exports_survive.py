"""Exports under traffic, two at a time, killed at any time: the table has every record once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from peers.clients import create
from peers.exported_rows import files_without_a_table, values_of
from peers.node import Node
from peers.paths import SPINDLE
from peers.steady_input import SteadyInput
from waiting import wait_until

from spindle.pipeline.export.jobs import TableFormat, open_table
from spindle.pipeline.export.maintenance import vacuum_table

pytestmark = pytest.mark.timeout(300)
PARTITIONS = 4
KILLS = 4
FORMATS = ("delta", "iceberg", "parquet")
EXPORTING = Path(__file__).with_name("exporting.py")
LIMIT_S = 120.0


@pytest.fixture(scope="module", params=["candidate"])
def node(tmp_path_factory: pytest.TempPathFactory, candidate_class: type[Node]) -> Iterator[Node]:
    node = candidate_class(tmp_path_factory.mktemp("exports") / "node")
    try:
        with node:
            yield node
    finally:
        node.remove()


class Exporting:
    """A process that exports until it is killed."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, str(EXPORTING), *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait_for_a_run(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the exporter ended"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        assert self._process.returncode == -signal.SIGKILL, "it ended by itself"


@pytest.mark.parametrize("table_format", FORMATS)
def test_two_exporters_that_are_killed_write_every_record_once(
    node: Node, tmp_path: Path, table_format: TableFormat
) -> None:
    topic, table = f"killed-{table_format}", tmp_path / "warehouse" / "table"
    create(node, topic, PARTITIONS)
    words = (node.bootstrap, topic, table_format, str(table))
    chance = random.Random(table_format)
    with SteadyInput(node.bootstrap, topic, PARTITIONS, 100) as traffic:
        running = [Exporting(*words), Exporting(*words)]
        for number in range(KILLS):
            victim = running.pop(0)
            victim.wait_for_a_run()
            # Any moment of a run will do: the pause chooses one, and no result depends on it.
            time.sleep(chance.random() * 0.5)
            victim.kill()
            if number < KILLS - 1:
                running.append(Exporting(*words))
        running[0].wait_for_a_run()
        running[0].kill()
    subprocess.run(
        [sys.executable, str(EXPORTING), *words, "once"], check=True, stdout=subprocess.PIPE
    )
    values = values_of(table_format, table)
    assert sum(map(len, values.values())) > 100
    assert dict(values) == dict(traffic.written)
    assert files_without_a_table(table_format, table) == set()


@pytest.mark.parametrize("table_format", FORMATS)
def test_two_merging_exporters_that_are_killed_leave_the_latest_row_of_each_key(
    node: Node, tmp_path: Path, table_format: TableFormat
) -> None:
    topic, table = f"merged-{table_format}", tmp_path / "warehouse" / "table"
    create(node, topic, PARTITIONS)
    words = (node.bootstrap, topic, table_format, str(table), "upsert")
    chance = random.Random(table_format)
    with Changes(node.bootstrap, topic) as changes:
        running = [Exporting(*words), Exporting(*words)]
        for _ in range(KILLS):
            victim = running.pop(0)
            victim.wait_for_a_run()
            # Any moment of a run will do: the pause chooses one, and no result depends on it.
            time.sleep(chance.random() * 0.5)
            victim.kill()
            running.append(Exporting(*words))
        for exporting in running:
            exporting.wait_for_a_run()
            exporting.kill()
    subprocess.run(
        [sys.executable, str(EXPORTING), *words, "once"], check=True, stdout=subprocess.PIPE
    )
    assert changes.sent > 1000
    assert rows_by_key(table_format, table) == changes.latest
    vacuum_table(table_format, table, hours=0)
    live = {path.name for path in open_table(table_format, table).live_files()}
    assert {path.name for path in table.rglob("*.parquet") if "_log" not in str(path)} == live


class Changes:
    """Sends changes of a few keys, and deletes, until the block ends."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.latest: dict[bytes, bytes] = {}
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        chance = random.Random(self._topic)
        while not self._ended.wait(0.01):
            for _ in range(20):
                key, value = b"%d" % chance.randrange(200), b"%d" % self.sent
                if chance.random() < 0.2:
                    self._producer.produce(self._topic, key=key, value=None)
                    self.latest.pop(key, None)
                else:
                    self._producer.produce(self._topic, key=key, value=value)
                    self.latest[key] = value
                self.sent += 1
            self._producer.poll(0)

    def __enter__(self) -> Changes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def rows_by_key(table_format: TableFormat, table: Path) -> dict[bytes, bytes]:
    """Return the values of a table by their keys, each of which is there once."""
    rows = [
        row
        for path in open_table(table_format, table).live_files()
        for row in pq.read_table(path, columns=["key", "value"]).to_pylist()
    ]
    by_key = {row["key"]: row["value"] for row in rows}
    assert len(by_key) == len(rows)
    return by_key


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_command_continues_where_it_was_killed(
    node: Node, tmp_path: Path, table_format: TableFormat
) -> None:
    topic, table = f"command-{table_format}", tmp_path / "warehouse" / "table"
    create(node, topic, PARTITIONS)
    with SteadyInput(node.bootstrap, topic, PARTITIONS, 4000) as traffic:
        time.sleep(2)
    command = [
        str(SPINDLE), "export", topic, str(table), "-b", node.bootstrap, "--format", table_format,
        "--commit-rows", "200", "--master", "local[2]", "-c", "spark.driver.memory=1g", "--json",
    ]  # fmt: skip
    first = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    wait_until(
        lambda: list(table.rglob("*.parquet")) or first.poll() is not None,
        limit_s=LIMIT_S,
        pause_s=0.2,
    )
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert first.stdout is not None
    first.stdout.close()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert dict(values_of(table_format, table)) == dict(traffic.written)
    assert files_without_a_table(table_format, table) == set()
