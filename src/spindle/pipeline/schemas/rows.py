"""Rows whose key or value is decoded: the columns they have, and what happens to bad records."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from spindle.common.ids import TopicPartition
from spindle.pipeline.records.columns import arrow_schema
from spindle.pipeline.schemas.ddl import ddl_columns
from spindle.pipeline.schemas.decoding import Decoder, merged_errors

Layout = Literal["columns", "struct"]

LAYOUTS: Final = ("columns", "struct")
BAD_RECORDS: Final = ("fail", "permissive")
DEAD_LETTERS: Final = "dead_letters"


_KEEP: Final = "The option badRecords=permissive keeps bad records, with the reason"


class BadRecord(ValueError):
    """A record cannot be decoded, and the options say that this is an error."""


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """How the column `name` (`key` or `value`) is decoded.

    `layout`: its fields stand in its place as columns of their own, or as one struct column.
    """

    name: str
    decoder: Decoder
    layout: Layout = "columns"

    @property
    def fields(self) -> list[Any]:
        """The columns that stand in the place of the raw one."""
        if self.layout == "struct":
            return [pa.field(self.name, self.decoder.type)]
        return list(self.decoder.type)

    def columns_of(self, rows: Any) -> list[Any]:
        """Return the columns of decoded rows, in the order of `fields`."""
        return [rows] if self.layout == "struct" else rows.flatten()


@dataclass(frozen=True, slots=True)
class RowDecoding:
    """The decoded columns of a row. `keeps_bad` is for permissive reads.

    A permissive row has two more columns for each decoded one: `value_error` with the reason, and
    `value_raw` with the bytes of a bad value; both are null in good rows.
    """

    parts: tuple[DecodedColumn, ...] = ()
    keeps_bad: bool = False

    def schema(self, columns: Sequence[str]) -> Any:
        """Return the Arrow schema of rows that the source reads with `columns`.

        Raises:
            ValueError: two columns have one name, or a column to decode is not read.
        """
        fields: list[Any] = []
        by_name = {part.name: part for part in self.parts}
        for field in arrow_schema(columns):
            part = by_name.pop(field.name, None)
            fields += [field] if part is None else part.fields
        if by_name:
            missing = min(by_name)
            raise ValueError(
                f"option {missing}Format, but the columns {', '.join(columns)} do not include "
                f"{missing}"
            )
        for part in self.parts if self.keeps_bad else ():
            fields += [
                pa.field(f"{part.name}_error", pa.string()),
                pa.field(f"{part.name}_raw", pa.binary()),
            ]
        _check_names(fields)
        return pa.schema(fields)

    def spark_columns(self, columns: Sequence[str]) -> str:
        """Return the same schema as a Spark DDL string."""
        return ddl_columns(pa.struct(list(self.schema(columns))))

    def split(self, batch: Any) -> tuple[Any, Any | None]:
        """Return the decoded rows, and the reasons of those that are bad (None: there is none).

        A bad row is kept, with nulls in the columns of what could not be decoded.
        """
        decoded = {part.name: part.decoder.decode(batch.column(part.name)) for part in self.parts}
        columns: list[Any] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            part = next((part for part in self.parts if part.name == name), None)
            columns += [column] if part is None else part.columns_of(decoded[name].columns)
        reasons = None
        for part in self.parts:
            errors = decoded[part.name].errors
            if self.keeps_bad:
                columns += _kept(batch.column(part.name), errors)
            named = None if errors is None else _prefixed(f"{part.name}: ", errors)
            reasons = merged_errors(reasons, named)
        schema = self.schema(batch.schema.names)
        return pa.RecordBatch.from_arrays(columns, schema=schema), reasons

    def decoded(self, batches: Iterable[Any], source: TopicPartition) -> Iterator[Any]:
        """Yield the decoded rows of one partition.

        Raises:
            BadRecord: a record cannot be decoded, and bad ones are not kept.
        """
        if not self.parts:
            yield from batches
            return
        for batch in batches:
            rows, reasons = self.split(batch)
            if reasons is not None and not self.keeps_bad:
                raise bad_record(batch, reasons, source, _KEEP)
            yield rows


RAW_ROWS: Final = RowDecoding()


def bad_record(
    batch: Any,
    reasons: Any,
    source: TopicPartition,
    advice: str,
    problem: str = "cannot be decoded",
) -> BadRecord:
    """Return the error that names the first bad record of a batch, and says what helps."""
    row, reason = next(
        (row, reason) for row, reason in enumerate(reasons.to_pylist()) if reason is not None
    )
    if "offset" in batch.schema.names:
        place = f"{source} offset {batch.column('offset')[row]}"
    else:
        place = f"a record of {source} (the column offset would tell which one)"
    return BadRecord(f"{place} {problem}: {reason}. {advice}")


def _kept(raw: Any, errors: Any | None) -> list[Any]:
    if errors is None:
        return [pa.nulls(len(raw), pa.string()), pa.nulls(len(raw), pa.binary())]
    bad_values = [
        value if reason is not None else None
        for value, reason in zip(raw.to_pylist(), errors.to_pylist(), strict=True)
    ]
    return [errors, pa.array(bad_values, pa.binary())]


def _prefixed(prefix: str, errors: Any) -> Any:
    texts = [None if reason is None else prefix + reason for reason in errors.to_pylist()]
    return pa.array(texts, pa.string())


def _check_names(fields: Sequence[Any]) -> None:
    """Refuse two columns of one name; Spark does not tell upper and lower case apart."""
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise ValueError(
                f"two columns have the name {field.name!r}, one of them is a field of the key or "
                "value. Choose `columns` without the other one, or use valueLayout=struct "
                "(keyLayout=struct)"
            )
        seen.add(field.name.lower())
