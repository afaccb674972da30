"""The items `spark-*`: Spark's built-in kafka source and Spindle's, on the same data.

Two nodes are filled with the same topics: Apache Kafka and Spindle. One Spark session then measures
each row of `spark_table` on both, in all ways, in turn.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from peers import spark_venv
from peers.clients import create
from peers.node import KafkaNode, Node, SpindleNode
from peers.paths import ROOT, PeerUnavailable
from rich.progress import Progress, TaskID

from benchmarks import native_client
from benchmarks.report import KAFKA, SPINDLE, Line, Results
from benchmarks.spark_table import ROWS, TOPICS, Row, Samples

PREFIX = "spark-"
ITEMS = {f"{PREFIX}{row.name}": row for row in ROWS}
WARM_UPS = 2

METRICS = (
    ("rate", "rows_per_s", "Mrows/s", 1e-6),
    ("client_cpu", "client_cpu_s", "CPU-s of the client", 1.0),
    ("broker_cpu", "broker_cpu_s", "CPU-s of the broker", 1.0),
)
"""Name, attribute of the samples, unit and its scale."""

# row -> cluster -> way -> samples
SamplesByRow = dict[str, dict[str, dict[str, Samples]]]


def measure(
    folder: Path,
    rows: list[Row],
    records: int,
    runs: int,
    results: Results,
    progress: Progress,
    samples: SamplesByRow,
) -> None:
    """Fill the topics on each node, and add the figures of each row to `samples` at once."""
    bar = progress.add_task("spark: filling", total=len(rows))
    nodes: list[Node] = [
        KafkaNode(folder / "spark-kafka"),
        SpindleNode(folder / "spark-spindle"),
    ]
    try:
        for node in nodes:
            node.format()
            node.start()
            _fill(node, rows, records)
        plan = {
            "rows": [row.name for row in rows],
            "records": records,
            "runs": runs,
            "warm_ups": WARM_UPS,
            "folder": str(folder / "spark"),
            "clusters": [
                {
                    "name": node.kind,
                    "bootstrap": node.bootstrap,
                    "log_dirs": ",".join(map(str, node.log_dirs)),
                    "pid": node.pid,
                }
                for node in nodes
            ],
        }
        _run(plan, results, progress, bar, samples)
    except (PeerUnavailable, RuntimeError) as failure:
        results.failures.append(f"spark: {failure}")
    finally:
        for node in nodes:
            node.remove()
        progress.remove_task(bar)


def _fill(node: Node, rows: list[Row], records: int) -> None:
    for topic in TOPICS:
        users = [row for row in rows if row.topic == topic]
        if not topic.is_input:
            for way in (way for row in users for way in row.ways):
                create(node, way.options["topic"], topic.partitions)
        if not users or not topic.is_input:
            continue
        create(node, topic.name, topic.partitions)
        for partition in range(topic.partitions):
            # The client sends one more record first, which opens its connection.
            native_client.run(
                "produce", node.bootstrap, topic.name,
                topic.records_of(records) // topic.partitions - 1, topic.value_bytes,
                partition=partition, linger_ms=5, acks="1",
            )  # fmt: skip


def _run(
    plan: dict[str, Any],
    results: Results,
    progress: Progress,
    bar: TaskID,
    samples: SamplesByRow,
) -> None:
    """Run spark_rows and take its samples. A row that fails is noted in the results."""
    log = Path(plan["folder"]).with_suffix(".log")
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [str(spark_venv.python()), "-m", "benchmarks.spark_rows"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=spark_venv.environment(),
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.terminate)  # it must not go on after an interrupted run
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(plan))
        process.stdin.close()
        progress.update(bar, description="spark: reading")
        for answer in map(json.loads, process.stdout):
            progress.update(bar, advance=1)
            progress.console.print(f"measured: {PREFIX}{answer['row']}")
            if "failure" in answer:
                results.failures.append(f"{PREFIX}{answer['row']}: {answer['failure']}")
            else:
                samples[answer["row"]] = _samples(answer["clusters"])
        process.wait()
    if process.returncode != 0:
        results.failures.append(f"spark: {log.read_text().strip()[-800:]}")


def _samples(clusters: dict[str, Any]) -> dict[str, dict[str, Samples]]:
    return {
        cluster: {label: Samples(**values) for label, values in ways.items()}
        for cluster, ways in clusters.items()
    }


def lines(by_row: SamplesByRow) -> list[Line]:
    """Return the figures of each way to do the work of each row, next to the first way's.

    In the column of Kafka is the built-in source (the first way) and in Spindle's the other way,
    both on the same cluster.
    """
    return [
        Line(
            f"{PREFIX}{row.name}: {way.label} on {cluster}",
            metric,
            unit,
            metric == "rate",
            {
                KAFKA: _scaled(samples[row.baseline.label], name, scale),
                SPINDLE: _scaled(samples[way.label], name, scale),
            },
            {KAFKA: row.goal} if row.goal is not None and metric == "rate" else {},
        )
        for row in ROWS
        for cluster, samples in by_row.get(row.name, {}).items()
        for way in row.ways[1:]
        for metric, name, unit, scale in METRICS
    ]


def _scaled(samples: Samples, name: str, scale: float) -> list[float]:
    values: list[float] = getattr(samples, name)
    return [value * scale for value in values]
