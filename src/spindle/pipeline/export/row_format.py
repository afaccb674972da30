"""The columns of an exported table: keys and values as bytes, as text, or decoded."""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from spindle.pipeline.schemas.decoding import merged_errors
from spindle.pipeline.schemas.rows import RAW_ROWS, RowDecoding

Encoding: TypeAlias = Literal["binary", "string"]
"""`binary`: the bytes of the record. `string`: the same bytes as text, which must be UTF-8."""

ENCODINGS: Final = ("binary", "string")


@dataclass(frozen=True, slots=True)
class RowFormat:
    """The columns of the table in their order.

    `columns` are those of the record. `text_columns` of them are stored as strings, and `decoding`
    puts other columns in the place of some. `added` stand behind all others; the rows have them.
    """

    columns: tuple[str, ...]
    text_columns: tuple[str, ...] = ()
    decoding: RowDecoding = RAW_ROWS
    added: tuple[Any, ...] = ()

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the table."""
        schema = self.decoding.schema(self.columns)
        for name in self.text_columns:
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
        for field in self.added:
            schema = schema.append(field)
        return schema

    @property
    def decoded_columns(self) -> frozenset[str]:
        """The names of the columns that are fields of a decoded key or value."""
        places = self.decoding.places(self.columns)
        return frozenset(place.field.name for place in places if place.field_index is not None)

    def split(self, batch: pa.RecordBatch) -> tuple[Any, Any | None]:
        """Return the rows in this format, and the reasons of those that cannot be decoded.

        A row that cannot be decoded, or is not UTF-8 but has to be text, has nulls. There are no
        reasons (None) if all rows are good. A format that keeps bad records has reasons only for
        those that it cannot keep.
        """
        rows, reasons = batch.select(self.columns), None
        if self.decoding.parts:
            rows, reasons = self.decoding.split(rows)
        if self.decoding.keeps_bad:
            reasons = None
        # Afterwards, because decoded rows have the other columns in the types of the source.
        for name in self.text_columns:
            text, faults = _text(rows.column(name), name)
            rows = rows.set_column(rows.schema.get_field_index(name), name, text)
            reasons = merged_errors(reasons, faults)
        return rows, reasons


def row_format(
    columns: tuple[str, ...], key: str, value: str, decoding: RowDecoding = RAW_ROWS
) -> RowFormat:
    """Return the format of an export of `columns` with these encodings of key and value.

    Raises:
        ValueError: an unknown encoding, or text is wanted of a column that is not exported.
    """
    text_columns = []
    for name, encoding in (("key", key), ("value", value)):
        if encoding not in ENCODINGS:
            raise ValueError(f"{name}={encoding!r} is none of {', '.join(ENCODINGS)}")
        if encoding == "string":
            if name not in columns:
                raise ValueError(
                    f"{name}='string', but the columns {', '.join(columns)} do not include {name}"
                )
            if any(part.name == name for part in decoding.parts):
                raise ValueError(f"{name}='string' and the option {name}Format exclude each other")
            text_columns.append(name)
    return RowFormat(columns, tuple(text_columns), decoding)


def _text(column: Any, name: str) -> tuple[Any, Any | None]:
    """Return bytes as text, and the reasons of those that are not UTF-8; these become null."""
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        pass
    cells: list[str | None] = []
    reasons: list[str | None] = []
    for cell in column.to_pylist():
        text, reason = None, None
        try:
            text = None if cell is None else cell.decode()
        except UnicodeDecodeError as error:
            byte = f"byte 0x{cell[error.start]:02x} at position {error.start}"
            reason = f"{name}: not UTF-8 ({byte}), which {name}='binary' takes"
        cells.append(text)
        reasons.append(reason)
    return pa.array(cells, pa.string()), pa.array(reasons, pa.string())
