"""`export_delta`: append topics to a Delta table, every offset once, in portions."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from spindle.pipeline.export.following import Follow, run_or_follow
from spindle.pipeline.export.jobs import ExportJob
from spindle.pipeline.export.model import ExportResult
from spindle.pipeline.export.settings import ExportOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export_delta(
    spark: "SparkSession",
    path: str | Path,
    options: Mapping[str, str],
    *,
    follow: Follow = False,
    **settings: Unpack[ExportOptions],
) -> ExportResult:
    """Append the records of the selected topics that the Delta table at `path` lacks.

        options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders",
                   "valueFormat": "json", "valueSchema": "infer"}
        export_delta(spark, "/data/orders", options)               # what the topic has now
        export_delta(spark, "/data/orders", options, follow=True)  # and what arrives

    The next run continues where the table ends. Of two runs at the same time, one is refused. A run
    that fails or is killed leaves the portions that it committed, and the next run removes its
    files that are not part of the table.

    Args:
        spark: The session whose tasks decode and write; the tasks must reach `path` and the source.
        path: A directory of the local (or a shared) file system. It is made if it is missing.
        options: Options of the data source. `columns` chooses the columns of the table and their
            order. Later runs continue where the table ends. A starting offset or time before the
            table's first offset also fills in the older offsets.
        follow: False for one run. True keeps up with the topics until SIGINT or SIGTERM, with a
            line on standard error for every commit; `FollowSettings` says when it commits. See
            `run_or_follow`.
        settings: see ExportOptions.

    Raises:
        ExportRefused: the run would leave a gap, mix topics or change the columns.
        ExportConflict: another run committed first. Portions that were committed stay.
        DataLoss: offsets that had to come next are no longer in the log.
        ValueError: wrong options, a path that is no local path, or an unknown encoding.
        ExportFailed: a task failed: a record cannot be decoded or is not UTF-8 but has to be text,
            a batch is corrupt, or offsets were removed while they were read.
    """
    return run_or_follow(spark, ExportJob("delta", path, options, settings), follow)
