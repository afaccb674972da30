"""Avro values as typed columns, compared with what fastavro wrote."""

import io
import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.pipeline.schemas import AvroDecoder, Decoded, ddl_columns, ddl_type

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "seats", "type": ["null", "int"], "default": None},
        {"name": "carrier", "type": "string"},
        {"name": "ratio", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "ok", "type": "boolean"},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {
            "name": "plane",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Plane",
                    "fields": [{"name": "last", "type": "State"}, {"name": "n", "type": "int"}],
                },
            ],
        },
    ],
}
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "seats": st.none() | st.integers(-(2**31), 2**31 - 1),
        "carrier": st.text(st.characters(codec="utf-8")),
        "ratio": st.floats(allow_nan=False),
        "raw": st.binary(),
        "ok": st.booleans(),
        "tags": st.lists(st.none() | st.just("a")),
        "counts": st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
        "state": st.sampled_from(["ON", "OFF"]),
        "plane": st.none()
        | st.fixed_dictionaries({"last": st.sampled_from(["ON", "OFF"]), "n": st.just(3)}),
    }
)


def encoded(schema: Any, row: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def decoded(decoder: AvroDecoder, *values: bytes | None) -> Decoded:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    decoded.columns.validate(full=True)
    assert decoded.columns.type == decoder.type
    assert len(decoded.columns) == len(values)
    return decoded


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": t} for n, t in fields],
    }


def one_row(schema: Any, row: dict[str, Any]) -> dict[str, Any]:
    actual = decoded(AvroDecoder(json.dumps(schema)), encoded(schema, row))
    assert actual.errors is None, actual.errors
    fields: dict[str, Any] = actual.columns[0].as_py()
    return fields


@settings(max_examples=40)
@given(st.lists(ROWS, max_size=5))
def test_rows_come_back_as_they_were_written(rows: list[dict[str, Any]]) -> None:
    decoder = pickle.loads(pickle.dumps(AvroDecoder(json.dumps(FLIGHT))))
    batch = decoded(decoder, None, *(encoded(FLIGHT, row) for row in rows))
    assert batch.errors is None
    expected = [row | {"counts": list(row["counts"].items())} for row in rows]
    assert batch.columns.to_pylist() == [None, *expected]


@settings(max_examples=40)
@given(ROWS, st.binary(max_size=60), st.integers(0, 60), st.integers(0, 255))
def test_damaged_bytes_never_fail_a_batch(
    row: dict[str, Any], noise: bytes, place: int, byte: int
) -> None:
    good = encoded(FLIGHT, row)
    damaged = bytearray(good)
    damaged[place % len(good)] = byte
    decoder = AvroDecoder(json.dumps(FLIGHT))
    batch = decoded(decoder, good, noise, bytes(damaged), good[:-1], good + b"\0", good)
    assert batch.columns[0] == batch.columns[5]
    assert batch.columns[0].as_py()["id"] == row["id"]
    assert batch.errors is not None
    assert batch.errors[4].as_py() == "not Avro of this schema: 1 bytes are left over"


def test_logical_types_have_their_columns() -> None:
    def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": name, **more}

    schema = record(
        ("price", logical("bytes", "decimal", precision=9, scale=2)),
        ("day", logical("int", "date")),
        ("at", logical("long", "timestamp-millis")),
        ("micros", logical("long", "timestamp-micros")),
        ("wall", logical("long", "local-timestamp-micros")),
        ("clock", logical("long", "time-micros")),
        ("key", logical("string", "uuid")),
        ("code", {"type": "fixed", "name": "Code", "size": 2}),
        ("odd", logical("long", "unheard-of")),
        ("nothing", "null"),
    )
    row = {
        "price": Decimal("-12.34"),
        "day": date(1969, 12, 31),
        "at": datetime(2020, 1, 1, 10, tzinfo=UTC),
        "micros": datetime(2020, 1, 1, 10, 0, 0, 7, tzinfo=UTC),
        "wall": datetime(2020, 1, 1, 10),
        "clock": time(23, 59, 59, 1),
        "key": UUID(int=7),
        "code": b"ab",
        "odd": 5,
        "nothing": None,
    }
    assert one_row(schema, row) == row | {"clock": "23:59:59.000001", "key": str(UUID(int=7))}
    assert ddl_columns(AvroDecoder(json.dumps(schema)).type) == (
        "`price` decimal(9,2), `day` date, `at` timestamp, `micros` timestamp, "
        "`wall` timestamp_ntz, `clock` string, `key` string, `code` binary, `odd` bigint, "
        "`nothing` string"
    )


def test_unions_become_one_type_or_a_struct_of_their_members() -> None:
    first, second = record(("x", "int"), name="A"), record(("y", "string"), name="B")
    schema = record(
        ("wide", ["int", "null", "long"]),
        ("mixed", ["null", "string", "double", {"type": "array", "items": "int"}]),
        ("records", [first, "null", second]),
    )
    assert AvroDecoder(json.dumps(schema)).type == ddl_type(
        "wide BIGINT, mixed STRUCT<member0: STRING, member1: DOUBLE, member2: ARRAY<INT>>, "
        "records STRUCT<member0: STRUCT<x: INT>, member1: STRUCT<y: STRING>>"
    )
    empty = {"member0": None, "member1": None}
    assert one_row(schema, {"wide": 2**40, "mixed": 1.5, "records": {"y": "b"}}) == {
        "wide": 2**40,
        "mixed": {**empty, "member1": 1.5, "member2": None},
        "records": {**empty, "member1": {"y": "b"}},
    }
    assert one_row(schema, {"wide": None, "mixed": [1], "records": {"x": 3}}) == {
        "wide": None,
        "mixed": {**empty, "member2": [1]},
        "records": {**empty, "member0": {"x": 3}},
    }


def test_old_values_are_read_with_a_newer_schema() -> None:
    old = record(("id", "int"), ("gone", "string"))
    new = record(("id", "long"))
    new["fields"].append({"name": "added", "type": ["null", "string"], "default": None})
    decoder = AvroDecoder(json.dumps(old), json.dumps(new))
    batch = decoded(decoder, encoded(old, {"id": 7, "gone": "x"}), b"")
    assert batch.columns.to_pylist() == [{"id": 7, "added": None}, None]
    impossible = AvroDecoder(json.dumps(old), json.dumps(record(("other", "int"))))
    assert decoded(impossible, encoded(old, {"id": 7, "gone": "x"})).errors is not None


def test_a_value_that_is_no_record_is_one_column() -> None:
    batch = decoded(AvroDecoder('"string"'), encoded("string", "abc"), b"\x02\xff")
    assert batch.columns.to_pylist() == [{"value": "abc"}, None]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("{", "the Avro schema is not JSON"),
        ('{"type": "recrod"}', "no Avro schema"),
        (json.dumps(record(("next", ["null", "R"]))), "the record R contains itself"),
        (json.dumps(record(("a", {"type": "array", "items": "null"}))), "take no bytes"),
        (
            json.dumps(record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 40}))),
            "a decimal of 40 digits",
        ),
        (
            json.dumps(record(("u", ["bytes", {"type": "fixed", "name": "F", "size": 2}]))),
            "cannot be distinguished",
        ),
    ],
)
def test_a_schema_that_a_table_cannot_have_is_refused(schema: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AvroDecoder(schema)
