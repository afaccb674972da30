"""Protobuf messages as typed columns, compared with the messages of the protobuf library."""

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import given
from hypothesis import strategies as st

from spindle.pipeline.schemas import Decoded, ProtobufDecoder, confluent_protobuf, ddl_type

Proto = descriptor_pb2.FieldDescriptorProto


def add_field(message: Any, name: str, kind: int, type_name: str = "", **more: Any) -> None:
    message.field.add(
        name=name,
        number=len(message.field) + 1,
        type=kind,
        type_name=type_name or None,
        label=more.pop("label", Proto.LABEL_OPTIONAL),
        **more,
    )


def flights_file() -> Any:
    """Return the descriptor of `air.Flight`, and of `air.Other.Inner`."""
    file = descriptor_pb2.FileDescriptorProto(name="air.proto", package="air", syntax="proto3")
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
        file.dependency.append(module.DESCRIPTOR.name)
    flight = file.message_type.add(name="Flight")
    for name, kind in [
        ("id", Proto.TYPE_INT64),
        ("huge", Proto.TYPE_UINT64),
        ("number", Proto.TYPE_SINT32),
        ("natural", Proto.TYPE_UINT32),
        ("ratio", Proto.TYPE_DOUBLE),
        ("near", Proto.TYPE_FLOAT),
        ("ok", Proto.TYPE_BOOL),
        ("carrier", Proto.TYPE_STRING),
        ("raw", Proto.TYPE_BYTES),
    ]:
        add_field(flight, name, kind)
    state = file.enum_type.add(name="State")
    state.value.add(name="OFF", number=0)
    state.value.add(name="ON", number=1)
    add_field(flight, "state", Proto.TYPE_ENUM, ".air.State")
    add_field(flight, "tags", Proto.TYPE_STRING, label=Proto.LABEL_REPEATED)
    plane = flight.nested_type.add(name="Plane")
    add_field(plane, "seats", Proto.TYPE_INT32, proto3_optional=True, oneof_index=0)
    plane.oneof_decl.add(name="_seats")
    add_field(flight, "plane", Proto.TYPE_MESSAGE, ".air.Flight.Plane")
    add_field(flight, "planes", Proto.TYPE_MESSAGE, ".air.Flight.Plane", label=Proto.LABEL_REPEATED)
    entry = flight.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add_field(entry, "key", Proto.TYPE_STRING)
    add_field(entry, "value", Proto.TYPE_INT32)
    add_field(
        flight, "counts", Proto.TYPE_MESSAGE, ".air.Flight.CountsEntry", label=Proto.LABEL_REPEATED
    )
    for name, known in [
        ("at", "Timestamp"),
        ("took", "Duration"),
        ("maybe", "Int32Value"),
        ("more", "Struct"),
    ]:
        add_field(flight, name, Proto.TYPE_MESSAGE, f".google.protobuf.{known}")
    other = file.message_type.add(name="Other")
    inner = other.nested_type.add(name="Inner")
    add_field(inner, "x", Proto.TYPE_INT32)
    node = file.message_type.add(name="Node")
    add_field(node, "next", Proto.TYPE_MESSAGE, ".air.Node")
    return file


def descriptor_set() -> bytes:
    descriptors = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2):
        module.DESCRIPTOR.CopyToProto(descriptors.file.add())
    descriptors.file.append(flights_file())
    return bytes(descriptors.SerializeToString())


DESCRIPTORS = descriptor_set()
DECODER = ProtobufDecoder(DESCRIPTORS, "air.Flight")


def flight_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS).file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("air.Flight"))


Flight = flight_class()


def decoded(*values: bytes | None) -> Decoded:
    decoded = DECODER.decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    assert decoded.columns.type == DECODER.type
    return decoded


def reasons(decoded: Decoded) -> list[str | None]:
    """Return a reason or None for each row of a batch with a bad row."""
    assert decoded.errors is not None
    return list(decoded.errors.to_pylist())


