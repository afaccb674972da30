"""The columns of an exported table: keys and values as bytes, as text, or decoded."""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from spindle.common.ids import TopicPartition
from spindle.pipeline.schemas.rows import RAW_ROWS, RowDecoding, bad_record

Encoding: TypeAlias = Literal["binary", "string"]
"""`binary`: the bytes of the record. `string`: the same bytes as text, which must be UTF-8."""

ENCODINGS: Final = ("binary", "string")
_SET_ASIDE: Final = (
    "The option badRecords=dead_letters (--dead-letters) puts bad records into a table beside this "
    "one, badRecords=permissive keeps them with the reason"
)


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

    def split(self, batch: pa.RecordBatch, source: TopicPartition) -> tuple[Any, Any | None]:
        """Return the rows in this format, and the reasons of those that cannot be decoded.

        A row that cannot be decoded has nulls. There are no reasons (None) if all rows are good, or
        if the format keeps bad records.

        Raises:
            ValueError: a key or value that is to be text is not UTF-8.
        """
        rows, reasons = batch.select(self.columns), None
        if self.decoding.parts:
            rows, reasons = self.decoding.split(rows)
        # Afterwards, because decoded rows have the other columns in the types of the source.
        rows = self._with_text(rows, source)
        return rows, None if self.decoding.keeps_bad else reasons

    def converted(self, batch: pa.RecordBatch, source: TopicPartition) -> pa.RecordBatch:
        """Return the rows of a source in this format; the bytes are checked, not copied.

        Raises:
            ValueError: a key or value that is to be text is not UTF-8, or cannot be decoded.
        """
        rows, reasons = self.split(batch, source)
        if reasons is not None:
            raise bad_record(batch, reasons, source, _SET_ASIDE)
        return rows

    def _with_text(self, batch: pa.RecordBatch, source: TopicPartition) -> pa.RecordBatch:
        for name in self.text_columns:
            try:
                text = batch.column(name).cast(pa.string())
            except pa.ArrowInvalid:
                raise ValueError(_complaint(batch, name, source)) from None
            batch = batch.set_column(batch.schema.get_field_index(name), name, text)
        return batch


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


def _complaint(batch: pa.RecordBatch, name: str, source: TopicPartition) -> str:
    """Name the first row that is not UTF-8, and the way to export it."""
    row, problem = _first_that_is_not_text(batch.column(name))
    place = f" at offset {batch.column('offset')[row]}" if "offset" in batch.schema.names else ""
    return f"{name} of {source}{place} is not UTF-8 ({problem}); export it with {name}='binary'"


def _first_that_is_not_text(column: Any) -> tuple[int, str]:
    for row, cell in enumerate(column.to_pylist()):
        if cell is not None:
            try:
                cell.decode()
            except UnicodeDecodeError as error:
                return row, f"byte 0x{cell[error.start]:02x} at position {error.start}"
    raise AssertionError("every row is text")
