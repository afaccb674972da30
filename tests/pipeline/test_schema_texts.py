"""Schemas: Spark's text and back, JSON Schema, inference from values, and how they grow."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VarcharType,
)

from spindle.pipeline.schemas import (
    JsonDecoder,
    ddl_columns,
    ddl_type,
    inferred_type,
    json_schema_type,
    with_new_fields,
)
from spindle.pipeline.schemas.ddl import TIMESTAMP, TIMESTAMP_NTZ
from spindle.pipeline.schemas.options import json_type
from spindle.pipeline.schemas.widening import widened

SIMPLE = st.sampled_from(
    [
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        TIMESTAMP,
        TIMESTAMP_NTZ,
        pa.decimal128(38, 6),
    ]
)


def structs(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    names = st.text(min_size=1, max_size=4).filter(
        lambda name: name == name.strip() and "\0" not in name
    )
    named = st.lists(
        st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda pair: pair[0].lower()
    )
    return named.map(pa.struct)


TYPES = st.recursive(
    SIMPLE,
    lambda inner: (
        inner.map(pa.list_)
        | st.tuples(SIMPLE, inner).map(lambda pair: pa.map_(*pair))
        | structs(inner)
    ),
    max_leaves=5,
)


@settings(max_examples=40)
@given(structs(TYPES))
def test_a_type_survives_its_text(kind: pa.DataType) -> None:
    assert ddl_type(ddl_columns(kind)) == kind


def test_a_schema_text_is_read_as_spark_reads_it() -> None:
    kind = ddl_type("ID bigint COMMENT 'it''s, here', `a``b` Struct<x: int>, d decimal, c char")
    assert kind == pa.struct(
        [
            ("ID", pa.int64()),
            ("a`b", pa.struct([("x", pa.int32())])),
            ("d", pa.decimal128(10, 0)),
            ("c", pa.string()),
        ]
    )


def test_a_schema_is_read_in_the_forms_that_pyspark_gives() -> None:
    inner = StructType([StructField("x", DecimalType(10, 2))])
    fields = [
        StructField("id", LongType(), nullable=False, metadata={"comment": "the key"}),
        StructField("größe", ArrayType(inner, containsNull=False)),
        StructField("m", MapType(StringType(), TimestampNTZType())),
        StructField("v", VarcharType(10)),
        StructField("c", CharType(3)),
    ]
    kind = pa.struct(
        [
            ("id", pa.int64()),
            ("größe", pa.list_(pa.struct([("x", pa.decimal128(10, 2))]))),
            ("m", pa.map_(pa.string(), TIMESTAMP_NTZ)),
            ("v", pa.string()),
            ("c", pa.string()),
        ]
    )
    schema = StructType(fields)
    assert json_type(schema.json()) == kind
    assert json_type(schema.simpleString()) == kind
    strange = StructType([StructField("a.b `c`", LongType())])
    assert json_type(strange.json()) == pa.struct([("a.b `c`", pa.int64())])
    assert json_type("`größe` VARCHAR(10), c CHAR(3)") == kind_of_texts("größe", "c")


def kind_of_texts(*names: str) -> pa.DataType:
    return pa.struct([(name, pa.string()) for name in names])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("i INTERVAL DAY TO SECOND", "'interval' is not a type that records can have"),
        (StructType([StructField("i", DayTimeIntervalType())]).json(), "'interval' is not a type"),
        (StructType([]).json(), "want a StructType with fields"),
        ('{"type": "struct", "fields": [{"name": "a"}]}', "is not a field with name and type"),
        ('{"type": "struct", "fields": [{"name": "a", "type": "int x"}]}', "want the end and"),
        ('{"type": "struct", "fields": [{"name": "a", "type": {"type": "udt"}}]}', "is not a type"),
        (
            '{"type": "struct", "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": '
            '"int"}]}',
            "'A' is named twice",
        ),
        ('{"type": "struct", "fields": [{"name": "", "type": "int"}]}', "an empty name"),
        ("`a\0b` INT", r"has the character U\+0000"),
        ('{"properties": {"a\\u0000b": {}}}', r"has the character U\+0000"),
        ('{"properties": {"\\ud800": {}}}', "is not UTF-8"),
        (f"`{'x' * 1001}` INT", "has 1001 bytes, more than 1000"),
        ("v VARCHAR(x)", "want a number"),
    ],
)
def test_a_schema_of_other_forms_is_refused_with_words(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        json_type(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the schema is empty"),
        ("id", "want a type and found the end"),
        ("id number", "'number' is not a type"),
        ("id int, ID string", "'ID' is named twice"),
        ("id int name string", "want ',' and found 'name'"),
        ("a array<int", "want '>' and found the end"),
        ("d decimal(39, 2)", "want 1 <= precision <= 38"),
        ("id int not null", "NOT NULL is not possible"),
        ("a " + "array<" * 60 + "int", "nested more than 50 deep"),
    ],
)
def test_a_wrong_schema_text_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ddl_type(text)


def test_a_json_schema_names_the_columns() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "ratio": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "colour": {"enum": ["red", "green"]},
            "place": {"$ref": "#/$defs/place"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
        "$defs": {"place": {"properties": {"x": {"type": "number"}}}},
    }
    assert json_schema_type(schema) == ddl_type(
        "id BIGINT, ratio DOUBLE, at TIMESTAMP, colour STRING, place STRUCT<x: DOUBLE>, "
        "tags ARRAY<STRING>, counts MAP<STRING, BIGINT>, either STRING"
    )


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "integer"}, "does not describe an object"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "in a circle"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "which it does not have"),
        ({"properties": {"a": {"$ref": "http://x/y"}}}, "another document"),
        ({"properties": {"a": {"type": "integre"}}}, "unknown type 'integre'"),
    ],
)
def test_a_wrong_json_schema_is_refused(schema: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        json_schema_type(schema)


def test_a_schema_is_inferred_from_values() -> None:
    values = [
        b'{"n": 1, "f": 1, "big": 9223372036854775808, "mixed": 1, "empty": {}, "null": null}',
        b'{"f": 1.5, "mixed": {"a": 1}, "list": [], "objects": [{"a": 1}, {"b": true}]}',
        b'{"list": [1, 2.5], "late": "x"}',
        b"no json",
        None,
        b"[1]",
    ]
    assert inferred_type(values) == ddl_type(
        "n BIGINT, f DOUBLE, big STRING, mixed STRING, empty STRING, `null` STRING, "
        "list ARRAY<DOUBLE>, objects ARRAY<STRUCT<a: BIGINT, b: BOOLEAN>>, late STRING"
    )
    with pytest.raises(ValueError, match="none of the sampled values"):
        inferred_type([b"1", None, b"{}"])


def test_an_object_with_a_name_that_is_no_text_does_not_count_for_the_schema() -> None:
    values = [b'{"a": 1}', rb'{"b": 1, "\ud800": 2}', rb'{"c": {"\udfff": 2}}']
    assert inferred_type(values) == ddl_type("a BIGINT")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"b": 1, "Topic": 1}, "the field 'Topic' has the name of another column"),
        ({"b": 1, "": 1}, "a field has an empty name"),
        ({"b": 1, "c": {"x": 1, "X": 1}}, "the names of two fields differ in case only"),
        ({"b": [json.loads("[" * 60 + "]" * 60)]}, "nested more than 40 deep"),
        ({f"f{n}": 1 for n in range(2001)}, "more than 2000 fields"),
        ({"b": [{f"f{n}": 1 for n in range(2000)}]}, "more than 2000 fields"),
    ],
)
def test_an_object_whose_fields_cannot_be_columns_does_not_count(
    value: dict[str, object], reason: str
) -> None:
    text = json.dumps(value).encode()
    assert inferred_type([text, b'{"a": 1}', text], {"topic"}) == ddl_type("a BIGINT")
    assert inferred_type([text], {"topic"}, ddl_type("held INT")) == ddl_type("held INT")
    with pytest.raises(ValueError, match=f"no schema can be inferred: .*: {reason}"):
        inferred_type([text], {"topic"})


def test_the_first_spelling_of_a_name_is_the_column() -> None:
    values = [b'{"id": 1}', b'{"Id": 1, "other": 1}', b'{"HELD": "x", "id": 1.5}']
    assert inferred_type(values, (), ddl_type("held INT")) == ddl_type("held INT, id DOUBLE")


NAMES = st.text(max_size=3) | st.sampled_from(["a", "A", "`", "", "a b", "\n", "\ud800"])


@settings(max_examples=40)
@given(st.lists(st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers())), min_size=1))
def test_every_inferred_schema_has_a_text(rows: list[dict[str, object]]) -> None:
    kind = inferred_type([json.dumps(row).encode() for row in rows], (), ddl_type("held INT"))
    assert ddl_type(ddl_columns(kind)) == kind


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just("x")
NESTED = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), NESTED, min_size=1), min_size=1))
def test_the_inferred_schema_holds_every_sampled_value(rows: list[dict[str, object]]) -> None:
    values = [json.dumps(row).replace("Infinity", "1").encode() for row in rows]
    decoded = JsonDecoder(inferred_type(values), refuse_unknown=True).decode(
        pa.array(values, pa.binary())
    )
    assert decoded.errors is None


def test_types_widen_and_contradictions_become_text() -> None:
    assert widened(pa.int32(), pa.int64()) == pa.int64()
    assert widened(pa.int64(), pa.float32()) == pa.float64()
    assert widened(pa.null(), pa.bool_()) == pa.bool_()
    assert widened(pa.bool_(), pa.int64()) == pa.string()
    assert widened(pa.list_(pa.int32()), pa.list_(pa.float64())) == pa.list_(pa.float64())


def test_a_held_schema_grows_by_new_fields_only() -> None:
    held = ddl_type("a INT, s STRUCT<x: INT>, l ARRAY<STRUCT<y: INT>>")
    newer = ddl_type("b STRING, a BIGINT, s STRUCT<z: INT, x: DOUBLE>, l ARRAY<STRUCT<w: INT>>")
    assert with_new_fields(held, newer) == ddl_type(
        "a INT, s STRUCT<x: INT>, l ARRAY<STRUCT<y: INT>>, b STRING"
    )
