"""Exports: topics into tables, every offset once.

Tasks decode records and write Parquet inside the Python worker, so rows never enter the JVM; the
driver then makes all files visible with one commit.
"""

from spindle.pipeline.export.delta import export_delta
from spindle.pipeline.export.model import (
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
]
