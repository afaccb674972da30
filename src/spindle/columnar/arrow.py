"""Buffers for the kernel, and Arrow columns made of the filled buffers.

The buffers come from Arrow's memory pool. NumPy would give its memory back to the system after
every chunk, and the page faults of fresh memory cost more than decoding.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spindle.columnar import kernel
from spindle.columnar.columns import HEADERS_COLUMN, arrow_schema

_MIN_HEADER_BYTES = 2


class _Binary:
    """A variable-length column: offsets, validity and data."""

    def __init__(self, entries: int, data_bytes: int) -> None:
        self.offsets_buffer = pa.allocate_buffer(4 * (entries + 1))
        self.offsets = np.frombuffer(self.offsets_buffer, np.int32)
        self.valid_buffer = pa.allocate_buffer(entries // 8 + 1)
        self.valid = np.frombuffer(self.valid_buffer, np.uint8)
        self.data_buffer = pa.allocate_buffer(max(1, data_bytes))

    def array(self, kind: Any, entries: int, data_bytes: int, null_count: int) -> Any:
        valid = self.valid_buffer.slice(0, (entries + 7) // 8) if null_count else None
        buffers = [
            valid,
            self.offsets_buffer.slice(0, 4 * (entries + 1)),
            self.data_buffer.slice(0, data_bytes),
        ]
        return pa.Array.from_buffers(kind, entries, buffers, null_count)

    def copied_array(self, kind: Any, entries: int, data_bytes: int, null_count: int) -> Any:
        """Return a copy like `array`, so that the buffers of this column can be reused."""
        array = self.array(kind, entries, data_bytes, null_count)
        copies = [buffer and pa.py_buffer(buffer.to_pybytes()) for buffer in array.buffers()]
        return pa.Array.from_buffers(kind, entries, copies, null_count)


class HeaderScratch:
    """Reused buffers for headers.

    The number of headers is known only after decoding. Fresh buffers for the worst case would cost
    more than copying the headers out of reused ones.
    """

    def __init__(self) -> None:
        self._max_bytes = -1

    def reserve(self, max_bytes: int) -> None:
        """Make room for the headers of records of this size in bytes."""
        if max_bytes <= self._max_bytes:
            return
        self._max_bytes = max_bytes
        max_headers = max_bytes // _MIN_HEADER_BYTES
        self.keys = _Binary(max_headers, max_bytes)
        self.values = _Binary(max_headers, max_bytes)


_NO_OFFSETS = np.empty(0, np.int32)
_NO_BITS = np.empty(0, np.uint8)
_NO_LONGS = np.empty(0, np.int64)


class ColumnBuffers:
    """Buffers for the wanted columns of at most `max_rows` rows from `max_bytes` of records."""

    def __init__(
        self, columns: Sequence[str], max_rows: int, max_bytes: int, scratch: HeaderScratch
    ) -> None:
        self._columns = columns
        self._key = _Binary(max_rows, max_bytes) if "key" in columns else None
        self._value = _Binary(max_rows, max_bytes) if "value" in columns else None
        self._offsets: Any = pa.allocate_buffer(8 * max_rows) if "offset" in columns else None
        self._timestamps: Any = pa.allocate_buffer(8 * max_rows) if "timestamp" in columns else None
        self._header_lists: _Binary | None = None
        if HEADERS_COLUMN in columns:
            scratch.reserve(max_bytes)
            self._header_lists = _Binary(max_rows, 0)
            self._header_keys = scratch.keys
            self._header_values = scratch.values

    def fill(self, table: Any, limits: Any) -> Any:
        """Run the kernel over the batch table and return its result array (see `kernel`)."""
        result = np.zeros(kernel.RESULT_WIDTH, np.int64)
        kernel.decode_batches(
            table,
            limits,
            *_addressed(self._key),
            *_addressed(self._value),
            _longs(self._offsets),
            _longs(self._timestamps),
            self._header_arguments(),
            result,
        )
        return result

    def _header_arguments(self) -> Any:
        if self._header_lists is None:
            return (_NO_OFFSETS, _NO_BITS, _NO_OFFSETS, 0, _NO_OFFSETS, _NO_BITS, 0)
        keys, values = self._header_keys, self._header_values
        return (
            self._header_lists.offsets,
            self._header_lists.valid,
            keys.offsets,
            keys.data_buffer.address,
            values.offsets,
            values.valid,
            values.data_buffer.address,
        )

    def record_batch(self, result: Any, given: Mapping[str, Any]) -> Any:
        """Return the filled columns as a RecordBatch with the schema of the wanted columns.

        Args:
            given: The arrays of the columns that do not come from records.
        """
        rows = int(result[kernel.ROW_COUNT])
        arrays = [
            given[name] if name in given else self._array(name, rows, result)
            for name in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self._columns))

    def _array(self, name: str, rows: int, result: Any) -> Any:
        if name == "key" and self._key is not None:
            data_bytes, nulls = result[kernel.KEY_BYTES], result[kernel.NULL_KEYS]
            return self._key.array(pa.binary(), rows, int(data_bytes), int(nulls))
        if name == "value" and self._value is not None:
            data_bytes, nulls = result[kernel.VALUE_BYTES], result[kernel.NULL_VALUES]
            return self._value.array(pa.binary(), rows, int(data_bytes), int(nulls))
        if name == HEADERS_COLUMN:
            return self._headers_array(rows, result)
        buffer = self._offsets if name == "offset" else self._timestamps
        kind = pa.int64() if name == "offset" else pa.timestamp("us", tz="UTC")
        return pa.Array.from_buffers(kind, rows, [None, buffer.slice(0, 8 * rows)], 0)

    def _headers_array(self, rows: int, result: Any) -> Any:
        assert self._header_lists is not None
        count = int(result[kernel.HEADER_COUNT])
        key_bytes = int(result[kernel.HEADER_KEY_BYTES])
        keys = self._header_keys.copied_array(pa.binary(), count, key_bytes, 0)
        values = self._header_values.copied_array(
            pa.binary(),
            count,
            int(result[kernel.HEADER_VALUE_BYTES]),
            int(result[kernel.NULL_HEADER_VALUES]),
        )
        kind = arrow_schema([HEADERS_COLUMN]).field(0).type
        structs = pa.StructArray.from_arrays([_text(keys), values], fields=list(kind.value_type))
        null_rows = int(result[kernel.ROWS_WITHOUT_HEADERS])
        valid = self._header_lists.valid_buffer.slice(0, (rows + 7) // 8) if null_rows else None
        offsets = self._header_lists.offsets_buffer.slice(0, 4 * (rows + 1))
        return pa.Array.from_buffers(kind, rows, [valid, offsets], null_rows, children=[structs])


class Repeated:
    """A constant column: one array that is long enough, and slices of it."""

    def __init__(self, value: str | int | None, kind: Any) -> None:
        self._scalar = _scalar(value, kind)
        self._array = pa.repeat(self._scalar, 0)

    def of(self, rows: int) -> Any:
        if len(self._array) < rows:
            self._array = pa.repeat(self._scalar, max(rows, 2 * len(self._array)))
        return self._array.slice(0, rows)


def array_of(values: "np.ndarray[Any, Any]", kind: Any) -> Any:
    """Return numbers of this type as an array without copying them.

    `pa.array` and `pa.scalar` import pandas, which takes longer than a short task.
    """
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _scalar(value: str | int | None, kind: Any) -> Any:
    match value:
        case None:
            return pa.nulls(1, kind)[0]
        case str():
            data = value.encode()
            ends = pa.py_buffer(np.array([0, len(data)], np.int32))
            return pa.Array.from_buffers(kind, 1, [None, ends, pa.py_buffer(data)])[0]
        case int():
            return array_of(np.array([value], kind.to_pandas_dtype()), kind)[0]


def _addressed(column: _Binary | None) -> tuple[Any, Any, int]:
    if column is None:
        return _NO_OFFSETS, _NO_BITS, 0
    return column.offsets, column.valid, column.data_buffer.address


def _longs(buffer: Any) -> Any:
    return _NO_LONGS if buffer is None else np.frombuffer(buffer, np.int64)


def _text(keys: Any) -> Any:
    """Return header keys as strings; bytes that are not UTF-8 are replaced as in Java."""
    strings = pa.Array.from_buffers(pa.string(), len(keys), keys.buffers(), 0)
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        replaced = [key.as_py().decode("utf-8", "replace") for key in keys]
        return pa.array(replaced, pa.string())
    return strings
