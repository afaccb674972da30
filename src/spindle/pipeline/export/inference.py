"""The schema of the values of an export, inferred from a sample of them and from the table.

A column that the table has keeps its type; fields that only newer records have become new columns.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final, TypeAlias

import pyarrow as pa

from spindle.pipeline.export.changes import DELETED
from spindle.pipeline.export.continuation import coverage_of, remaining_ranges
from spindle.pipeline.export.model import ExportSource
from spindle.pipeline.export.partitioning import UNPARTITIONED, Partitioning
from spindle.pipeline.export.table import ExportTable
from spindle.pipeline.schemas.ddl import ddl_columns
from spindle.pipeline.schemas.json_inference import inferred_type
from spindle.pipeline.schemas.options import row_decoding
from spindle.pipeline.schemas.rows import BAD_RECORDS, DEAD_LETTERS

RowsOf: TypeAlias = Callable[[Any], Any]
"""A function from a batch of records to the values of which the schema is inferred."""

INFER: Final = "infer"
_SAMPLED_RECORDS: Final = 1000
_PLACEHOLDER: Final = "the fields of the value"


class NoRecordsYet(ValueError):
    """There is no record from which a schema could be inferred, and the table has none."""


def infers_schema(options: Mapping[str, str]) -> bool:
    """Return whether the schema of the values is to be inferred.

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
    options: Mapping[str, str],
    source: ExportSource,
    table: ExportTable,
    partitioning: Partitioning = UNPARTITIONED,
    changes: tuple[ExportSource, RowsOf] | None = None,
) -> dict[str, str]:
    """Return the options with the schema in the place of `infer`.

    Fields that are not in it make a record bad unless the options say otherwise, so that none is
    lost because the sample lacks it. Once the table has columns of the value, the sample is taken
    from what it lacks, so a record that was exported or set aside does not matter any more.

    Args:
        changes: For records that are changes of rows, a source that also reads their keys, and the
            rows of its batches.

    Raises:
        NoRecordsYet: the table has no field, and the topics have no records.
        ValueError: neither the table nor the sample has any field.
        ExportRefused, DataLoss: as `run_export`.
    """
    rest = {name: text for name, text in options.items() if name.lower() != "valueschema"}
    if not any(name.lower() == "valueunknownfields" for name in rest):
        rest["valueUnknownFields"] = "refuse"
    others = _other_columns(rest, source, table, partitioning)
    taken = frozenset((DELETED, *(field.name.lower() for field in others)))
    held = _held_type(table, taken)

    def fault_of(kind: Any) -> str | None:
        return table.columns_fault(pa.schema([*others, *kind]))

    sampled, rows_of = changes or (source, lambda batch: batch.column("value"))
    sample = _sample(sampled, rows_of, table, held is None)
    kind = inferred_type(sample, taken, held, fault_of)
    return {**rest, "valueSchema": ddl_columns(kind)}


def _other_columns(
    options: Mapping[str, str], source: ExportSource, table: ExportTable, partitioning: Partitioning
) -> list[Any]:
    """Return the columns that are not made from the value."""
    if "value" not in source.columns:
        raise ValueError("option valueSchema=infer: the columns do not include value")
    placeholder = {**options, "valueSchema": f"`{_PLACEHOLDER}` STRING"}
    decoding = row_decoding(placeholder, (*BAD_RECORDS, DEAD_LETTERS))
    fields = [field for field in decoding.schema(source.columns) if field.name != _PLACEHOLDER]
    held = table.columns()
    if held is None:
        return fields
    return [*fields, *(held.field(name) for name in partitioning.derived_columns(held))]


def _held_type(table: ExportTable, taken: Collection[str]) -> Any | None:
    columns = table.columns()
    if columns is None:
        return None
    fields = [field for field in columns if field.name.lower() not in taken]
    return pa.struct([(field.name, field.type) for field in fields]) if fields else None


def _sample(
    source: ExportSource, rows_of: RowsOf, table: ExportTable, is_of_all: bool
) -> Iterator[bytes | None]:
    """Yield the first and the last values of each range: of those the table lacks, or of all."""
    planned = source.ranges()
    covered = {} if is_of_all else coverage_of(table, planned)
    ranges: Any = remaining_ranges(source, planned, covered)[:_SAMPLED_RECORDS]
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
    if is_of_all and not pieces:
        raise NoRecordsYet("no schema can be inferred: the topics have no records yet")
    for task in source.tasks(pieces) if pieces else ():
        for piece in task:
            for batch in source.read(piece):
                yield from rows_of(batch).to_pylist()
