"""How time and memory of reads grow with bytes, partitions and executors, on a real Spark cluster.

python -m benchmarks.spark_scale [--gib 10] [--executors 1,2] [--partitions 1,8,64] [--json FILE]

Executors are processes with one core and 1 GiB each; the topics do not fit into their memory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import psutil
from peers.clients import create
from peers.node import KafkaNode, Node, SpindleNode
from peers.spark_cluster import SparkCluster
from rich.console import Console
from rich.table import Table

from benchmarks import native_client

GIB = 1 << 30
MIB = 1 << 20
RECORD_BYTES = 1024
EXECUTOR_MIB = 1024
SOURCES = ("spindle", "spindle-segments")
NODES: dict[str, type[Node]] = {"spindle": SpindleNode, "kafka": KafkaNode}
BASE_PARTITIONS = 8
LIMIT_S = 7200

Run = dict[str, Any]


@click.command(help=__doc__)
@click.option("--gib", default=10.0, show_default=True, help="Size of the largest topic.")
@click.option("--executors", default="1,2", show_default=True, help="Numbers of executors.")
@click.option("--partitions", default="1,8,64", show_default=True, help="Of a quarter of the size.")
@click.option("--server", type=click.Choice(list(NODES)), default="spindle", show_default=True)
@click.option("--runs", default=2, show_default=True, help="Reads of each kind.")
@click.option("--json", "json_file", type=Path, help="Also write every value to this file.")
@click.option("--data", type=Path, help="Folder for the logs (default: a temporary one).")
def main(
    gib: float,
    executors: str,
    partitions: str,
    server: str,
    runs: int,
    json_file: Path | None,
    data: Path | None,
) -> None:
    """Fill the topics, read them on clusters of several sizes, and print a table."""
    counts = [int(text) for text in partitions.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="spindle-scale-", dir=data))
    needed = gib * GIB * (1 + len(counts) / 4) * 1.1
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise click.ClickException(
            f"{folder}: {free / GIB:.1f} GiB are free, {needed / GIB:.1f} are needed"
        )
    node = NODES[server](folder / "node", 1)
    results: list[Run] = []
    try:
        with node:
            cases = fill(node, round(gib * GIB), counts)
            for number in (int(text) for text in executors.split(",")):
                results += measure(folder, node, number, cases, runs)
    finally:
        node.remove()
        shutil.rmtree(folder, ignore_errors=True)
    document = {"machine": machine(), "server": server, "gib": gib, "results": results}
    if json_file is not None:
        json_file.write_text(json.dumps(document, indent=1))
    show(results, server, Console(width=140 if not sys.stdout.isatty() else None))


def machine() -> dict[str, object]:
    """Return what the figures depend on, the load before the first run included."""
    return {
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "load_average": psutil.getloadavg()[0],
    }


def fill(node: Node, size_bytes: int, partition_counts: list[int]) -> list[Run]:
    """Write one large topic, and for each number of partitions one of a quarter of its size.

    Return the reads to measure: a quarter, a half and all of the large topic, and the others.
    """
    write(node, "large", BASE_PARTITIONS, size_bytes)
    per_partition = size_bytes // RECORD_BYTES // BASE_PARTITIONS
    cases = []
    for parts in (4, 2, 1):
        ends = {str(number): per_partition // parts for number in range(BASE_PARTITIONS)}
        bounds = {"endingOffsets": json.dumps({"large": ends})}
        rows = per_partition // parts * BASE_PARTITIONS
        cases.append(case("large", BASE_PARTITIONS, rows, bounds))
    for count in partition_counts:
        topic = f"partitions-{count}"
        write(node, topic, count, size_bytes // 4)
        cases.append(case(topic, count, size_bytes // 4 // RECORD_BYTES // count * count, {}))
    return cases


def case(topic: str, partitions: int, rows: int, options: dict[str, str]) -> Run:
    return {
        "topic": topic,
        "partitions": partitions,
        "rows": rows,
        "bytes": rows * RECORD_BYTES,
        "options": {"subscribe": topic, **options},
    }


def write(node: Node, topic: str, partitions: int, size_bytes: int) -> None:
    """Write records of 1 KiB, the same number to each partition."""
    create(node, topic, partitions)
    count = size_bytes // RECORD_BYTES // partitions
    for partition in range(partitions):
        # The client sends one record more than it counts, to open its connection.
        native_client.run(
            "produce", node.bootstrap, topic, count - 1, RECORD_BYTES,
            partition=partition, linger_ms=5, acks="1",
        )  # fmt: skip


def measure(folder: Path, node: Node, executors: int, cases: list[Run], runs: int) -> list[Run]:
    """Read all cases with every source on a cluster of this many executors."""
    directories = ",".join(map(str, node.log_dirs))
    common = {"kafka.bootstrap.servers": node.bootstrap}
    with ExitStack() as stack:
        cluster = SparkCluster(folder / f"spark-{executors}", executors, 1, EXECUTOR_MIB)
        plan = {
            "master": stack.enter_context(cluster).master,
            "executors": executors,
            "executor_memory_mib": EXECUTOR_MIB,
            "runs": runs,
            "cases": [
                {
                    **case,
                    "source": source,
                    "options": {
                        **case["options"],
                        **common,
                        **({"logDirs": directories} if source == "spindle-segments" else {}),
                    },
                }
                for case in cases
                for source in SOURCES
            ],
        }
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.spark_scale_session"],
            input=json.dumps(plan),
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    if done.returncode != 0:
        raise click.ClickException(f"the session with {executors} executors failed (see above)")
    click.echo(f"{executors} executors: {time.monotonic() - begin:.0f} s", err=True)
    result: list[Run] = json.loads(done.stdout.splitlines()[-1])
    return result


def show(results: list[Run], server: str, console: Console) -> None:
    """Print one row for each read: the fastest run and the largest resident memory of all runs."""
    output = Table(
        title=f"{server}: records of {RECORD_BYTES} B; executors of 1 core and {EXECUTOR_MIB} MiB; "
        "largest resident memory in MiB"
    )
    for title in ("source", "executors", "partitions", "GiB", "tasks", "s", "MB/s", "executor",
                  "Python worker", "driver JVM", "driver Python", "planner"):  # fmt: skip
        output.add_column(title, justify="left" if title == "source" else "right")
    for row in sorted(results, key=lambda row: (row["source"], row["executors"], row["topic"])):
        seconds = min(row["seconds"])
        memory = row["rss_mib"]
        output.add_row(
            row["source"],
            str(row["executors"]),
            str(row["partitions"]),
            f"{row['bytes'] / GIB:.2f}",
            str(row["tasks"]),
            f"{seconds:.1f}",
            f"{row['bytes'] / seconds / 1e6:.0f}",
            *(f"{memory.get(kind, 0):.0f}" for kind in
              ("executor", "worker", "driver_jvm", "driver_python", "planner")),
        )  # fmt: skip
    console.print(output)


if __name__ == "__main__":
    main()
