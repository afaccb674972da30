"""`audit_directories`: the audit as a Spark job, for programs and notebooks.

from spindle.audit.fleet import audit_directories

found = audit_directories(spark, ["/mnt/disk1/log", "/mnt/disk2/log"])
found.findings.groupBy("kind").count().show()
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spindle.audit.cluster_audit import ClusterAudit
from spindle.audit.placement import ClusterPlacement
from spindle.audit.report import AuditReport
from spindle.audit.run import run_audit
from spindle.audit.spark_checkpoint import PartFolder
from spindle.audit.spark_fetch import SparkFetch
from spindle.audit.spark_hosts import hosts_of_directories
from spindle.audit.spark_job import SparkWorkers
from spindle.audit.workers import AuditProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS: Final = (
    ("kind", "string"),
    ("severity", "string"),
    ("path", "string"),
    ("position", "bigint"),
    ("offset", "bigint"),
    ("replica", "string"),
    ("evidence", "string"),
    ("cause", "string"),
    ("repair", "string"),
)


@dataclass(frozen=True, slots=True)
class DirectoriesAudit:
    """The result of an audit on Spark: the report, and its findings as a DataFrame.

    Attributes:
        findings: the columns kind, severity, path, position, offset, replica, evidence, cause,
            repair; position, offset and replica may be null.
    """

    report: AuditReport
    findings: "DataFrame"


def audit_directories(
    spark: "SparkSession",
    paths: Iterable[str | Path],
    *,
    checks_records: bool = False,
    bytes_per_second: int | None = None,
    folder: str | Path | None = None,
    hosts: Mapping[str | Path, Sequence[str]] | None = None,
    cluster: ClusterAudit | None = None,
    load_placement: Callable[[], ClusterPlacement | None] = lambda: None,
    on_progress: Callable[[AuditProgress], None] = lambda progress: None,
) -> DirectoriesAudit:
    """Audit log directories on the executors of a Spark session.

    Args:
        paths: roots of log directories. The driver sees all of them at these paths, and at least
            one executor sees each.
        checks_records: the records of all batches are decoded, too.
        bytes_per_second: maximum rate of all executors together, from each directory.
        folder: keeps the results of finished segments until the audit has ended, so that a new
            driver can continue it; the driver and the executors must see it. None keeps nothing.
        hosts: the names and addresses of the host that has the disk, by path. Spark starts tasks
            there if it can; set `spark.locality.wait` of the session to the time that a task may
            wait for it. None takes those of brokers from `cluster`, if it is given.
        cluster: queries the brokers, too; None for no queries. Tasks fetch the replicas of other
            machines.
        load_placement: returns the present metadata of the cluster, None if it is not known; it may
            raise `placement.MetadataNotRead`, which becomes a finding.
        on_progress: called about five times a second.

    Raises:
        TaskFailed: no executor sees a directory, or one cannot write into the folder.
        ValueError: the folder is a file, or inside of a log directory.
    """
    roots = [Path(path).resolve() for path in paths]
    parts = None if folder is None else part_folder(Path(folder), roots)
    by_root: dict[Path, Sequence[str]] = {}
    if hosts is not None:
        by_root.update((Path(path).resolve(), names) for path, names in hosts.items())
    elif cluster is not None:
        by_root.update(hosts_of_directories(cluster.cluster, roots))
    report = run_audit(
        roots,
        checks_records=checks_records,
        load_placement=load_placement if cluster is None else cluster.load_placement,
        on_progress=on_progress,
        bytes_per_second=bytes_per_second,
        cluster=cluster,
        workers=SparkWorkers(spark, parts, by_root).audit_all,
        fetch=SparkFetch(spark, parts).fetch,
    )
    if parts is not None:
        parts.remove_parts()
    return DirectoriesAudit(report, findings_frame(spark, report))


def part_folder(path: Path, roots: Iterable[Path]) -> PartFolder:
    """Open the checkpoint folder.

    Raises:
        ValueError: the path is a file, or inside of a log directory.
    """
    if any(path.resolve().is_relative_to(root) for root in roots):
        raise ValueError(f"{path} must be outside of the log directories")
    return PartFolder(path.resolve())


def findings_frame(spark: "SparkSession", report: AuditReport) -> "DataFrame":
    """Return the findings of a report, a row for each."""
    rows = [tuple(finding.document()[name] for name, _ in _COLUMNS) for finding in report.findings]
    return spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in _COLUMNS))
