"""Confluent's wire format: values of several schema ids, and the registry that knows them."""

import json
import pickle
import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest
from schema_registry import TestRegistry, running_registry
from test_schema_avro import encoded, record

from spindle.pipeline.schemas import (
    ConfluentAvroDecoder,
    ConfluentDecoder,
    JsonDecoder,
    RegistryError,
    RegistrySettings,
    ddl_type,
    newest_schema,
)
from spindle.pipeline.schemas.registry import SchemaNotFound, schema_by_id

OLD = record(("id", "int"))
NEW = record(("id", "long"))
NEW["fields"].append({"name": "name", "type": ["null", "string"], "default": None})


@pytest.fixture
def registry() -> Iterator[TestRegistry]:
    with running_registry() as running:
        running.register(1, json.dumps(OLD))
        running.register(2, json.dumps(NEW))
        running.register(3, "{}", "JSON")
        running.register(4, json.dumps(record(("other", "string"))))
        running.answers["/subjects/flights-value/versions/latest"] = {"schema": json.dumps(NEW)}
        yield running


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + struct.pack(">i", schema_id) + payload


def test_values_of_several_schemas_become_rows_of_the_newest(registry: TestRegistry) -> None:
    newest = newest_schema(registry.settings, "flights-value")
    decoder = pickle.loads(pickle.dumps(ConfluentAvroDecoder(registry.settings, newest.text)))
    old, new = encoded(OLD, {"id": 1}), encoded(NEW, {"id": 2, "name": "b"})
    values = [framed(2, new), framed(1, old), None, framed(9, old), framed(2, new), b"\1", b""]
    values += [framed(3, b"{}"), framed(1, b"\xff"), framed(4, b"\2a"), framed(1, old)]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    first, second = {"id": 1, "name": None}, {"id": 2, "name": "b"}
    assert decoded.columns.to_pylist() == [
        *(second, first, None, None, second, None, None),
        *(None, None, None, first),
    ]
    no_header = "no Confluent wire format: want a zero byte and a schema id in front"
    reasons = decoded.errors.to_pylist()
    assert [reasons[index] for index in (0, 1, 2, 4, 10)] == [None] * 5
    assert reasons[3] == "the registry has no schema with the id 9"
    assert reasons[5:7] == [no_header] * 2
    assert reasons[7] == "schema 3 is of type JSON, not AVRO"
    assert reasons[8].startswith("not Avro of this schema")
    assert reasons[9].startswith("not Avro of this schema")
    empty = decoder.decode(pa.array([], pa.binary()))
    assert (len(empty.columns), empty.errors) == (0, None)


def test_a_schema_is_asked_for_once(registry: TestRegistry) -> None:
    for _ in range(3):
        assert schema_by_id(registry.settings, 1).text == json.dumps(OLD)
    assert registry.requests == ["/schemas/ids/1"]


def test_a_registry_that_gives_no_answer_makes_no_value_bad(registry: TestRegistry) -> None:
    decoder = ConfluentAvroDecoder(registry.settings, json.dumps(NEW))
    for answer in (500, 302, b"no json", {"schema": 1}, {"schema": "{}", "references": [{}]}):
        registry.answers["/schemas/ids/7"] = answer
        with pytest.raises(RegistryError):
            decoder.decode(pa.array([framed(7, b"\2")], pa.binary()))
    closed = ConfluentAvroDecoder(RegistrySettings("http://127.0.0.1:1"), json.dumps(NEW))
    with pytest.raises(RegistryError, match=r"127\.0\.0\.1:1"):
        closed.decode(pa.array([framed(1, b"\2")], pa.binary()))


def test_a_password_is_sent_and_not_shown(registry: TestRegistry) -> None:
    registry.login = "ann:secret word"
    settings = registry.settings
    assert newest_schema(settings, "flights-value").kind == "AVRO"
    assert "secret" not in repr(ConfluentAvroDecoder(settings, json.dumps(NEW)))
    with pytest.raises(RegistryError, match="HTTP status 401"):
        newest_schema(RegistrySettings(settings.url), "flights-value")
    with pytest.raises(SchemaNotFound, match="HTTP status 404"):
        newest_schema(settings, "a/b c")
    assert registry.requests[-1] == "/subjects/a%2Fb%20c/versions/latest"


@pytest.mark.parametrize("url", ["localhost:8081", "file:///etc/passwd", "http://a:b@host"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="schema registry"):
        RegistrySettings(url)


def test_json_values_are_read_behind_their_header() -> None:
    values = [framed(5, b'{"a": 1}'), b'{"a": 2}', None, framed(6, b"{")]
    decoded = ConfluentDecoder(JsonDecoder(ddl_type("a INT"))).decode(pa.array(values, pa.binary()))
    assert decoded.columns.to_pylist() == [{"a": 1}, None, None, None]
    assert decoded.errors is not None
    reasons = decoded.errors.to_pylist()
    assert reasons[0] is None
    assert reasons[1].startswith("no Confluent wire format")
    assert reasons[2] is None
    assert reasons[3].startswith("not JSON")
