"""Values that are JSON objects: whole batches at once, and one by one where something is bad.

Arrow's JSON reader takes the values of a batch as lines. If it refuses them, the batch is halved
until the bad values are alone with a few neighbours, and only these are read in Python.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from spindle.pipeline.schemas.decoding import (
    BadValue,
    Decoded,
    decoded_rows,
    joined,
    spread,
)
from spindle.pipeline.schemas.json_rows import (
    TIME_REWRITES,
    parse_json,
    row_converter,
    time_forms,
)

_SLOW_ROWS: Final = 64
_MAX_LINES_BYTES: Final = 256 * 1024 * 1024
_INFINITE: Final = b"Inf"
_SPACE: Final = " \t\r\n"
_REFUSALS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError)


class _Refused(Exception):
    """The fast reader does not take these values."""


@dataclass(frozen=True)
class JsonDecoder:
    """Reads JSON objects into the fields of `type`.

    A missing field and a null are both null. A field that the schema does not have is left out, or
    makes the value bad if `refuse_unknown`.

    Raises:
        ValueError: a type that JSON cannot be read into.
    """

    type: Any
    refuse_unknown: bool = False

    def __post_init__(self) -> None:
        row_converter(self.type, self.refuse_unknown)

    def decode(self, values: Any) -> Decoded:
        """Return a row for each value of a BinaryArray."""
        if values.null_count == 0:
            return self._decoded(values)
        return spread(self._decoded(values.drop_null()), values.is_valid())

    def _decoded(self, values: Any) -> Decoded:
        if len(values) == 0:
            return Decoded(pa.nulls(0, self.type), None)
        if _reads_fast(self.type):
            try:
                return Decoded(self._fast(values), None)
            except _Refused:
                pass
        if len(values) <= _SLOW_ROWS or not _reads_fast(self.type):
            return self._slow(values)
        middle = len(values) // 2
        return joined([self._decoded(values[:middle]), self._decoded(values[middle:])])

    def _fast(self, values: Any) -> Any:
        """Return the rows of values all of which are good.

        Every value begins with `{`, ends with `}` and is a line of its own. The reader can be at
        the end of `}` and continue with `{` between two objects only, and no JSON string contains a
        line end; so each value is at least one object, and as many rows as values are one each.
        """
        lines = _lines(values)
        options = pj.ParseOptions(
            explicit_schema=pa.schema([pa.field(f.name, _read_as(f.type)) for f in self.type]),
            unexpected_field_behavior="error" if self.refuse_unknown else "ignore",
        )
        reading = pj.ReadOptions(use_threads=False, block_size=lines.size + 1)
        try:
            table = pj.read_json(pa.BufferReader(lines), reading, options)
            if table.num_rows != len(values):
                raise _Refused
            columns = [
                _finished(table.column(index).combine_chunks(), field.type)
                for index, field in enumerate(self.type)
            ]
        except _REFUSALS:
            raise _Refused from None
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def _slow(self, values: Any) -> Decoded:
        convert = row_converter(self.type, self.refuse_unknown)
        rows: list[Any] = []
        errors: dict[int, str] = {}
        for index, value in enumerate(values.to_pylist()):
            row, reason = None, None
            try:
                row = convert(parse_json(value))
            except BadValue as error:
                reason = str(error)
            except RecursionError:
                reason = "nested too deep"
            if reason is not None and (reason == "nested too deep" or _INFINITE in value):
                row = self._accepted_alone(values[index : index + 1])
            rows.append(row)
            if row is None:
                errors[index] = str(reason)
        return decoded_rows(rows, errors, self.type)

    def _accepted_alone(self, value: Any) -> dict[str, Any] | None:
        """Return the row of a value that only the fast reader accepts, None if it does not either.

        The fast reader skips a field that the schema does not have at any depth of nesting, and
        knows the number `Inf`. With this question a value has the same row beside any neighbours.
        """
        if not _reads_fast(self.type):
            return None
        try:
            row: dict[str, Any] = self._fast(value)[0].as_py()
        except _Refused:
            return None
        return row


def _lines(values: Any) -> Any:
    """Return the values as lines in one buffer."""
    if values.nbytes > _MAX_LINES_BYTES:
        raise _Refused
    try:
        text = values.cast(pa.string())
    except pa.ArrowInvalid:
        raise _Refused from None
    if not _are_braced(text):
        text = pc.ascii_trim(text, _SPACE)
        if not _are_braced(text):
            raise _Refused
    ended = pc.binary_join_element_wise(text, "\n", "")
    offsets = memoryview(ended.buffers()[1]).cast("i")
    first, last = offsets[ended.offset], offsets[ended.offset + len(ended)]
    return ended.buffers()[2].slice(first, last - first)


def _are_braced(text: Any) -> bool:
    braced = pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))
    return bool(pc.all(braced, min_count=0).as_py())


def _reads_fast(kind: Any) -> bool:
    """Return whether Arrow's reader has this type; it has no maps and no base64."""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_reads_fast(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _reads_fast(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind))


def _read_as(kind: Any) -> Any:
    """Return the type that the reader is asked for: times are read as text."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _read_as(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_read_as(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) or pa.types.is_date32(kind) else kind


def _finished(column: Any, kind: Any) -> Any:
    """Return a column that was read as `_read_as(kind)` as `kind`; refuse what is not finite."""
    if pa.types.is_floating(kind):
        if not pc.all(pc.is_finite(column), min_count=0).as_py():
            raise _Refused
        return column
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return _times(column, kind)
    if pa.types.is_struct(kind):
        fields = [_finished(column.field(index), field.type) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        elements = _finished(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, elements, kind, mask=column.is_null())
    return column


def _times(column: Any, kind: Any) -> Any:
    for texts in _spellings(column):
        for form in time_forms(kind):
            try:
                return texts.cast(form).cast(kind)
            except pa.ArrowInvalid:
                continue
    raise _Refused


def _spellings(texts: Any) -> Iterator[Any]:
    yield texts
    for pattern, replacement in TIME_REWRITES:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    yield texts
