"""The row of every source of the pipeline, with the schema of Spark's built-in `kafka` source.

The Arrow schema of a Python source must be exactly the declared Spark schema (names, types, order,
nullability, timestamp unit and zone), so both forms are made here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
ColumnTypes = Mapping[str, tuple[Any, str]]
"""The Arrow type and the Spark type of each column."""

ROW_TYPES: Final[ColumnTypes] = {
    "key": (pa.binary(), "binary"),
    "value": (pa.binary(), "binary"),
    "topic": (pa.string(), "string"),
    "partition": (pa.int32(), "int"),
    "offset": (pa.int64(), "bigint"),
    "timestamp": (pa.timestamp("us", tz="UTC"), "timestamp"),
    "timestampType": (pa.int32(), "int"),
    HEADERS_COLUMN: (_HEADERS_TYPE, "array<struct<key: string, value: binary>>"),
}


def select_columns(columns: str | None, include_headers: bool) -> tuple[str, ...]:
    """Return the columns of a read, in the order in which they are returned.

    `columns` is a comma list (None: all of Kafka's columns, with `headers` if `include_headers`).
    Upper and lower case do not matter.

    Raises:
        ValueError: an unknown or repeated column, or none at all.
    """
    default = ALL_COLUMNS if include_headers else KAFKA_COLUMNS
    selected = chosen_columns(columns, default, ALL_COLUMNS)
    if include_headers and HEADERS_COLUMN not in selected:
        return (*selected, HEADERS_COLUMN)
    return selected


def chosen_columns(
    text: str | None, default: tuple[str, ...], known: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns of a comma list, in its order; `default` for None.

    Raises:
        ValueError: an unknown or repeated column, or none at all.
    """
    if text is None:
        return default
    names = {name.lower(): name for name in known}
    selected: list[str] = []
    for part in text.split(","):
        name = names.get(part.strip().lower())
        if name is None:
            raise ValueError(
                f"option columns: {part.strip()!r} is not a column; want some of {', '.join(known)}"
            )
        if name in selected:
            raise ValueError(f"option columns: {name!r} is named twice")
        selected.append(name)
    return tuple(selected)


def arrow_schema(columns: Sequence[str], types: ColumnTypes = ROW_TYPES) -> pa.Schema:
    """Return the Arrow schema of rows with these columns; Spark wants every field nullable."""
    return pa.schema([pa.field(name, types[name][0]) for name in columns])


def spark_ddl(columns: Sequence[str], types: ColumnTypes = ROW_TYPES) -> str:
    """Return the same schema as a Spark DDL string."""
    return ", ".join(f"`{name}` {types[name][1]}" for name in columns)
