"""Run an audit in this process or on Spark, with progress that can be resumed."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from spindle.cli.audit.request import AuditRequest
from spindle.cli.audit.screen import progress_bar
from spindle.common.ids import METADATA_PARTITION
from spindle.log.formats.meta_properties import META_PROPERTIES

if TYPE_CHECKING:
    from spindle.audit.cluster_audit import ClusterAudit
    from spindle.audit.fetched_replicas import ReplicaFetch
    from spindle.audit.placement import ClusterPlacement
    from spindle.audit.progress_file import ProgressFile
    from spindle.audit.report import AuditReport
    from spindle.audit.scrub_history import ScrubHistory
    from spindle.audit.workers import AuditWorkers
    from spindle.cli.audit.scrub import ScrubResult


class _Workforce(NamedTuple):
    """The workers of an audit, and the file of its progress."""

    workers: "AuditWorkers"
    fetch: "ReplicaFetch | None" = None
    progress: "ProgressFile | None" = None


def run_requested(
    request: AuditRequest, roots: list[Path], cluster: "ClusterAudit | None"
) -> "tuple[AuditReport, float, ScrubResult | None]":
    """Run the audit; return the report, its duration in seconds, and the state of the history."""
    from spindle.audit.run import run_audit
    from spindle.cli.audit.scrub import ScrubResult

    load = partial(_load_placement, roots) if cluster is None else cluster.load_placement
    with _workforce(request, roots, cluster) as force, _history(request, roots) as history:
        started = time.monotonic()
        begun_ms = _now_ms()
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
                history=history,
            )
        places = [place for directory in report.directories for place in directory.replicas]
        scrub_result = (
            None if history is None else ScrubResult.of(history, places, roots, begun_ms, request)
        )
        return report, time.monotonic() - started, scrub_result


def _load_placement(roots: list[Path]) -> "ClusterPlacement | None":
    """Return the newest metadata in the directories; None without a metadata log."""
    if not any((root / str(METADATA_PARTITION)).is_dir() for root in roots):
        return None
    # The formats of the metadata log take longer to import than a small audit.
    from spindle.cli.audit.metadata import load_placement

    return load_placement(roots)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _history(request: AuditRequest, roots: list[Path]) -> "Iterator[ScrubHistory | None]":
    from spindle.audit.scrub_history import scrub_history

    if request.history_path is None:
        yield None
        return

    def may_be_there(replica: Path) -> bool:
        # Keep the entries of disks that are not mounted now, or that this audit does not read.
        root = replica.parent
        return replica.exists() or root not in roots or not (root / META_PROPERTIES).exists()

    until_ms = None if request.minutes is None else _now_ms() + request.minutes * 60_000
    with scrub_history(request.history_path, may_be_there, _now_ms, until_ms) as history:
        yield history


@contextmanager
def _workforce(
    request: AuditRequest, roots: list[Path], cluster: "ClusterAudit | None"
) -> Iterator[_Workforce]:
    from spindle.audit.workers import audit_all

    if request.spark_master is not None:
        with _on_spark(request.spark_master, request.progress_path, roots, cluster) as force:
            yield force
    elif request.progress_path is None:
        yield _Workforce(audit_all)
    else:
        from spindle.audit.progress_file import progress_file

        with progress_file(request.progress_path) as progress:
            yield _Workforce(audit_all, progress=progress)


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
    from spindle.audit.spark_checkpoint import PartFolder
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
