"""How the time of an audit grows with log directories and with executors of a real Spark cluster.

python -m benchmarks.audit_scale [--gib 1] [--directories 2,4,8] [--executors 1,2] [--disk-mib 0]

Each directory is that of a simulated broker with the same 8 partitions. Its segments are hard links
to one set of files, as replicas have the same bytes; so 100 GiB need one directory's space, and are
read from the page cache. `--disk-mib` gives each directory the rate of a disk by the audit's limit.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from hashlib import md5
from pathlib import Path
from typing import Any

import click
from peers.spark_cluster import SparkCluster
from rich.console import Console
from rich.table import Table

from benchmarks.audit import write_logs
from benchmarks.spark_scale import machine
from benchmarks.spark_scale_session import wait_for_executors
from spindle.audit.fleet import audit_directories
from spindle.audit.run import run_audit
from spindle.common.filesystem import OsFileSystem
from spindle.log.formats.meta_properties import MetaProperties, write_meta_properties
from spindle.pipeline import get_spark

GIB = 1 << 30
MIB = 1 << 20
EXECUTOR_MIB = 1024
VALUE_BYTES = 1024
NOW_MS = 1_700_000_000_000

Run = dict[str, Any]


@click.command(help=__doc__)
@click.option("--gib", default=1.0, show_default=True, help="Size of all directories together.")
@click.option("--directories", default="2,4,8", show_default=True, help="Numbers of directories.")
@click.option("--executors", default="1,2", show_default=True, help="Numbers of executors.")
@click.option("--disk-mib", default=0, show_default=True, help="MiB/s of a directory; 0: no limit.")
@click.option("--runs", default=2, show_default=True, help="Audits of each kind.")
@click.option("--json", "json_file", type=Path, help="Also write every value to this file.")
@click.option("--data", type=Path, help="Folder for the logs (default: a temporary one).")
def main(
    gib: float,
    directories: str,
    executors: str,
    disk_mib: int,
    runs: int,
    json_file: Path | None,
    data: Path | None,
) -> None:
    """Write the directories, audit them on clusters of several sizes, and print a table."""
    counts = [int(text) for text in directories.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="spindle-audit-", dir=data))
    largest = max(counts)
    needed = gib * GIB / largest * 1.2
    limit = disk_mib * MIB or None
    results: list[Run] = []
    try:
        if shutil.disk_usage(folder).free < needed:
            raise click.ClickException(f"{folder}: {needed / GIB:.1f} GiB are needed")
        roots = simulate(folder, largest, round(gib * GIB / largest))
        results += [measured_here(roots[:count], limit, runs) for count in counts]
        for number in (int(text) for text in executors.split(",")):
            with ExitStack() as stack:
                cluster = SparkCluster(folder / f"spark-{number}", number, 1, EXECUTOR_MIB)
                master = stack.enter_context(cluster).master
                results += measured_on_spark(master, number, roots, counts, limit, runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if json_file is not None:
        document = {"machine": machine(), "gib": gib, "disk_mib": disk_mib, "results": results}
        json_file.write_text(json.dumps(document, indent=1))
    show(results, disk_mib)


def simulate(folder: Path, count: int, size_bytes: int) -> list[Path]:
    """Write the directory of one broker, and link its segments into those of the others."""
    first = folder / "broker-0"
    write_logs(first, size_bytes, VALUE_BYTES)
    roots = [folder / f"broker-{number}" for number in range(count)]
    for number, root in enumerate(roots):
        if number:
            shutil.copytree(first, root, copy_function=linked)
        name = md5(str(root).encode()).digest()
        properties = MetaProperties(cluster_id="benchmark", node_id=number, directory_id=name)
        (root / "meta.properties").unlink()
        write_meta_properties(OsFileSystem(), str(root), properties, NOW_MS)
    return roots


def linked(source: str, target: str) -> None:
    """Link a segment, and copy any other file."""
    if source.endswith(".log"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def measured_here(roots: list[Path], limit: int | None, runs: int) -> Run:
    """Return the seconds of audits in processes of this machine, one for each core."""
    seconds = []
    jobs = len(os.sched_getaffinity(0))
    for _ in range(runs):
        begin = time.perf_counter()
        report = run_audit(roots, jobs=jobs, bytes_per_second=limit)
        seconds.append(time.perf_counter() - begin)
        check(report.findings)
    return result("local", jobs, len(roots), report.size_bytes, seconds)


def measured_on_spark(
    master: str, executors: int, roots: list[Path], counts: list[int], limit: int | None, runs: int
) -> list[Run]:
    """Return the seconds of audits on a Spark cluster; its first audit does not count."""
    conf = {
        "spark.executor.memory": f"{EXECUTOR_MIB}m",
        "spark.driver.memory": "1g",
        "spark.executor.cores": "1",
        "spark.executor.instances": str(executors),
    }
    spark = get_spark("audit-scale", master, conf)
    results = []
    try:
        wait_for_executors(spark, executors)
        audit_directories(spark, roots[: counts[0]])
        for count in counts:
            seconds = []
            for _ in range(runs):
                begin = time.perf_counter()
                audit = audit_directories(spark, roots[:count], bytes_per_second=limit)
                seconds.append(time.perf_counter() - begin)
                check(audit.report.findings)
            results.append(result("Spark", executors, count, audit.report.size_bytes, seconds))
    finally:
        spark.stop()
    return results


def check(findings: tuple[Any, ...]) -> None:
    if findings:
        sys.exit(f"the audit is wrong: {findings[0].sentence}")


def result(where: str, workers: int, directories: int, size: int, seconds: list[float]) -> Run:
    return {
        "where": where,
        "workers": workers,
        "directories": directories,
        "bytes": size,
        "seconds": seconds,
    }


def show(results: list[Run], disk_mib: int) -> None:
    """Print the fastest run of each kind."""
    limit = f"{disk_mib} MiB/s for each directory" if disk_mib else "no limit"
    output = Table(title=f"Audits of segments in the page cache, {limit}")
    for title in ("audit", "processes", "directories", "GiB", "s", "MB/s"):
        output.add_column(title, justify="left" if title == "audit" else "right")
    for row in results:
        best = min(row["seconds"])
        output.add_row(
            row["where"],
            str(row["workers"]),
            str(row["directories"]),
            f"{row['bytes'] / GIB:.2f}",
            f"{best:.2f}",
            f"{row['bytes'] / best / 1e6:.0f}",
        )
    Console(width=100 if not sys.stdout.isatty() else None).print(output)


if __name__ == "__main__":
    main()
