"""The item `spark`: rows per second of Spark's built-in source and Spindle's, on the same data."""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path

from peers import spark_venv
from peers.clients import create
from peers.node import KafkaNode, Node, SpindleNode
from peers.paths import PeerUnavailable
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import native_client
from benchmarks.report import Results, spread

NAME = "spark"
TOPIC = "rows"
RECORD_BYTES = 100
PARTITIONS = 8
WARM_UPS = 2

# job -> source -> rows/s of each run; the other sources are compared with the first one
Rates = dict[str, dict[str, list[float]]]
BASELINE = "kafka source on Kafka"


def measure(folder: Path, records: int, runs: int, results: Results, progress: Progress) -> Rates:
    """Fill one topic on each node and read it in turn through every source."""
    bar = progress.add_task(f"{NAME}: filling", total=None)
    nodes: list[Node] = [
        KafkaNode(folder / "spark-kafka"),
        SpindleNode(folder / "spark-spindle"),
    ]
    try:
        for node in nodes:
            node.format()
            node.start()
            create(node, TOPIC, PARTITIONS)
            for partition in range(PARTITIONS):
                native_client.run(
                    "produce", node.bootstrap, TOPIC, records // PARTITIONS - 1, RECORD_BYTES,
                    partition=partition, linger_ms=5, acks="1",
                )  # fmt: skip
        progress.update(bar, description=f"{NAME}: reading")
        return _rates(nodes, records, runs)
    except (PeerUnavailable, RuntimeError) as failure:
        results.failures.append(f"{NAME}: {failure}")
        return {}
    finally:
        for node in nodes:
            node.remove()
        progress.remove_task(bar)


def _rates(nodes: list[Node], records: int, runs: int) -> Rates:
    kafka, spindle = nodes
    at_kafka = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": TOPIC}
    at_spindle = {"kafka.bootstrap.servers": spindle.bootstrap, "subscribe": TOPIC}
    directories = {"logDirs": ",".join(map(str, spindle.log_dirs)), "subscribe": TOPIC}
    plan = {
        "records": records,
        "runs": runs,
        "warm_ups": WARM_UPS,
        "sources": {
            BASELINE: {"format": "kafka", "options": at_kafka},
            "kafka source on Spindle": {"format": "kafka", "options": at_spindle},
            "spindle source on Spindle": {"format": "spindle", "options": at_spindle},
            "spindle-segments": {"format": "spindle-segments", "options": directories},
        },
    }
    done = subprocess.run(
        [str(spark_venv.python()), str(Path(__file__).with_name("spark_rows.py"))],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        env=spark_venv.environment(),
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-800:])
    rates: Rates = json.loads(done.stdout.splitlines()[-1])
    return rates


def show(rates: Rates, console: Console) -> None:
    """Print one row for each job and source."""
    if not rates:
        return
    output = Table(
        title=f"Spark 4.2, local[2], {RECORD_BYTES} B records, {PARTITIONS} partitions: "
        "million rows/s, median (min-max)"
    )
    output.add_column("job")
    output.add_column("source")
    output.add_column("Mrows/s", justify="right")
    output.add_column("ratio", justify="right")
    for job, sources in rates.items():
        base = statistics.median(sources[BASELINE])
        for label, values in sources.items():
            ratio = statistics.median(values) / base
            shown = spread([value / 1e6 for value in values])
            output.add_row(job, label, shown, f"{ratio:.2f}x")
        output.add_section()
    console.print(output)
