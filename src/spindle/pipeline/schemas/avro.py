"""Values in Avro's binary form without a container file; the schema is given apart from them."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa

from spindle.pipeline.schemas.avro_types import UNNAMED, AvroColumn, avro_column, member_name
from spindle.pipeline.schemas.decoding import Decoded, decoded_rows, shown

_NAMING: Final = ("return_named_type", "return_named_type_override")
_REFUSALS: Final = (EOFError, IndexError, KeyError, OverflowError, TypeError, ValueError)


class _Compiled(NamedTuple):
    """A parsed schema and its column. `names` makes fastavro name the members of unions."""

    schema: Any
    column: AvroColumn
    is_record: bool
    names: dict[str, Any]


@dataclass(frozen=True)
class AvroDecoder:
    """Reads values that `writer_schema` wrote, into the fields of `reader_schema`.

    Both are the JSON text of an Avro schema. Without a reader's schema the writer's is used for
    both. A schema that is no record gives one column with the name `value`.

    Raises:
        ValueError: no Avro schema, or one that a table cannot have.
    """

    writer_schema: str
    reader_schema: str | None = None

    def __post_init__(self) -> None:
        _compiled(self.writer_schema)
        if self.reader_schema is not None:
            _compiled(self.reader_schema)

    @property
    def type(self) -> Any:
        """The struct type of the rows."""
        read = self._read()
        return read.column.type if read.is_record else pa.struct([("value", read.column.type)])

    def _read(self) -> _Compiled:
        return _compiled(self.writer_schema if self.reader_schema is None else self.reader_schema)

    def decode(self, values: Any) -> Decoded:
        """Return a row for each value of a BinaryArray."""
        read = self._read()
        parse = _reader(self.writer_schema, self.reader_schema)
        convert = read.column.convert
        rows: list[Any] = []
        errors: dict[int, str] = {}
        for index, value in enumerate(values.to_pylist()):
            row = None
            if value is not None:
                try:
                    row = parse(value)
                    if convert is not None and row is not None:
                        row = convert(row)
                    if not read.is_record:
                        row = {"value": row}
                except _REFUSALS as error:
                    row, errors[index] = None, f"not Avro of this schema: {_reason(error)}"
                except RecursionError:
                    row, errors[index] = None, "nested too deep"
            rows.append(row)
        return decoded_rows(rows, errors, self.type)


def _reason(error: Exception) -> str:
    return shown(str(error)) if str(error) else "it ends too early"


@lru_cache(maxsize=256)
def _reader(writer_schema: str, reader_schema: str | None) -> Callable[[bytes], Any]:
    """Return a function from the bytes of one value to what fastavro makes of them."""
    from fastavro import schemaless_reader
    from fastavro.read import SchemaResolutionError

    writer = _compiled(writer_schema).schema
    read = _compiled(writer_schema if reader_schema is None else reader_schema)
    reader = None if reader_schema is None else read.schema

    def parse(value: bytes) -> Any:
        stream = io.BytesIO(value)
        try:
            row = schemaless_reader(stream, writer, reader, **read.names)
        except SchemaResolutionError as error:
            raise ValueError(str(error)) from None
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over")
        return row

    return parse


@lru_cache(maxsize=256)
def _compiled(text: str) -> _Compiled:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the Avro schema is not JSON: {error}") from None
    named: dict[str, Any] = {}
    try:
        schema = parse_schema(given, named)
    except KeyError as error:
        raise ValueError(f"no Avro schema: {shown(str(error))} is missing") from None
    except UnknownType as error:
        raise ValueError(f"no Avro schema: {shown(repr(error.name))} is not a type") from None
    except (SchemaParseException, TypeError) as error:
        raise ValueError(f"no Avro schema: {shown(str(error))}") from None
    column = avro_column(schema, named)
    is_record = isinstance(schema, dict) and schema["type"] in ("record", "error")
    names = dict.fromkeys(_NAMING, True) if _has_ambiguous_union(schema) else {}
    return _Compiled(schema, column, is_record, names)


def _has_ambiguous_union(schema: Any) -> bool:
    """Return whether a union has several named members; fastavro takes longer to name them."""
    if isinstance(schema, str):
        return False
    if isinstance(schema, list):
        named = [field for field in schema if member_name(field) not in UNNAMED]
        return len(named) > 1 or any(map(_has_ambiguous_union, schema))
    inner = [field["type"] for field in schema.get("fields", ())]
    inner += [schema[key] for key in ("type", "items", "values") if key in schema]
    return any(map(_has_ambiguous_union, inner))
