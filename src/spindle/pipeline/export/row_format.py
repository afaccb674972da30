"""The columns of an exported table, and whether its keys and values are bytes or text."""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from spindle.common.ids import TopicPartition
from spindle.pipeline.records.columns import arrow_schema

Encoding: TypeAlias = Literal["binary", "string"]
"""`binary`: the bytes of the record. `string`: the same bytes as text, which must be UTF-8."""

ENCODINGS: Final = ("binary", "string")


@dataclass(frozen=True, slots=True)
class RowFormat:
    """The columns of the table in their order; `text_columns` of them are stored as strings."""

    columns: tuple[str, ...]
    text_columns: tuple[str, ...] = ()

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the table."""
        schema = arrow_schema(self.columns)
        for name in self.text_columns:
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
        return schema

    def converted(self, batch: pa.RecordBatch, source: TopicPartition) -> pa.RecordBatch:
        """Return the rows of a source in this format; the bytes are checked, not copied.

        Raises:
            ValueError: a key or value that is to be text is not UTF-8.
        """
        for name in self.text_columns:
            try:
                text = batch.column(name).cast(pa.string())
            except pa.ArrowInvalid:
                raise ValueError(_complaint(batch, name, source)) from None
            batch = batch.set_column(batch.schema.get_field_index(name), name, text)
        return batch


def row_format(columns: tuple[str, ...], key: str, value: str) -> RowFormat:
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
            text_columns.append(name)
    return RowFormat(columns, tuple(text_columns))


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
