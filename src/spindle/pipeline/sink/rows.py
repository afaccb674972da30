"""The columns of the rows to write: what a DataFrame must have, and their Arrow buffers.

Columns, types and defaults are those of Spark's built-in `kafka` sink: `value` is required; `key`,
`headers`, `topic` and `partition` may be missing; other columns are not written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spindle.columnar.encoder_kernel import BytesBuffers, HeaderLists
from spindle.pipeline.sink.errors import SinkError

COLUMN_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
NO_PARTITION: Final = -1

_NO_LONGS: Final = np.empty(0, np.int64)
_NO_HEADERS: Final = (0, 0, (0, 0, 0), (0, 0, 0))
_OFFSET_BYTES: Final = 4


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Check the columns of a DataFrame that is to be written.

    Args:
        columns: Type by name, in the words of Spark's `simpleString`.
        topic: The option topic.

    Raises:
        ValueError: a column is missing or has a type that cannot be written.
    """
    if "value" not in columns:
        present = ", ".join(columns) or "none"
        raise ValueError(f"column value is missing, the rows have the columns {present}")
    if topic is None and "topic" not in columns:
        raise ValueError("no topic: give the option topic, or a column of this name")
    for name, wanted in COLUMN_TYPES.items():
        kind = columns.get(name)
        if kind is not None and kind not in wanted:
            raise ValueError(f"column {name} has the type {kind}, want {' or '.join(wanted)}")


@dataclass(frozen=True, slots=True)
class RowBuffers:
    """The columns of one Arrow batch in the form of the kernel.

    Attributes:
        topics: Index into `topic_names` for each row.
        given: Partition of each row, NO_PARTITION for none; empty if there is no such column.
        value_bytes: The size of the values, about.
        held: The arrays to whose memory the buffers point.
    """

    rows: int
    value_bytes: int
    keys: BytesBuffers
    values: BytesBuffers
    headers: HeaderLists
    topic_names: tuple[str, ...]
    topics: Any
    given: Any
    held: tuple[Any, ...]


def row_buffers(batch: pa.RecordBatch, topic: str | None) -> RowBuffers:
    """Return the columns of a batch; the option topic overrides the column.

    Raises:
        SinkError: a row has no topic, or a header has no key.
    """
    rows = batch.num_rows
    columns = {
        name.lower(): batch.column(at)
        for at, name in enumerate(batch.schema.names)
        if name.lower() in COLUMN_TYPES
    }
    held: list[Any] = []
    keys = _bytes(columns["key"], held) if "key" in columns else _all_null(rows, held)
    values = _bytes(columns["value"], held)
    headers = _headers(columns["headers"], held) if "headers" in columns else _NO_HEADERS
    names, topics = _topics(columns.get("topic"), rows, topic)
    given = _NO_LONGS
    if "partition" in columns:
        given = _given(columns["partition"])
    return RowBuffers(
        rows, columns["value"].nbytes, keys, values, headers, names, topics, given, tuple(held)
    )


def _bytes(column: Any, held: list[Any]) -> BytesBuffers:
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    return _buffers(column, held)


def _buffers(column: Any, held: list[Any]) -> BytesBuffers:
    """Return the addresses of a column of bytes, or of a list (which has no data of its own)."""
    bits, offsets, *rest = column.buffers()
    held.append(column)
    if offsets is None or offsets.size == 0:
        return _constant(bytes(_OFFSET_BYTES), held), 0, 0
    valid = 0
    if column.null_count and column.offset % 8:
        flags = pc.is_valid(column).to_numpy(zero_copy_only=False)
        valid = _constant(np.packbits(flags, bitorder="little").tobytes(), held)
    elif column.null_count:
        valid = bits.address + column.offset // 8
    data = rest[0].address if rest and rest[0] is not None else 0
    return offsets.address + _OFFSET_BYTES * column.offset, valid, data


def _constant(data: bytes, held: list[Any]) -> int:
    buffer = pa.py_buffer(data)
    held.append(buffer)
    return int(buffer.address)


def _all_null(rows: int, held: list[Any]) -> BytesBuffers:
    return (
        _constant(bytes(_OFFSET_BYTES * (rows + 1)), held),
        _constant(bytes(rows // 8 + 1), held),
        0,
    )


def _headers(column: Any, held: list[Any]) -> HeaderLists:
    if pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    offsets, valid, _ = _buffers(column, held)
    keys, values = column.values.flatten()
    if column.flatten().field("key").null_count:
        raise SinkError("a header has no key: column headers wants a key in every header")
    return offsets, valid, _bytes(keys, held), _bytes(values, held)


def _topics(column: Any, rows: int, option: str | None) -> tuple[tuple[str, ...], Any]:
    if option is not None:
        return (option,), np.zeros(rows, np.int32)
    if column.null_count:
        raise SinkError("a row has no topic: column topic is null, and there is no option topic")
    coded = column.dictionary_encode()
    names = tuple(coded.dictionary.to_pylist())
    return names, np.array(coded.indices.to_numpy(zero_copy_only=False), np.int32)


def _given(column: Any) -> Any:
    """Return the partitions; a negative one of the column becomes -2, so that it is refused."""
    given = pc.if_else(pc.less(column, 0), NO_PARTITION - 1, column)
    return np.array(pc.fill_null(given, NO_PARTITION).to_numpy(zero_copy_only=False), np.int64)
