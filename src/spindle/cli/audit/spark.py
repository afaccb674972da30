"""`spindle audit --spark`: the session, and the folder of an audit that may be interrupted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spindle.audit.workers import AuditWorkers


@contextmanager
def spark_workers(master: str, folder: Path | None) -> Iterator["AuditWorkers"]:
    """Start a Spark session for an audit; at its end remove the parts from the folder.

    Raises:
        ImportError: PySpark is not installed.
        ConnectionError: there is no such master.
        NoJava: there is no Java.
        ValueError: the folder is a file.
    """
    from spindle.audit.part_folder import PartFolder
    from spindle.audit.spark_job import SparkWorkers
    from spindle.pipeline import get_spark

    parts = None if folder is None else PartFolder(folder.resolve())
    spark = get_spark("spindle audit", master)
    try:
        yield SparkWorkers(spark, parts).audit_all
        if parts is not None:
            parts.remove_parts()
    finally:
        spark.stop()
