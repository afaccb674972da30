"""Values that are Protobuf messages, by a FileDescriptorSet (`protoc --include_imports -o FILE`).

    int32, int64, uint32, uint64    int, bigint, bigint, decimal(20, 0)
    float, double, bool, string     the same types; `bytes` is binary
    enum                            text: the name, or the number if the schema has no name for it
    message, repeated, map          struct, array, map
    Timestamp, Duration             timestamp; microseconds as bigint
    wrappers (Int32Value, ...)      their value, or null
    Struct, Value, ListValue        JSON text

A field that can tell whether it is set (message, `optional`, member of a `oneof`) is null if it is
not. Any other field has its default value then, because Protobuf does not send it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from spindle.pipeline.schemas.ddl import TIMESTAMP
from spindle.pipeline.schemas.decoding import BadValue, Decoded, decoded_rows, shown

Convert: TypeAlias = Callable[[Any], Any]

_WELL_KNOWN: Final = "google.protobuf."
_JSON_TYPES: Final = ("Struct", "Value", "ListValue")
_WRAPPERS: Final = tuple(
    f"{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class _Column(NamedTuple):
    """An Arrow type; `convert` makes of a Protobuf value one for Arrow, None: it can stay."""

    type: Any
    convert: Convert | None = None


class _Compiled(NamedTuple):
    message_class: Any
    column: _Column


@dataclass(frozen=True)
class ProtobufDecoder:
    """Reads messages named `message` (its complete name) of the serialized `descriptor_set`.

    Raises:
        ValueError: no descriptor set, a message that it does not have, or one that contains itself.
    """

    descriptor_set: bytes
    message: str

    def __post_init__(self) -> None:
        _compiled(self.descriptor_set, self.message)

    def __repr__(self) -> str:
        return f"ProtobufDecoder({self.message!r})"

    @property
    def type(self) -> Any:
        """The struct type of the rows."""
        return _compiled(self.descriptor_set, self.message).column.type

    def decode(self, values: Any) -> Decoded:
        """Return a row for each value of a BinaryArray."""
        from google.protobuf.message import DecodeError

        message_class, (kind, convert) = _compiled(self.descriptor_set, self.message)
        assert convert is not None
        rows: list[Any] = []
        errors: dict[int, str] = {}
        for index, value in enumerate(values.to_pylist()):
            row = None
            if value is not None:
                try:
                    row = convert(message_class.FromString(value))
                except DecodeError:
                    errors[index] = f"not a Protobuf message {self.message}"
                except (BadValue, ValueError, OverflowError) as error:
                    errors[index] = shown(str(error))
                except RecursionError:
                    errors[index] = "nested too deep"
            rows.append(row)
        return decoded_rows(rows, errors, kind)

    def message_indexes(self) -> tuple[int, ...]:
        """Return the place of the message in its file: an index for each level of nesting."""
        descriptor = _compiled(self.descriptor_set, self.message).message_class.DESCRIPTOR
        indexes: list[int] = []
        while descriptor is not None:
            parent = descriptor.containing_type
            if parent is None:
                siblings = list(descriptor.file.message_types_by_name.values())
            else:
                siblings = list(parent.nested_types)
            indexes.insert(
                0, [sibling.full_name for sibling in siblings].index(descriptor.full_name)
            )
            descriptor = parent
        return tuple(indexes)


@lru_cache(maxsize=64)
def _compiled(descriptor_set: bytes, message: str) -> _Compiled:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
    except (DecodeError, TypeError, KeyError) as error:
        raise ValueError(
            f"no usable FileDescriptorSet ({shown(str(error))}); make it with "
            "protoc --include_imports --descriptor_set_out=FILE"
        ) from None
    try:
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError:
        names = sorted(
            f"{file.package}.{message_type.name}".lstrip(".")
            for file in files.file
            for message_type in file.message_type
        )
        raise ValueError(
            f"the descriptor set has no message {message!r}, but {shown(', '.join(names))}"
        ) from None
    return _Compiled(message_factory.GetMessageClass(descriptor), _message(descriptor, ()))


def _message(descriptor: Any, inside: tuple[str, ...]) -> _Column:
    name = descriptor.full_name
    if name.startswith(_WELL_KNOWN):
        known = _well_known(name.removeprefix(_WELL_KNOWN), descriptor)
        if known is not None:
            return known
    if name in inside:
        raise ValueError(f"Protobuf: the message {name} contains itself; a table cannot have it")
    columns = [(field, _field(field, (*inside, name))) for field in descriptor.fields]
    plain = [(field.name, field.has_presence, column.convert) for field, column in columns]

    def convert(message: Any) -> dict[str, Any]:
        row = {}
        for name, has_presence, function in plain:
            if has_presence and not message.HasField(name):
                continue
            value = getattr(message, name)
            row[name] = value if function is None else function(value)
        return row

    return _Column(pa.struct([(field.name, column.type) for field, column in columns]), convert)


def _field(field: Any, inside: tuple[str, ...]) -> _Column:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return _map(entry, inside)
    column = _single(field, inside)
    if not field.is_repeated:
        return column
    kind, convert = column
    if convert is None:
        return _Column(pa.list_(kind), list)
    return _Column(pa.list_(kind), lambda items: [convert(column) for column in items])


def _map(entry: Any, inside: tuple[str, ...]) -> _Column:
    key = _single(entry.fields_by_name["key"], inside)
    kind, convert = _single(entry.fields_by_name["value"], inside)
    if convert is None:
        return _Column(pa.map_(key.type, kind), lambda pairs: list(pairs.items()))
    return _Column(
        pa.map_(key.type, kind), lambda pairs: [(k, convert(v)) for k, v in pairs.items()]
    )


def _single(field: Any, inside: tuple[str, ...]) -> _Column:
    if field.message_type is not None:
        return _message(field.message_type, inside)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return _Column(pa.string(), lambda number: names.get(number, str(number)))
    types = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_BOOL: pa.bool_(),
    }
    if field.cpp_type in types:
        return _Column(types[field.cpp_type])
    return _Column(pa.binary() if field.type == field.TYPE_BYTES else pa.string())


def _well_known(name: str, descriptor: Any) -> _Column | None:
    if name == "Timestamp":
        return _Column(TIMESTAMP, lambda time: time.seconds * 1_000_000 + time.nanos // 1000)
    if name == "Duration":
        return _Column(pa.int64(), lambda time: time.seconds * 1_000_000 + time.nanos // 1000)
    if name in _WRAPPERS:
        kind, _ = _single(descriptor.fields_by_name["value"], ())
        return _Column(kind, lambda wrapper: wrapper.value)
    if name in _JSON_TYPES:
        return _Column(pa.string(), _json_text)
    return None


def _json_text(message: Any) -> str:
    from google.protobuf import json_format

    try:
        return str(json_format.MessageToJson(message, indent=None))
    except json_format.SerializeToJsonError as error:
        raise BadValue(str(error)) from None
