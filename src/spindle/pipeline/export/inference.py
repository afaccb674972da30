"""The schema of the values of an export, inferred from a sample of them and from the table.

A column that the table has keeps its type; fields that only newer records have become new columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from spindle.pipeline.export.model import ExportSource
from spindle.pipeline.export.table import ExportTable
from spindle.pipeline.records.columns import ALL_COLUMNS
from spindle.pipeline.schemas.ddl import ddl_columns
from spindle.pipeline.schemas.json_inference import inferred_type
from spindle.pipeline.schemas.widening import with_new_fields

INFER: Final = "infer"
_SAMPLED_RECORDS: Final = 1000
_ADDED: Final = frozenset({"date", "hour", "value_error", "value_raw", "key_error", "key_raw"})


def infers_schema(options: Mapping[str, str]) -> bool:
    """Tell whether the schema of the values is to be inferred.

    Raises:
        ValueError: it is, but values are not JSON that become columns of their own.
    """
    given = {name.lower(): text for name, text in options.items()}
    if given.get("valueschema", "").strip().lower() != INFER:
        return False
    if given.get("valueformat", "").lower() != "json" or "schemaregistry.url" in given:
        raise ValueError("option valueSchema=infer: want valueFormat=json without a registry")
    if given.get("valuelayout", "columns").lower() != "columns":
        raise ValueError("option valueSchema=infer: want valueLayout=columns, which can grow")
    return True


def with_inferred_schema(
    options: Mapping[str, str], source: ExportSource, table: ExportTable
) -> dict[str, str]:
    """Return the options with the schema in the place of `infer`.

    Fields that are not in it make a record bad unless the options say otherwise, so that none is
    lost because the sample lacks it.

    Raises:
        ValueError: neither the table nor the sample has any field.
    """
    held = _held_type(table)
    values = list(_sample(source))
    if held is None:
        kind = inferred_type(values)
    else:
        try:
            kind = with_new_fields(held, inferred_type(values))
        except ValueError:
            kind = held
    rest = {name: text for name, text in options.items() if name.lower() != "valueschema"}
    if not any(name.lower() == "valueunknownfields" for name in rest):
        rest["valueUnknownFields"] = "refuse"
    return {**rest, "valueSchema": ddl_columns(kind)}


def _held_type(table: ExportTable) -> Any | None:
    columns = table.columns()
    if columns is None:
        return None
    taken = {*ALL_COLUMNS, *_ADDED}
    fields = [field for field in columns if field.name not in taken]
    return pa.struct([(field.name, field.type) for field in fields]) if fields else None


def _sample(source: ExportSource) -> Iterator[bytes | None]:
    """Yield the first and the last values of each range."""
    ranges: Any = source.ranges()[:_SAMPLED_RECORDS]
    count = max(1, _SAMPLED_RECORDS // (2 * max(1, len(ranges))))
    pieces = list(
        chain.from_iterable(
            (
                replace(piece, end_offset=min(piece.end_offset, piece.start_offset + count)),
                replace(piece, start_offset=max(piece.start_offset, piece.end_offset - count)),
            )
            for piece in ranges
        )
    )
    if "value" not in source.columns:
        raise ValueError("option valueSchema=infer: the columns do not include value")
    for task in source.tasks(pieces) if pieces else ():
        for piece in task:
            for batch in source.read(piece):
                yield from batch.column("value").to_pylist()
