"""Run the audit that a call asks for: here or on Spark, with progress that may be resumed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from spindle.cli.audit.request import AuditRequest
from spindle.cli.audit.screen import progress_bar

if TYPE_CHECKING:
    from spindle.audit.cluster_audit import ClusterAudit
    from spindle.audit.fetched_replicas import ReplicaFetch
    from spindle.audit.progress_file import ProgressFile
    from spindle.audit.report import AuditReport
    from spindle.audit.workers import AuditWorkers


class _Workforce(NamedTuple):
    """Where an audit reads and fetches, and what keeps its progress."""

    workers: "AuditWorkers"
    fetch: "ReplicaFetch"
    progress: "ProgressFile | None" = None


def run_requested(
    request: AuditRequest, roots: list[Path], cluster: "ClusterAudit | None"
) -> "tuple[AuditReport, float]":
    """Run the audit; return the report and the seconds that it took."""
    from spindle.audit.run import run_audit
    from spindle.cli.audit.metadata import load_placement

    load = partial(load_placement, roots) if cluster is None else cluster.load_placement
    with _workforce(request, roots, cluster) as force:
        started = time.monotonic()
        with progress_bar(not request.prints_for_programs) as show:
            report = run_audit(
                roots,
                jobs=request.jobs,
                checks_records=request.checks_records,
                load_placement=load,
                cluster=cluster,
                on_progress=show,
                bytes_per_second=request.bytes_per_second,
                progress=force.progress,
                workers=force.workers,
                fetch=force.fetch,
            )
        return report, time.monotonic() - started


@contextmanager
def _workforce(
    request: AuditRequest, roots: list[Path], cluster: "ClusterAudit | None"
) -> Iterator[_Workforce]:
    from spindle.audit.fetched_replicas import fetch_replicas
    from spindle.audit.progress_file import progress_file
    from spindle.audit.workers import audit_all

    if request.spark_master is not None:
        with _on_spark(request.spark_master, request.progress_path, roots, cluster) as force:
            yield force
    elif request.progress_path is None:
        yield _Workforce(audit_all, fetch_replicas)
    else:
        with progress_file(request.progress_path) as progress:
            yield _Workforce(audit_all, fetch_replicas, progress)


@contextmanager
def _on_spark(
    master: str, folder: Path | None, roots: list[Path], cluster: "ClusterAudit | None"
) -> Iterator[_Workforce]:
    """Start a Spark session for an audit; at its end remove the parts from the folder.

    Raises:
        ImportError: PySpark is not installed.
        ConnectionError: there is no such master.
        NoJava: there is no Java.
        ValueError: the folder is a file.
    """
    from spindle.audit.part_folder import PartFolder
    from spindle.audit.spark_fetch import SparkFetch
    from spindle.audit.spark_hosts import LOCALITY_CONF, hosts_of_directories
    from spindle.audit.spark_job import SparkWorkers
    from spindle.pipeline import get_spark

    parts = None if folder is None else PartFolder(folder.resolve())
    hosts = {} if cluster is None else hosts_of_directories(cluster.cluster, roots)
    spark = get_spark("spindle audit", master, LOCALITY_CONF if hosts else None)
    try:
        yield _Workforce(
            SparkWorkers(spark, parts, hosts).audit_all, SparkFetch(spark, parts).fetch
        )
        if parts is not None:
            parts.remove_parts()
    finally:
        spark.stop()
