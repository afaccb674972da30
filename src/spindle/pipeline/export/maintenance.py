"""Compaction of small files and removal of old ones; the offsets of a table stay what they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spindle.pipeline.export.jobs import TableFormat, open_table
from spindle.pipeline.export.orphans import remove_orphans
from spindle.pipeline.export.table import ExportTable

TARGET_BYTES: Final = 256 * 1024 * 1024
VACUUM_HOURS: Final = 168.0
_MIN_HOURS: Final = 24.0


def compact_table(
    table_format: TableFormat,
    table: str | Path,
    catalog: Mapping[str, str] | None = None,
    *,
    target_bytes: int = TARGET_BYTES,
) -> tuple[int, int]:
    """Merge small files into files of about `target_bytes`; return the numbers before and after.

    Raises:
        ExportConflict: another compaction replaced the same files first.
        FileNotFoundError: there is no such table.
    """
    export_table = _existing(table_format, table, catalog)
    return export_table.compact(target_bytes)


def vacuum_table(
    table_format: TableFormat,
    table: str | Path,
    catalog: Mapping[str, str] | None = None,
    *,
    hours: float = VACUUM_HOURS,
) -> int:
    """Delete files that left the table at least `hours` ago, and files of killed runs.

    Versions that need the deleted files can no longer be read. Files that are not committed, with
    offsets that the table does not hold, are kept for a day at least, because their run may be
    alive. No portion may take longer than that.

    Returns:
        The number of files deleted.

    Raises:
        FileNotFoundError: there is no such table.
    """
    export_table = _existing(table_format, table, catalog)
    # First the versions that are given up: afterwards no version knows their files.
    deleted = export_table.delete_removed(hours)
    return deleted + len(remove_orphans(export_table, max(hours, _MIN_HOURS)))


def _existing(
    table_format: TableFormat, table: str | Path, catalog: Mapping[str, str] | None
) -> ExportTable:
    export_table = open_table(table_format, table, catalog)
    if export_table.version is None:
        raise FileNotFoundError(f"{export_table.path}: there is no {table_format} table")
    return export_table
