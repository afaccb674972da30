"""The rows and files of exported tables, as readers without Spark see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from export_doubles import rows_of

from spindle.pipeline.export.jobs import TableFormat, open_table


def values_of(table_format: TableFormat, path: Path) -> Mapping[int, list[bytes]]:
    """Return the values of each partition in the order of their offsets."""
    rows = rows_of(table_format, path).select(["partition", "offset", "value"])
    values_by_partition: dict[int, list[bytes]] = defaultdict(list)
    for row in rows.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist():
        values_by_partition[row["partition"]].append(row["value"])
    return values_by_partition


def files_without_a_table(table_format: TableFormat, path: Path) -> set[str]:
    """Return the Parquet files below a table to which no version of it refers."""
    known = {Path(name).name for name in open_table(table_format, path).known_files()}
    names = {file.name for file in path.rglob("*.parquet*") if "_delta_log" not in file.parts}
    return names - known
