"""The columns and data files of a snapshot of an Iceberg table."""

import pyarrow as pa
from pyiceberg.exceptions import ValidationError

from spindle.pipeline.export.iceberg_catalog import IcebergPlace
from spindle.pipeline.export.iceberg_table import plain_schema


def files_of_snapshot(place: IcebergPlace, snapshot_id: int | None) -> tuple[pa.Schema, list[str]]:
    """Return the columns of the table, and the paths of the files of a snapshot.

    Raises:
        FileNotFoundError: there is no such table.
        ValueError: there is no such snapshot, or Spark cannot read its rows from the files alone.
    """
    table = place.load()
    if table is None:
        raise FileNotFoundError(f"{place.name}: no such Iceberg table")
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise ValueError(f"the table {place.name} has no snapshot {snapshot_id}")
    try:
        tasks = list(table.scan(snapshot_id=snapshot_id).plan_files())
    except ValidationError as error:
        raise ValueError(f"the table {place.name}: {error}") from error
    if any(task.delete_files for task in tasks):
        raise ValueError(
            f"the table {place.name} has delete files of another writer; read_iceberg reads tables "
            "as export_iceberg writes them"
        )
    return plain_schema(table), [task.file.file_path.removeprefix("file://") for task in tasks]
