"""`make bench`: measure Apache Kafka and Spindle in turn, on the same machine, in the same minutes.

python -m benchmarks.run [--quick] [--items produce-1KiB-acks1,one-in-flight] [--runs 5]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from peers.node import KafkaNode, Node, SpindleNode
from peers.paths import ROOT, PeerUnavailable, kafka_libs
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from benchmarks import native_client, spark
from benchmarks.catalogue import NODE_ITEMS, selected
from benchmarks.compiled import compiled
from benchmarks.environment import environment, summary
from benchmarks.items import GIB, MIB, Sizes
from benchmarks.report import FLOOR, Line, Results, show
from benchmarks.session import Session

QUICK = Sizes(
    volume_bytes=256 * MIB,
    small_volume_bytes=64 * MIB,
    latency_records=3_000,
    warm_up_requests=3_000,
    topics=50,
    restart_partitions=100,
    idle_s=5,
)


@click.command(help=__doc__)
@click.option(
    "--items",
    "names",
    help="Comma-separated items and sets (data-plane, spark); all when left out.",
)
@click.option("--list", "list_items", is_flag=True, help="Name the items and stop.")
@click.option("--runs", default=5, show_default=True, help="Measurements for each program.")
@click.option("--quick", is_flag=True, help="Small sizes and two runs: a smoke test.")
@click.option("--volume-mib", type=int, help="Data for each produce or consume run of 1 KiB.")
@click.option("--partitions", type=int, help="Partitions of the restart item.")
@click.option(
    "--spark-records", type=click.IntRange(min=1000), help="Records of the items spark-*."
)
@click.option("--json", "json_file", type=Path, help="Also write every value to this file.")
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Another checkout of Spindle, after `make setup`, in Kafka's place.",
)
@click.option("--with-kafka", is_flag=True, help="Kafka, too, in a run with --against.")
@click.option("--data", type=Path, help="Folder for the logs (default: a temporary one).")
def main(
    names: str | None,
    list_items: bool,
    runs: int,
    quick: bool,
    volume_mib: int | None,
    partitions: int | None,
    spark_records: int | None,
    json_file: Path | None,
    against: Path | None,
    with_kafka: bool,
    data: Path | None,
) -> None:
    """Run the benchmarks and print their table."""
    # Leave as after Ctrl-C: the nodes are stopped and their folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = _console()
    if list_items:
        console.print("\n".join([*NODE_ITEMS, *spark.ITEMS]))
        return
    wanted = selected(names, with_kafka or against is None)
    rows = [row for name, row in spark.ITEMS.items() if name in wanted]
    sizes = _sizes(quick, volume_mib, partitions)
    runs = min(runs, 2) if quick else runs
    try:
        classes = _node_classes(against, with_kafka)
        native_client.executable()
        compiled("floor")
    except PeerUnavailable as missing:
        raise click.ClickException(str(missing)) from None
    chosen = [NODE_ITEMS[name] for name in wanted if name in NODE_ITEMS]
    results = Results(tuple(node_class.kind for node_class in classes))
    spark_records = spark_records or (400_000 if quick else 3_000_000)
    samples: spark.SamplesByRow = {}
    checkouts = {SpindleNode.kind: ROOT} | ({against.name: against} if against else {})
    with _folder(data) as folder, _progress(console) as progress:
        document = {
            "environment": environment(folder, checkouts, KafkaNode in classes),
            "settings": {**asdict(sizes), "runs": runs, "spark_records": spark_records},
        }
        bar = progress.add_task("measuring")
        try:
            Session(classes, sizes, runs, folder, results, progress, bar).measure(chosen)
            if rows:
                spark.measure(folder, rows, spark_records, runs, results, progress, samples)
        finally:
            # After Ctrl-C, too: what is measured is not lost.
            progress.stop()
            _report(document, [*results.lines(chosen), *spark.lines(samples)], results, json_file)
    sys.exit(1 if results.failures else 0)


def _report(
    document: dict[str, Any], lines: list[Line], results: Results, json_file: Path | None
) -> None:
    """Print the environment and the table, and write the JSON."""
    console = _console()
    console.print(summary(document["environment"]), markup=False, highlight=False)
    show(lines, results, console)
    if json_file is not None:
        document |= {
            "load_average_at_end": list(os.getloadavg()),
            "programs": results.programs,
            "lines": [line.as_json() for line in lines],
            "failures": results.failures,
            "skipped": results.skipped,
        }
        json_file.write_text(json.dumps(document, indent=1))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 200)


def _sizes(quick: bool, volume_mib: int | None, partitions: int | None) -> Sizes:
    base = QUICK if quick else Sizes()
    return replace(
        base,
        volume_bytes=volume_mib * MIB if volume_mib else base.volume_bytes,
        restart_partitions=partitions or base.restart_partitions,
    )


def _node_classes(against: Path | None, with_kafka: bool) -> tuple[type[Node], ...]:
    """Return the programs in the order of the table; Spindle is the last one."""
    classes: list[type[Node]] = []
    if against is None or with_kafka:
        kafka_libs()
        classes.append(KafkaNode)
    if against is not None:
        classes.append(_checkout(against))
    return (*classes, SpindleNode)


def _checkout(folder: Path) -> type[Node]:
    class CheckoutNode(SpindleNode):
        kind = folder.name
        executable = folder / ".venv" / "bin" / "spindle"

    if CheckoutNode.kind in (FLOOR, KafkaNode.kind, SpindleNode.kind):
        raise click.UsageError(f"{folder}: a folder called {folder.name} cannot be told apart")
    if not CheckoutNode.executable.is_file():
        raise click.UsageError(f"{folder}: {CheckoutNode.executable} is missing: run `make setup`")
    return CheckoutNode


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="spindle-bench-", dir=data))
    free = shutil.disk_usage(folder).free
    if free < 12 * GIB:
        raise click.ClickException(f"{folder}: {free / GIB:.1f} GiB are free, 12 are needed")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


if __name__ == "__main__":
    main()
