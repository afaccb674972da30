"""Exports of topics into Delta tables, every offset once, and the way to read them back.

Tasks decode records and write Parquet inside the Python worker, so rows never enter the JVM; the
driver then adds all files to the table with one commit.
"""

from spindle.pipeline.extra import DELTA, require

require(DELTA)

from spindle.pipeline.export.delta import export_delta  # noqa: E402  (needs what is required)
from spindle.pipeline.export.delta_reading import read_delta  # noqa: E402
from spindle.pipeline.export.model import (  # noqa: E402
    ExportConflict,
    ExportedPartition,
    ExportProgress,
    ExportRefused,
    ExportResult,
)

__all__ = [
    "ExportConflict",
    "ExportProgress",
    "ExportRefused",
    "ExportResult",
    "ExportedPartition",
    "export_delta",
    "read_delta",
]
