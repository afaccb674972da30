"""Files that killed runs left behind: which of them can never become part of the table.

A commit adds offsets to those that the table holds. So a file of an export that no version of the
table refers to, while the table holds its offsets, can never be committed any more, whether its run
is dead, alive here, or asleep on another machine. This needs no record of who is alive. The next
run over the same offsets makes the files of a killed run such files, and removes them at its end.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from spindle.pipeline.export.parquet_files import parse_compacted_name, parse_file_name
from spindle.pipeline.export.table import ExportTable


def remove_orphans(table: ExportTable, unheld_hours: float | None = None) -> list[Path]:
    """Remove the files of killed runs and return them; the table becomes its newest snapshot.

    Args:
        unheld_hours: Remove files with offsets that the table does not hold, too, if they have not
            changed for this many hours. None keeps them: their run may still commit them.
    """
    directory = table.data_directory
    # A file that was listed before the snapshot is read is known to it if it was committed.
    listed = list(_data_files(directory))
    table.refresh()
    known = table.known_files()
    removed = []
    for name in listed:
        if name in known or not _is_orphan(table, directory / name, unheld_hours):
            continue
        (directory / name).unlink(missing_ok=True)
        removed.append(directory / name)
    return removed


def remove_files_of_run(directory: Path, run_id: str, committed: set[str]) -> None:
    """Remove the files of a run whose commits are known.

    A cancelled task may still write one; the next run removes it.
    """
    for name in _data_files(directory):
        if f".{run_id}-" in name and name not in committed:
            (directory / name).unlink(missing_ok=True)


def _is_orphan(table: ExportTable, path: Path, unheld_hours: float | None) -> bool:
    name = path.name.removeprefix(".").removesuffix(".tmp")
    is_old = unheld_hours is not None and _age_hours(path) >= unheld_hours
    parsed = parse_file_name(name)
    if parsed is None:
        # A compaction commits files with offsets that the table holds.
        return is_old and parse_compacted_name(name) is not None
    key, offsets = parsed
    held = table.coverage(key)
    if held is not None and held.start <= offsets.start and offsets.end <= held.end:
        return True
    return is_old


def _age_hours(path: Path) -> float:
    try:
        return (time.time() - path.stat().st_mtime) / 3600
    except FileNotFoundError:
        return 0.0


def _data_files(directory: Path) -> Iterator[str]:
    """Yield the names of the files in a data directory and below, without those of the log."""
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith("_") or "=" in name]
        for name in names:
            yield os.path.relpath(os.path.join(parent, name), directory)
