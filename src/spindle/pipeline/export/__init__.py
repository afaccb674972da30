"""Exports of topics into Delta, Iceberg and Parquet tables, every offset once, and their reading.

Tasks decode records and write Parquet inside the Python worker, so rows never enter the JVM; the
driver then adds the files of each portion to the table with one commit.
"""

from spindle.common.optional_dependencies import DELTA, require

require(DELTA)

from spindle.pipeline.export.delta import export_delta  # noqa: E402  (needs what is required)
from spindle.pipeline.export.delta_reading import read_delta  # noqa: E402
from spindle.pipeline.export.following import FollowSettings, follow_export  # noqa: E402
from spindle.pipeline.export.iceberg import export_iceberg, read_iceberg  # noqa: E402
from spindle.pipeline.export.jobs import ExportJob  # noqa: E402
from spindle.pipeline.export.maintenance import compact_table, vacuum_table  # noqa: E402
from spindle.pipeline.export.model import (  # noqa: E402
    ExportConflict,
    ExportedPartition,
    ExportFailed,
    ExportProgress,
    ExportRefused,
    ExportResult,
)
from spindle.pipeline.export.parquet import export_parquet, read_parquet  # noqa: E402
from spindle.pipeline.export.portions import PortionSize  # noqa: E402
from spindle.pipeline.export.retry import RetryResult, retry_export  # noqa: E402
from spindle.pipeline.export.settings import ExportOptions  # noqa: E402

__all__ = [
    "ExportConflict",
    "ExportFailed",
    "ExportJob",
    "ExportOptions",
    "ExportProgress",
    "ExportRefused",
    "ExportResult",
    "ExportedPartition",
    "FollowSettings",
    "PortionSize",
    "RetryResult",
    "compact_table",
    "export_delta",
    "export_iceberg",
    "export_parquet",
    "follow_export",
    "read_delta",
    "read_iceberg",
    "read_parquet",
    "retry_export",
    "vacuum_table",
]
