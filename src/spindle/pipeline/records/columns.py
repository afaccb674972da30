"""The row of every source of the pipeline, with the schema of Spark's built-in `kafka` source.

The Arrow schema of a Python source must be exactly the declared Spark schema (names, types, order,
nullability, timestamp unit and zone), so both forms are made here.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

KAFKA_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
HEADERS_COLUMN: Final = "headers"
ALL_COLUMNS: Final = (*KAFKA_COLUMNS, HEADERS_COLUMN)

_HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
)
_ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS_COLUMN: _HEADERS_TYPE,
}
_DDL_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS_COLUMN: "array<struct<key: string, value: binary>>",
}


def select_columns(columns: str | None, include_headers: bool) -> tuple[str, ...]:
    """Return the columns of a read, in the order in which they are returned.

    `columns` is a comma list (None: all of Kafka's columns, with `headers` if `include_headers`).
    Upper and lower case do not matter.

    Raises:
        ValueError: an unknown or repeated column, or none at all.
    """
    if columns is None:
        return ALL_COLUMNS if include_headers else KAFKA_COLUMNS
    known = {name.lower(): name for name in ALL_COLUMNS}
    selected: list[str] = []
    for part in columns.split(","):
        name = known.get(part.strip().lower())
        if name is None:
            raise ValueError(
                f"option columns: {part.strip()!r} is not a column; want some of "
                f"{', '.join(ALL_COLUMNS)}"
            )
        if name in selected:
            raise ValueError(f"option columns: {name!r} is named twice")
        selected.append(name)
    if include_headers and HEADERS_COLUMN not in selected:
        selected.append(HEADERS_COLUMN)
    return tuple(selected)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of rows with these columns; Spark wants every field nullable."""
    return pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])


def spark_ddl(columns: Sequence[str]) -> str:
    """Return the same schema as a Spark DDL string."""
    return ", ".join(f"`{name}` {_DDL_TYPES[name]}" for name in columns)
