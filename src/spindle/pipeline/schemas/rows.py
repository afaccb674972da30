"""Rows whose key or value is decoded: the columns they have, and what happens to bad records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from spindle.columnar.columns import (
    ALL_COLUMNS,
    EVERY_COLUMN,
    arrow_schema,
    listed_names,
)
from spindle.common.ids import TopicPartition
from spindle.pipeline.schemas.ddl import ddl_columns
from spindle.pipeline.schemas.decoding import Decoder, merged_errors

Layout = Literal["columns", "struct"]

LAYOUTS: Final = ("columns", "struct")
BAD_RECORDS: Final = ("fail", "permissive")
DEAD_LETTERS: Final = "dead_letters"
_SHOWN_FIELDS: Final = 20


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


class ColumnPlace(NamedTuple):
    """A column of decoded rows: the column of the record that it comes from, and the place there.

    `field_index` is None for the column of the record itself.
    """

    origin: str
    field_index: int | None
    field: Any


@dataclass(frozen=True, slots=True)
class RowDecoding:
    """The decoded columns of a row. `keeps_bad` is for permissive reads.

    A permissive row has two more columns for each decoded one: `value_error` with the reason, and
    `value_raw` with the bytes of a bad value; both are null in good rows.

    `chosen` are the columns to return, in their order, if fields are among them: see `choosing`.
    """

    parts: tuple[DecodedColumn, ...] = ()
    keeps_bad: bool = False
    chosen: tuple[str, ...] = ()

    def choosing(self, text: str | None) -> tuple[str | None, "RowDecoding"]:
        """Return the columns of records to read for a list of columns that may name fields.

        Args:
            text: Names with commas between them, in backticks where a name has a comma; None for
                all columns. A column of records comes before a field of the same name.

        Returns:
            The list of columns to read, and the decoding that returns the columns of `text`.

        Raises:
            ValueError: a field is named twice, or beside the key or value that it is a field of.
        """
        if text is None or not self.parts:
            return text, self
        fields = {
            field.name.lower(): (part.name, field.name)
            for part in self.parts
            if part.layout == "columns"
            for field in part.fields
        }
        records = {name.lower(): name for name in EVERY_COLUMN}
        chosen: list[str] = []
        read: list[str] = []
        decoded: set[str] = set()
        for name in listed_names(text):
            column = records.get(name.lower())
            if column is None and name.lower() not in fields:
                raise ValueError(
                    f"option columns: {name!r} is neither a column of records nor a field of the "
                    "key or value; want some of "
                    f"{', '.join((*ALL_COLUMNS, *_shown_fields(fields)))}"
                )
            if column is None:
                part, column = fields[name.lower()]
                decoded.add(part)
            else:
                read.append(column)
            if column in chosen:
                raise ValueError(f"option columns: {column!r} is named twice")
            chosen.append(column)
        for part in sorted(decoded & set(read)):
            raise ValueError(
                f"option columns: {part!r} stands for all fields of the {part}; name it or fields "
                "of it"
            )
        read += sorted(decoded)
        return ",".join(read), replace(self, chosen=tuple(chosen) if decoded else ())

    def schema(self, columns: Sequence[str]) -> Any:
        """Return the Arrow schema of rows that the source reads with `columns`.

        Raises:
            ValueError: two columns have one name, or a column to decode is not read.
        """
        missing = sorted(part.name for part in self.parts if part.name not in columns)
        if missing:
            raise ValueError(
                f"option {missing[0]}Format, but the columns {', '.join(columns)} do not include "
                f"{missing[0]}, which stands for all of its fields, or some of them"
            )
        fields = [place.field for place in self.places(columns)]
        for part in self.parts if self.keeps_bad else ():
            fields += [
                pa.field(f"{part.name}_error", pa.string()),
                pa.field(f"{part.name}_raw", pa.binary()),
            ]
        _check_names(fields)
        return pa.schema(fields)

    def places(self, columns: Sequence[str]) -> list["ColumnPlace"]:
        """Return the columns of a row, those for bad records left out, in their order."""
        parts = {part.name: part for part in self.parts}
        by_origin = {
            field.name: (
                [ColumnPlace(field.name, None, field)]
                if field.name not in parts
                else [
                    ColumnPlace(field.name, index, field_name)
                    for index, field_name in enumerate(parts[field.name].fields)
                ]
            )
            for field in arrow_schema(columns)
        }
        if not self.chosen:
            return [place for places in by_origin.values() for place in places]
        by_field = {
            place.field.name: place
            for places in by_origin.values()
            for place in places
            if place.field_index is not None
        }
        chosen = [
            place for name in self.chosen for place in by_origin.get(name) or [by_field[name]]
        ]
        # Columns of other options, such as headers, stand behind.
        others = [name for name in by_origin if name not in self.chosen and name not in parts]
        return [*chosen, *(place for name in others for place in by_origin[name])]

    def spark_columns(self, columns: Sequence[str]) -> str:
        """Return the same schema as a Spark DDL string."""
        return ddl_columns(pa.struct(list(self.schema(columns))))

    def split(self, batch: Any) -> tuple[Any, Any | None]:
        """Return the decoded rows, and the reasons of those that are bad (None: there is none).

        A bad row is kept, with nulls in the columns of what could not be decoded.
        """
        decoded = {part.name: part.decoder.decode(batch.column(part.name)) for part in self.parts}
        by_part = {part.name: part.columns_of(decoded[part.name].columns) for part in self.parts}
        columns = [
            batch.column(origin) if index is None else by_part[origin][index]
            for origin, index, _ in self.places(batch.schema.names)
        ]
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
        place = f"a record of {source} (select the column offset to see which one)"
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


def _shown_fields(fields: Mapping[str, tuple[str, str]]) -> list[str]:
    names = [name for _, name in fields.values()]
    return names if len(names) <= _SHOWN_FIELDS else [*names[:_SHOWN_FIELDS], "..."]


def _check_names(fields: Sequence[Any]) -> None:
    """Refuse two columns of one name; Spark ignores upper and lower case."""
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise ValueError(
                f"two columns have the name {field.name!r}, one of them is a field of the key or "
                "value. Choose `columns` without the other one, or use valueLayout=struct "
                "(keyLayout=struct)"
            )
        seen.add(field.name.lower())