def test_every_type_has_its_column() -> None:
    assert DECODER.type == ddl_type(
        "id BIGINT, huge DECIMAL(20, 0), number INT, natural BIGINT, ratio DOUBLE, near FLOAT, "
        "ok BOOLEAN, carrier STRING, raw BINARY, state STRING, tags ARRAY<STRING>, "
        "plane STRUCT<seats: INT>, planes ARRAY<STRUCT<seats: INT>>, counts MAP<STRING, INT>, "
        "at TIMESTAMP, took BIGINT, maybe INT, more STRING"
    )
    message = Flight(
        id=-1, huge=2**64 - 1, number=-5, natural=2**32 - 1, ratio=0.1, near=0.5, ok=True,
        carrier="ü", raw=b"\0", state=1, tags=["a", ""], plane={}, planes=[{"seats": 0}, {}],
        counts={"a": 1}, at={"seconds": 1, "nanos": 1500}, took={"seconds": 2},
        maybe={"value": 0}, more={"a": [1, None]},
    )  # fmt: skip
    row = decoded(message.SerializeToString()).columns[0].as_py()
    assert row == {
        "id": -1, "huge": Decimal(2**64 - 1), "number": -5, "natural": 2**32 - 1, "ratio": 0.1,
        "near": 0.5, "ok": True, "carrier": "ü", "raw": b"\0", "state": "ON", "tags": ["a", ""],
        "plane": {"seats": None}, "planes": [{"seats": 0}, {"seats": None}],
        "counts": [("a", 1)], "at": datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC),
        "took": 2_000_000, "maybe": 0, "more": '{"a": [1.0, null]}',
    }  # fmt: skip


def test_fields_that_are_not_set_are_null_or_have_their_default() -> None:
    row = decoded(b"", None).columns.to_pylist()
    assert row[1] is None
    nulls = {name for name, value in row[0].items() if value is None}
    assert nulls == {"plane", "at", "took", "maybe", "more"}
    assert (row[0]["id"], row[0]["carrier"], row[0]["state"], row[0]["tags"]) == (0, "", "OFF", [])


def test_an_unknown_enum_number_is_its_text() -> None:
    assert decoded(Flight(state=7).SerializeToString()).columns[0].as_py()["state"] == "7"


@given(st.binary(max_size=40), st.integers(0, 100), st.integers(0, 255), st.text())
def test_damaged_bytes_never_fail_a_batch(noise: bytes, place: int, byte: int, text: str) -> None:
    text = text.encode(errors="replace").decode()
    good = Flight(id=7, carrier=text, at={"seconds": 9}, tags=["x"]).SerializeToString()
    damaged = bytearray(good)
    damaged[place % len(good)] = byte
    batch = decoded(good, noise, bytes(damaged), b"\x0a\xff", good)
    assert batch.columns[0] == batch.columns[4]
    assert batch.columns[0].as_py()["carrier"] == text
    assert reasons(batch)[3] == "not a Protobuf message air.Flight"


def test_a_time_beyond_the_column_is_a_bad_value() -> None:
    batch = decoded(Flight(at={"seconds": 2**62}).SerializeToString(), b"")
    assert batch.columns[0].as_py() is None
    bad, good = reasons(batch)
    assert bad is not None
    assert "does not fit its column" in bad
    assert good is None


def test_a_decoder_is_picklable_and_names_what_is_wrong_with_a_schema() -> None:
    assert pickle.loads(pickle.dumps(DECODER)) == DECODER
    with pytest.raises(ValueError, match=r"has no message 'air.Fligth', but air.Flight, air.Node"):
        ProtobufDecoder(DESCRIPTORS, "air.Fligth")
    with pytest.raises(ValueError, match="contains itself"):
        ProtobufDecoder(DESCRIPTORS, "air.Node")
    with pytest.raises(ValueError, match="protoc --include_imports"):
        ProtobufDecoder(b"\xff\xff", "air.Flight")


def test_the_message_indexes_of_the_wire_format_are_checked() -> None:
    body = Flight(id=5).SerializeToString()
    head = b"\0\0\0\0\7"
    values = [head + b"\0" + body, head + b"\2\0" + body, head + b"\2\2" + body, None, body]
    decoded = confluent_protobuf(DECODER).decode(pa.array(values, pa.binary()))
    assert [row and row["id"] for row in decoded.columns.to_pylist()] == [5, 5, None, None, None]
    assert reasons(decoded) == [
        None,
        None,
        "the message indexes name another message",
        None,
        "no Confluent wire format: want a zero byte and a schema id in front",
    ]
    inner = ProtobufDecoder(DESCRIPTORS, "air.Other.Inner")
    assert inner.message_indexes() == (1, 0)
    nested = confluent_protobuf(inner).decode(pa.array([head + b"\4\2\0\x08\x09"], pa.binary()))
    assert nested.columns.to_pylist() == [{"x": 9}]
