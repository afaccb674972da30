"""`make bench`: measure Apache Kafka and Spindle in turn, on the same machine, in the same minutes.

python -m benchmarks.run [--quick] [--items produce-1KiB-acks1,one-in-flight] [--runs 5]
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from peers.node import KafkaNode, Node, NodeFailed, SpindleNode
from peers.paths import PeerUnavailable, kafka_libs
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from benchmarks import native_client, spark
from benchmarks.cluster_items import CLUSTER_ITEMS
from benchmarks.compaction import COMPACTION_ITEMS
from benchmarks.disks import DISK_ITEMS
from benchmarks.groups import GROUP_ITEMS
from benchmarks.items import GIB, ITEMS, MIB, Item, Sizes, Skipped, Subject, warm_up
from benchmarks.moves import MOVE_ITEMS
from benchmarks.report import Results, as_json, show
from benchmarks.transactions import TRANSACTION_ITEMS

NodeClasses = tuple[type[Node], type[Node]]
QUICK = Sizes(
    volume_bytes=256 * MIB,
    small_volume_bytes=64 * MIB,
    latency_records=3_000,
    topics=50,
    restart_partitions=100,
)


@click.command(help=__doc__)
@click.option("--items", "names", help="Comma-separated items; all when left out.")
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
    data: Path | None,
) -> None:
    """Run the benchmarks and print their table."""
    # Leave as after Ctrl-C: the nodes are stopped and their folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(width=140 if not sys.stdout.isatty() else None)
    everything = (
        *ITEMS, *MOVE_ITEMS, *COMPACTION_ITEMS, *DISK_ITEMS, *CLUSTER_ITEMS, *TRANSACTION_ITEMS,
        *GROUP_ITEMS,
    )  # fmt: skip
    known = {item.name: item for item in everything}
    if list_items:
        console.print("\n".join([*known, *spark.ITEMS]))
        return
    all_names = [*known, *(spark.ITEMS if against is None else [])]
    wanted = _wanted(names, all_names)
    rows = [row for name, row in spark.ITEMS.items() if name in wanted]
    sizes = _sizes(quick, volume_mib, partitions)
    runs = min(runs, 2) if quick else runs
    try:
        classes = _node_classes(against)
        native_client.executable()
    except PeerUnavailable as missing:
        raise click.ClickException(str(missing)) from None
    chosen = [known[name] for name in wanted if name in known]
    results = Results(classes[0].kind)
    spark_records = spark_records or (400_000 if quick else 3_000_000)
    found: spark.Found = {}
    with _folder(data) as folder, _progress(console) as progress:
        _measure(chosen, classes, sizes, runs, folder, results, progress)
        if rows:
            found = spark.measure(folder, rows, spark_records, runs, results, progress)
    show(chosen, results, console)
    spark.show(found, spark_records, console)
    if json_file is not None:
        document = as_json(chosen, results) | {"spark": spark.as_json(found, spark_records)}
        json_file.write_text(json.dumps(document, indent=1))
    sys.exit(1 if results.failures else 0)


def _wanted(names: str | None, known: list[str]) -> list[str]:
    """Return the items of a comma-separated list; `spark` stands for all of Spark's."""
    if names is None:
        return known
    wanted = [name.strip() for name in names.split(",")]
    if "spark" in wanted:
        wanted += [name for name in known if name in spark.ITEMS]
        wanted.remove("spark")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise click.UsageError(
            f"unknown item {unknown[0]!r}; known: {', '.join(known)}. Items spark-* compare with "
            "Apache Kafka only, and do not go with --against"
        )
    return wanted


def _sizes(quick: bool, volume_mib: int | None, partitions: int | None) -> Sizes:
    base = QUICK if quick else Sizes()
    return Sizes(
        volume_bytes=volume_mib * MIB if volume_mib else base.volume_bytes,
        small_volume_bytes=base.small_volume_bytes,
        latency_records=base.latency_records,
        topics=base.topics,
        restart_partitions=partitions or base.restart_partitions,
    )


def _node_classes(against: Path | None) -> NodeClasses:
    """Return the baseline and Spindle; the baseline is Kafka or another checkout of Spindle."""
    if against is None:
        kafka_libs()
        return KafkaNode, SpindleNode
    checkout = against

    class BaselineNode(SpindleNode):
        kind = checkout.name
        executable = checkout / ".venv" / "bin" / "spindle"

    return BaselineNode, SpindleNode


def _measure(
    items: list[Item],
    classes: NodeClasses,
    sizes: Sizes,
    runs: int,
    folder: Path,
    results: Results,
    progress: Progress,
) -> None:
    bar = progress.add_task("measuring", total=len(items) * runs * len(classes))
    for item in (item for item in items if not item.subject.is_shared):
        for number in range(runs):
            for node_class in classes:
                progress.update(bar, description=f"{item.name}: {node_class.kind}")
                place = folder / f"{item.name}-{number}-{node_class.kind}"
                try:
                    subject = item.subject.make(node_class, place)
                except Skipped as missing:
                    results.skipped[item.name] = str(missing)
                    continue
                try:
                    _one(item, subject, sizes, results)
                finally:
                    subject.remove()
                progress.advance(bar)
    for shared in dict.fromkeys(item.subject for item in items if item.subject.is_shared):
        some = [item for item in items if item.subject is shared]
        _measure_shared(shared, some, classes, sizes, runs, folder, results, progress, bar)


def _measure_shared(
    shared: Subject,
    items: list[Item],
    classes: NodeClasses,
    sizes: Sizes,
    runs: int,
    folder: Path,
    results: Results,
    progress: Progress,
    bar: TaskID,
) -> None:
    with ExitStack() as stack:
        subjects = [
            shared.make(node_class, folder / f"{shared.name}-{node_class.kind}")
            for node_class in classes
        ]
        for subject in subjects:
            stack.callback(subject.remove)
            stack.enter_context(subject)
        for subject in subjects:
            progress.update(bar, description=f"warm-up: {subject.kind}")
            warm_up(subject, sizes)
        for item in items:
            for _ in range(runs):
                for subject in subjects:
                    progress.update(bar, description=f"{item.name}: {subject.kind}")
                    _one(item, subject, sizes, results)
                    progress.advance(bar)


def _one(item: Item, subject: Any, sizes: Sizes, results: Results) -> None:
    try:
        results.add(item, subject.kind, item.run(subject, sizes))
    except (RuntimeError, NodeFailed, AssertionError, OSError) as failure:
        results.failures.append(f"{item.name} on {subject.kind}: {failure!r}")


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
