"""The row of every source of the pipeline, with the schema of Spark's built-in `kafka` source.

The Arrow schema of a Python source must be exactly the declared Spark schema (names, types, order,
nullability, timestamp unit and zone), so both forms are made here.
"""

import re
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
LINEAGE_COLUMNS: Final = ("broker", "directory", "segment", "position", "crc")
"""Where a record's batch is: node id, log directory, file, byte in the file; and its checksum."""
CORRUPTION_COLUMN: Final = "corruption"
"""The description of a corrupt batch, in the row that stands for it; null in rows of records."""

EVERY_COLUMN: Final = (*ALL_COLUMNS, *LINEAGE_COLUMNS, CORRUPTION_COLUMN)
"""The names of all columns that a row of a source can have, if values are not decoded."""

_LISTED: Final = re.compile(r"\s*(?:`((?:[^`]|``)*)`\s*(?:,|\Z)|([^,]*)(?:,|\Z))")
_HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
)
_CORRUPTION_FIELDS: Final = {
    "file": (pa.string(), "string"),
    "position": (pa.int64(), "bigint"),
    "sizeBytes": (pa.int64(), "bigint"),
    "baseOffset": (pa.int64(), "bigint"),
    "lastOffset": (pa.int64(), "bigint"),
    "reason": (pa.string(), "string"),
    "data": (pa.binary(), "binary"),
}
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
    "broker": (pa.int32(), "int"),
    "directory": (pa.string(), "string"),
    "segment": (pa.string(), "string"),
    "position": (pa.int64(), "bigint"),
    "crc": (pa.int64(), "bigint"),
    CORRUPTION_COLUMN: (
        pa.struct([pa.field(name, kind) for name, (kind, _) in _CORRUPTION_FIELDS.items()]),
        f"struct<{', '.join(f'{name}: {ddl}' for name, (_, ddl) in _CORRUPTION_FIELDS.items())}>",
    ),
}


def select_columns(
    columns: str | None,
    include_headers: bool,
    *,
    include_lineage: bool | None = None,
    include_corruption: bool = False,
) -> tuple[str, ...]:
    """Return the columns of a read, in the order in which they are returned.

    Args:
        columns: A comma list; upper and lower case do not matter. None: all of Kafka's columns.
        include_headers: Add `headers` behind them.
        include_lineage: Add the lineage. None: the source has none, so it cannot be named either.
        include_corruption: Add the column of corrupt batches.

    Raises:
        ValueError: an unknown or repeated column, or none at all.
    """
    lineage = () if include_lineage is None else LINEAGE_COLUMNS
    corruption = (CORRUPTION_COLUMN,) if include_corruption else ()
    known = (*ALL_COLUMNS, *lineage, *corruption)
    selected = chosen_columns(columns, KAFKA_COLUMNS, known)
    headers = (HEADERS_COLUMN,) if include_headers else ()
    added = (*headers, *(lineage if include_lineage else ()), *corruption)
    return (*selected, *(name for name in added if name not in selected))


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
    for part in listed_names(text):
        name = names.get(part.lower())
        if name is None:
            raise ValueError(
                f"option columns: {part!r} is not a column; want some of {', '.join(known)}"
            )
        if name in selected:
            raise ValueError(f"option columns: {name!r} is named twice")
        selected.append(name)
    return tuple(selected)


def listed_names(text: str) -> list[str]:
    """Return the names of a list with commas; a name with a comma stands in backticks."""
    names: list[str] = []
    position = 0
    while True:
        match = _LISTED.match(text, position)
        assert match is not None, "the last alternative takes any text"
        quoted, plain = match.groups()
        names.append(plain.strip() if quoted is None else quoted.replace("``", "`"))
        position = match.end()
        if not match[0].endswith(","):
            return names


def arrow_schema(columns: Sequence[str], types: ColumnTypes = ROW_TYPES) -> pa.Schema:
    """Return the Arrow schema of rows with these columns; Spark wants every field nullable."""
    return pa.schema([pa.field(name, types[name][0]) for name in columns])


def spark_ddl(columns: Sequence[str], types: ColumnTypes = ROW_TYPES) -> str:
    """Return the same schema as a Spark DDL string."""
    return ", ".join(f"`{name}` {types[name][1]}" for name in columns)
