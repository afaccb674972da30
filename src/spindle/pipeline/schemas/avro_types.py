"""Avro schemas as Arrow types, and the values that fastavro reads as rows for Arrow.

int, long, float, double, boolean, string, bytes   the same types; `fixed` is binary
record, array, map                                 struct, list, map with text keys
enum, uuid, time of day                            text
decimal, date, timestamp, local timestamp          the same types, times in microseconds
a union of null and one type                       that type: every field is nullable
a union of int and long, or of float and double    the wider one
any other union                                    a struct of `member0`, `member1`, ..., all
                                                   null but one, as Spark's from_avro has it
"""

import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from spindle.pipeline.schemas.ddl import TIMESTAMP, TIMESTAMP_NTZ

Convert: TypeAlias = Callable[[Any], Any]

_MAX_PRECISION: Final = 38


@dataclass(frozen=True, slots=True)
class AvroColumn:
    """An Arrow type for an Avro type.

    `python_type` is the class of the values that fastavro reads. `convert` makes of such a value
    one for Arrow; None if the value can stay as it is. `can_be_empty` tells that a value may take
    no byte at all.
    """

    type: Any
    python_type: type
    convert: Convert | None = None
    can_be_empty: bool = False


_PRIMITIVES: Final = {
    "null": AvroColumn(pa.null(), type(None), can_be_empty=True),
    "boolean": AvroColumn(pa.bool_(), bool),
    "int": AvroColumn(pa.int32(), int),
    "long": AvroColumn(pa.int64(), int),
    "float": AvroColumn(pa.float32(), float),
    "double": AvroColumn(pa.float64(), float),
    "bytes": AvroColumn(pa.binary(), bytes),
    "string": AvroColumn(pa.string(), str),
}


def _iso(value: datetime.time) -> str:
    return value.isoformat("microseconds")


_LOGICAL: Final = {
    ("int", "date"): AvroColumn(pa.date32(), datetime.date),
    ("int", "time-millis"): AvroColumn(pa.string(), datetime.time, _iso),
    ("long", "time-micros"): AvroColumn(pa.string(), datetime.time, _iso),
    ("long", "timestamp-millis"): AvroColumn(TIMESTAMP, datetime.datetime),
    ("long", "timestamp-micros"): AvroColumn(TIMESTAMP, datetime.datetime),
    ("long", "local-timestamp-millis"): AvroColumn(TIMESTAMP_NTZ, datetime.datetime),
    ("long", "local-timestamp-micros"): AvroColumn(TIMESTAMP_NTZ, datetime.datetime),
    ("string", "uuid"): AvroColumn(pa.string(), uuid.UUID, str),
}


def avro_column(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...] = ()) -> AvroColumn:
    """Return the column of a parsed Avro schema.

    Args:
        schema: As fastavro parses it, so names are complete.
        named: The named types by their complete names.
        inside: The names of the records that enclose this type.

    Raises:
        ValueError: a type that a table cannot have: a record that contains itself, a decimal of
            more than 38 digits, an array whose elements take no bytes (one record of a few bytes
            could have any number of them), or a union whose members cannot be told apart.
    """
    if isinstance(schema, list):
        return _union(schema, named, inside)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        return avro_column(named[schema], named, inside)
    match schema["type"]:
        case "record" | "error":
            return _record(schema, named, inside)
        case "enum":
            return AvroColumn(pa.string(), str)
        case "fixed":
            if schema.get("logicalType") == "decimal":
                return _decimal(schema)
            return AvroColumn(pa.binary(), bytes, can_be_empty=schema["size"] == 0)
        case "array":
            return _array(schema, named, inside)
        case "map":
            return _map(schema, named, inside)
        case "bytes" if schema.get("logicalType") == "decimal":
            return _decimal(schema)
        case str(name) if name in _PRIMITIVES:
            return _LOGICAL.get((name, schema.get("logicalType")), _PRIMITIVES[name])
    return avro_column(schema["type"], named, inside)


