"""An export of JSON with bad records, killed with its Spark session, and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from peers.clients import create
from peers.node import KafkaNode, Node, SpindleNode

pytestmark = pytest.mark.timeout(400)

RECORDS = 6000
BAD = frozenset(range(0, RECORDS, 7))
JOB = """
import sys
from spindle.pipeline import get_spark
from spindle.pipeline.export import export_delta
from spindle.pipeline.export.portions import PortionSize

spark = get_spark("dead-letters", "local[2]", {"spark.driver.memory": "1g"})
options = {
    "kafka.bootstrap.servers": sys.argv[1], "subscribe": "orders",
    "columns": "partition,offset,value",
    "valueFormat": "json", "valueSchema": "infer", "badRecords": "dead_letters",
}
result = export_delta(
    spark, sys.argv[2], options, source="spindle", portion=PortionSize(offsets=300)
)
print("ROWS", result.rows, result.dead_letters)
spark.stop()
"""


def fill(node: Node) -> None:
    create(node, "orders", 3)
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0, "linger.ms": 50})
    for number in range(RECORDS):
        value = json.dumps({"id": number, "price": number / 4, "place": {"x": 1}})
        if number in BAD:
            value = value[: number % 20]
        producer.produce("orders", value=value, key=str(number), partition=number % 3)
    assert producer.flush(60) == 0


def versions(path: Path) -> int:
    return len(list(path.glob("_delta_log/*.json")))


def start(node: Node, table: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", JOB, node.bootstrap, str(table)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def kill_between_commits(job: subprocess.Popen[str], table: Path, letters: Path) -> None:
    """Kill the job when the dead letters of a portion are committed and its rows are not."""
    while versions(letters) < 3 or versions(letters) <= versions(table):
        assert job.poll() is None, "the export ended before it could be killed"
        time.sleep(0.001)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait(30)


def numbers(path: Path) -> list[int]:
    rows = DeltaTable(path).to_pyarrow_table(columns=["partition", "offset"]).to_pylist()
    return sorted(row["offset"] * 3 + row["partition"] for row in rows)


@pytest.mark.parametrize("program", [SpindleNode, KafkaNode])
def test_a_killed_export_has_each_record_once_as_row_or_dead_letter(
    program: type[Node], tmp_path: Path
) -> None:
    table, letters = tmp_path / "orders", tmp_path / "orders_dead_letters"
    with program(tmp_path / "node") as node:
        fill(node)
        kill_between_commits(start(node, table), table, letters)
        assert 0 < len(numbers(table)) < RECORDS
        again = start(node, table)
        output, _ = again.communicate(timeout=200)
    assert again.returncode == 0
    assert "ROWS" in output
    assert numbers(letters) == sorted(BAD)
    assert numbers(table) == [number for number in range(RECORDS) if number not in BAD]
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert all(row["id"] == row["offset"] * 3 + row["partition"] for row in rows)
    assert all(row["price"] == row["id"] / 4 and row["place"] == {"x": 1} for row in rows)
