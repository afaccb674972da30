"""Decoders take any bytes for a column of any type: a bad value never fails a batch."""

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.pipeline.schemas import AvroDecoder, JsonDecoder, ProtobufDecoder, ddl_type

JSON_TYPES = (
    *("BIGINT", "TINYINT", "DOUBLE", "FLOAT", "DECIMAL(10, 2)", "DECIMAL(38, 0)", "BOOLEAN"),
    *("STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<BIGINT>"),
    *("STRUCT<a: BIGINT>", "ARRAY<STRUCT<a: DATE>>", "MAP<STRING, BIGINT>"),
    "MAP<STRING, DECIMAL(5, 1)>",
)
TEXTS = st.text() | st.sampled_from(
    ["\ud800", "a\udfffb", "2020-01-01", "2020-01-01T10:00:00\ud800"]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.just("a") | TEXTS, inner, max_size=3)
    ),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.just("x") | TEXTS, JSON_VALUES, min_size=1, max_size=2)
JSON_BYTES = st.one_of(
    OBJECTS.map(lambda value: json.dumps(value).encode()),
    JSON_VALUES.map(lambda value: json.dumps({"x": value}).encode()),
    JSON_VALUES.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=20).map(lambda noise: b'{"x":' + noise + b"}"),
    st.binary(max_size=20),
)


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


AVRO_TYPES: dict[str, tuple[Any, Any]] = {
    **{kind: (kind, 0) for kind in ("int", "long", "float", "double")},
    "null": ("null", None),
    "boolean": ("boolean", True),
    "string": ("string", "ab"),
    "bytes": ("bytes", b"ab"),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "A"),
    "decimal": (logical("bytes", "decimal", precision=6, scale=2), Decimal("1.23")),
    "fixed decimal": (
        {**logical("fixed", "decimal", precision=9, scale=2), "name": "D", "size": 9},
        Decimal("1.23"),
    ),
    "date": (logical("int", "date"), date(2020, 1, 1)),
    "time-millis": (logical("int", "time-millis"), time(1)),
    "time-micros": (logical("long", "time-micros"), time(1)),
    **{
        kind: (logical("long", kind), datetime(2020, 1, 1, tzinfo=UTC))
        for kind in ("timestamp-millis", "timestamp-micros")
    },
    **{
        kind: (logical("long", kind), datetime(2020, 1, 1))
        for kind in ("local-timestamp-millis", "local-timestamp-micros")
    },
    "uuid": (logical("string", "uuid"), UUID(int=7)),
    "array": ({"type": "array", "items": "long"}, [1, 2]),
    "map": ({"type": "map", "values": ["null", "double"]}, {"a": 1.0}),
    "union": (["null", "string", "double", {"type": "array", "items": "int"}], "ab"),
}


def avro_schema(name: str) -> dict[str, Any]:
    fields = [{"name": "x", "type": AVRO_TYPES[name][0]}, {"name": "y", "type": "string"}]
    return {"type": "record", "name": "R", "fields": fields}


def avro_bytes(name: str) -> bytes:
    out = io.BytesIO()
    row = {"x": AVRO_TYPES[name][1], "y": "end"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro_schema(name)), row)
    return out.getvalue()


def protobuf_decoder(syntax: str) -> ProtobufDecoder:
    """Return a decoder of a message with a field of every type, with numbers from 1."""
    descriptors = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, struct_pb2):
        module.DESCRIPTOR.CopyToProto(descriptors.file.add())
    file = descriptors.file.add(name="m.proto", package="m", syntax=syntax)
    file.dependency.extend(item.name for item in descriptors.file[:2])
    field = descriptor_pb2.FieldDescriptorProto
    enum = file.enum_type.add(name="E")
    enum.value.add(name="A", number=0)
    message = file.message_type.add(name="M")
    named = {field.TYPE_ENUM: ".m.E", field.TYPE_MESSAGE: ".google.protobuf.Timestamp"}
    kinds = [kind for kind in field.Type.values() if kind != field.TYPE_GROUP]
    for label in (field.LABEL_OPTIONAL, field.LABEL_REPEATED):
        for kind in kinds:
            number = len(message.field) + 1
            message.field.add(
                name=f"f{number}", number=number, type=kind, label=label, type_name=named.get(kind)
            )
    message.field.add(
        name="json",
        number=PROTOBUF_FIELDS,
        type=field.TYPE_MESSAGE,
        label=field.LABEL_OPTIONAL,
        type_name=".google.protobuf.Value",
    )
    return ProtobufDecoder(descriptors.SerializeToString(), "m.M")


PROTOBUF_FIELDS = 60
PROTOBUF_DECODERS = {syntax: protobuf_decoder(syntax) for syntax in ("proto2", "proto3")}
DELIMITED = 2


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def protobuf_field(number: int, wire_type: int, payload: bytes) -> bytes:
    head = varint(number << 3 | wire_type)
    return head + varint(len(payload)) + payload if wire_type == DELIMITED else head + payload


PROTOBUF_BYTES = st.binary(max_size=30) | st.lists(
    st.builds(
        protobuf_field, st.integers(1, PROTOBUF_FIELDS), st.integers(0, 5), st.binary(max_size=10)
    ),
    max_size=3,
).map(b"".join)


def check_rows(decoder: Any, values: list[bytes]) -> None:
    """Decode values and require of each either a row or a reason."""
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    assert decoded.columns.type == decoder.type
    errors = [None] * len(values) if decoded.errors is None else decoded.errors.to_pylist()
    for valid, error in zip(decoded.columns.is_valid().to_pylist(), errors, strict=True):
        assert valid is (error is None)
    if decoded.errors is not None:
        decoded.errors.validate(full=True)


@settings(max_examples=60)
@given(st.sampled_from(JSON_TYPES), st.booleans(), st.lists(JSON_BYTES, min_size=1, max_size=4))
def test_json_of_any_bytes_has_a_row_or_a_reason(
    kind: str, refuse_unknown: bool, values: list[bytes]
) -> None:
    check_rows(JsonDecoder(ddl_type(f"x {kind}"), refuse_unknown), values)


@pytest.mark.parametrize("kind", JSON_TYPES)
def test_half_of_a_surrogate_pair_is_a_bad_value_of_every_type(kind: str) -> None:
    decoder = JsonDecoder(ddl_type(f"x {kind}"))
    good = b'{"x":null}'
    for text in (rb'{"x":"\ud800"}', rb'"\ud800"', rb'{"x":{"\ud800":1}}', rb'{"x":["\udfff"]}'):
        check_rows(decoder, [good, text, good])
    assert decoder.decode(pa.array([good, rb'{"x":"\ud800"}'])).columns.is_null().to_pylist() == [
        False,
        True,
    ]


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(AVRO_TYPES)),
    st.binary(max_size=40),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4),
)
def test_avro_of_any_bytes_has_a_row_or_a_reason(
    name: str, noise: bytes, changes: list[tuple[int, int]]
) -> None:
    good = avro_bytes(name)
    damaged = bytearray(good)
    for place, byte in changes:
        damaged[place % len(good)] = byte
    check_rows(AvroDecoder(json.dumps(avro_schema(name))), [good, noise, bytes(damaged), good])


@settings(max_examples=60)
@given(st.sampled_from(sorted(PROTOBUF_DECODERS)), st.lists(PROTOBUF_BYTES, max_size=4))
def test_protobuf_of_any_bytes_has_a_row_or_a_reason(syntax: str, values: list[bytes]) -> None:
    check_rows(PROTOBUF_DECODERS[syntax], values)