def _decimal(schema: Mapping[str, Any]) -> AvroColumn:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision > _MAX_PRECISION:
        raise ValueError(
            f"Avro: a decimal of {precision} digits; a column has at most {_MAX_PRECISION}"
        )
    return AvroColumn(pa.decimal128(precision, scale), decimal.Decimal)


def _record(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> AvroColumn:
    name = schema["name"]
    if name in inside:
        raise ValueError(f"Avro: the record {name} contains itself; a table cannot have it")
    columns = {
        field["name"]: avro_column(field["type"], named, (*inside, name))
        for field in schema["fields"]
    }
    converts = [(name, c.convert) for name, c in columns.items() if c.convert is not None]

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        for name, function in converts:
            if row[name] is not None:
                row[name] = function(row[name])
        return row

    kind = pa.struct([(name, _stored(column.type)) for name, column in columns.items()])
    is_empty = all(column.can_be_empty for column in columns.values())
    return AvroColumn(kind, dict, convert if converts else None, is_empty)


def _stored(kind: Any) -> Any:
    """Return the type of a column; one that is always null is a text column."""
    return pa.string() if pa.types.is_null(kind) else kind


def _array(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> AvroColumn:
    element = avro_column(schema["items"], named, inside)
    if element.can_be_empty:
        raise ValueError("Avro: an array whose elements take no bytes; its length has no limit")
    convert = element.convert
    kind = pa.list_(_stored(element.type))
    if convert is None:
        return AvroColumn(kind, list)
    return AvroColumn(
        kind,
        list,
        lambda items: [None if element is None else convert(element) for element in items],
    )


def _map(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...]) -> AvroColumn:
    value = avro_column(schema["values"], named, inside)
    convert = value.convert

    def pairs(values: dict[str, Any]) -> list[tuple[str, Any]]:
        if convert is None:
            return list(values.items())
        return [(key, None if v is None else convert(v)) for key, v in values.items()]

    return AvroColumn(pa.map_(pa.string(), _stored(value.type)), dict, pairs)


def _union(members: Sequence[Any], named: Mapping[str, Any], inside: tuple[str, ...]) -> AvroColumn:
    columns = [
        (member_name(member), avro_column(member, named, inside))
        for member in members
        if member != "null"
    ]
    if not columns:
        return _PRIMITIVES["null"]
    kinds = [column.type for _, column in columns]
    for pair in ({pa.int32(), pa.int64()}, {pa.float32(), pa.float64()}):
        if set(kinds) == pair:
            return AvroColumn(max(kinds, key=lambda k: k.bit_width), columns[0][1].python_type)
    if len(columns) == 1:
        return columns[0][1]
    return _members(columns)


def _members(columns: Sequence[tuple[str, AvroColumn]]) -> AvroColumn:
    """Return a struct with a field for each member; fastavro names records, enums and fixed.

    It gives (name, value) if the union has several of these, else only the value.
    """
    fields = [(f"member{i}", _stored(column.type)) for i, (_, column) in enumerate(columns)]
    by_name = {name: (f"member{i}", c.convert) for i, (name, c) in enumerate(columns)}
    are_named = sum(name not in UNNAMED for name, _ in columns) > 1
    by_type: dict[type, tuple[str, Convert | None]] = {}
    for name, column in columns:
        if are_named and name not in UNNAMED:
            continue
        if column.python_type in by_type:
            names = ", ".join(name for name, _ in columns)
            raise ValueError(f"Avro: the members of the union [{names}] cannot be told apart")
        by_type[column.python_type] = by_name[name]

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is tuple:
            name, value = value
            member, inner = by_name[name]
        else:
            member, inner = by_type[type(value)]
        return {member: value if inner is None or value is None else inner(value)}

    return AvroColumn(pa.struct(fields), object, convert)


UNNAMED: Final = {*_PRIMITIVES, "array", "map"}


def member_name(schema: Any) -> str:
    """Return the name by which fastavro identifies a member of a union: that of its type."""
    if isinstance(schema, str):
        return schema
    kind = schema["type"]
    return schema["name"] if kind in ("record", "error", "enum", "fixed") else str(kind)
