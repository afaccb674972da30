"""Options that decode keys and values: what they mean, and what the sources return with them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from log_directory_files import ReplicaWriter, format_directory
from schema_registry import running_registry
from test_schema_avro import encoded, record
from test_schema_protobuf import DESCRIPTORS, Flight
from wire_broker import WireBroker

from spindle.common.ids import TopicPartition
from spindle.pipeline.brokers.options import broker_read_options
from spindle.pipeline.brokers.planning import plan_tasks
from spindle.pipeline.brokers.reading import read_ranges
from spindle.pipeline.schemas import AvroDecoder, ConfluentAvroDecoder, ConfluentDecoder
from spindle.pipeline.schemas.options import row_decoding
from spindle.pipeline.schemas.rows import BadRecord
from spindle.pipeline.segments.failover import read_settings
from spindle.pipeline.segments.options import parse_segment_options
from spindle.pipeline.segments.partitions import readable_partitions
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.pipeline.segments.ranges import range_of, resolve_ranges
from spindle.pipeline.segments.reader import read_ranges as read_segments
from spindle.pipeline.streaming.reader import BrokerStreamReader
from spindle.protocol.records.builder import SimpleRecord, build_batch

FLIGHT = record(("id", "int"))
JSON = {"valueFormat": "json", "valueSchema": "id INT, s STRUCT<x: INT>"}
AVRO = {"valueFormat": "avro"}


def batch_of(*values: bytes | None) -> pa.RecordBatch:
    columns = [pa.array(values, pa.binary()), pa.array(range(len(values)), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, ["value", "offset"])


def rows(options: dict[str, str], *values: bytes | None) -> list[dict[str, Any]]:
    decoded = row_decoding(options).decoded([batch_of(*values)], TopicPartition("t", 0))
    from_batches = pa.Table.from_batches(decoded)
    assert from_batches.schema == row_decoding(options).schema(("value", "offset"))
    return list(from_batches.to_pylist())


def test_fields_stand_in_the_place_of_the_value() -> None:
    value = b'{"id": 1, "s": {"x": 2}}'
    assert rows(JSON, value, None) == [
        {"id": 1, "s": {"x": 2}, "offset": 0},
        {"id": None, "s": None, "offset": 1},
    ]
    assert rows({**JSON, "valueLayout": "struct"}, value) == [
        {"value": {"id": 1, "s": {"x": 2}}, "offset": 0}
    ]
    assert row_decoding(JSON).spark_columns(("key", "value")) == (
        "`key` binary, `id` int, `s` struct<`x`:int>"
    )


def test_a_bad_record_fails_the_read_or_is_kept_with_its_reason() -> None:
    with pytest.raises(
        BadRecord, match=r't-0 offset 1 cannot be decoded: value: id: "x" is not an int'
    ):
        rows(JSON, b'{"id": 1}', b'{"id": "x"}')
    kept = rows({**JSON, "badRecords": "permissive"}, b'{"id": 1}', b'{"id": "x"}', None)
    empty = {"id": None, "s": None, "value_error": None, "value_raw": None}
    assert kept == [
        {**empty, "id": 1, "offset": 0},
        {
            **empty,
            "offset": 1,
            "value_error": 'id: "x" is not an integer',
            "value_raw": b'{"id": "x"}',
        },
        {**empty, "offset": 2},
    ]


def test_every_format_is_chosen_by_options(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text(json.dumps(FLIGHT))
    (tmp_path / "set").write_bytes(DESCRIPTORS)
    avro = {"valueFormat": "avro", "valueSchemaFile": f"{tmp_path}/schema"}
    assert rows(avro, encoded(FLIGHT, {"id": 5})) == [{"id": 5, "offset": 0}]
    newer = {**avro, "valueReaderSchema": json.dumps(record(("id", "long")))}
    assert row_decoding(newer).spark_columns(("value",)) == "`id` bigint"
    proto = {
        "valueFormat": "protobuf",
        "valueSchemaFile": f"{tmp_path}/set",
        "valueMessage": "air.Flight",
    }
    assert rows(proto, Flight(id=9).SerializeToString())[0]["id"] == 9
    schema = {"properties": {"a": {"type": "integer"}}}
    both = row_decoding({"keyFormat": "json", "keySchema": json.dumps(schema), **JSON})
    assert both.spark_columns(("offset", "value", "key")) == (
        "`offset` bigint, `id` int, `s` struct<`x`:int>, `a` bigint"
    )


def test_the_registry_gives_the_newest_schema_of_the_topic() -> None:
    with running_registry() as registry:
        registry.login = "ann:secret"
        for subject, text, kind in [
            ("t-value", json.dumps(FLIGHT), "AVRO"),
            ("t-key", '{"properties": {"k": {"type": "string"}}}', "JSON"),
        ]:
            answer = {"schema": text, "schemaType": kind}
            registry.answers[f"/subjects/{subject}/versions/latest"] = answer
        options = {
            "subscribe": "t",
            "schemaRegistry.url": registry.settings.url,
            "schemaRegistry.user": "ann",
            "schemaRegistry.password": "secret",
            "valueFormat": "avro",
            "keyFormat": "json",
        }
        decoding = row_decoding(options)
        assert decoding.spark_columns(("key", "value")) == "`k` string, `id` int"
        key, value = decoding.parts
        assert isinstance(key.decoder, ConfluentDecoder)
        assert isinstance(value.decoder, ConfluentAvroDecoder)
        assert "secret" not in repr(decoding)
        assert not isinstance(value.decoder, AvroDecoder)
        with pytest.raises(ValueError, match="'t-value' is AVRO, not JSON"):
            row_decoding({**options, "valueFormat": "json"})
        with pytest.raises(ValueError, match="valueSubject is missing"):
            row_decoding({**options, "subscribe": "t,u", "keySubject": "t-key"})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"valueFormat": "xml"}, "option valueFormat: 'xml', want json, avro or protobuf"),
        ({"valueFormat": "json"}, "option valueSchema is missing for valueFormat=json"),
        ({"valueFormat": "avro"}, "option valueSchema is missing"),
        ({"valueFormat": "protobuf", "valueMessage": "m"}, "valueSchemaFile is missing"),
        ({"valueSchema": "id INT"}, "option valueSchema has no use without valueFormat"),
        ({"badRecords": "fail"}, "option badRecords has no use without"),
        ({**JSON, "badRecords": "skip"}, "option badRecords: 'skip'"),
        ({**JSON, "valueLayout": "flat"}, "option valueLayout: 'flat'"),
        ({**JSON, "valueMessage": "m"}, "option valueMessage has no use with valueFormat=json"),
        ({**JSON, "valueSchema": "id number"}, "option valueSchema: .*'number' is not a type"),
        ({**AVRO, "valueSchema": "{}"}, "option valueSchema: no Avro schema: 'type' is missing"),
        (
            {**AVRO, "valueSchema": '"long"', "valueReaderSchema": '"lang"'},
            "option valueReaderSchema: no Avro schema: 'lang' is not a type",
        ),
        ({**JSON, "valueSchema": "{"}, "the JSON schema is not JSON"),
        ({**JSON, "valueSchemaFile": "/x"}, "want one of valueSchema and valueSchemaFile"),
        ({"valueFormat": "json", "valueSchemaFile": "/x/y"}, "option valueSchemaFile: .*No such"),
        ({**JSON, "schemaRegistry.user": "a"}, "has no use without the url"),
        (
            {**JSON, "schemaRegistry.url": "http://h", "schemaRegistry.timeoutMs": "0"},
            "schemaRegistry.timeoutMs: 0, want 1 to",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        row_decoding(options)


def test_columns_of_one_name_are_refused() -> None:
    decoding = row_decoding({"valueFormat": "json", "valueSchema": "Offset INT"})
    with pytest.raises(ValueError, match=r"two columns have the name 'offset'.*valueLayout=struct"):
        decoding.schema(("value", "offset"))
    with pytest.raises(ValueError, match="valueFormat, but the columns key do not include value"):
        decoding.schema(("key",))


VALUES = [b'{"id": 1}', b"{", None, b'{"id": 4, "s": {"x": 5}}']
EXPECTED = [
    {"id": 1, "s": None, "offset": 0, "value_error": None, "value_raw": None},
    {
        "id": None,
        "s": None,
        "offset": 1,
        "value_error": "not JSON: Expecting property name enclosed in double quotes at character 1",
        "value_raw": b"{",
    },
    {"id": None, "s": None, "offset": 2, "value_error": None, "value_raw": None},
    {"id": 4, "s": {"x": 5}, "offset": 3, "value_error": None, "value_raw": None},
]
READ = {**JSON, "badRecords": "permissive", "subscribe": "t", "columns": "value,offset"}


def records() -> list[SimpleRecord]:
    return [SimpleRecord(None, value, 1_700_000_000_000) for value in VALUES]


def test_a_read_through_brokers_is_decoded() -> None:
    with WireBroker() as broker:
        broker.log("t", 0).append(build_batch(records(), 0))
        options = broker_read_options({**READ, "kafka.bootstrap.servers": broker.address})
        (ranges,) = plan_tasks(options)
        from_batches = pa.Table.from_batches(read_ranges(options, ranges))
    assert from_batches.to_pylist() == EXPECTED


def test_a_stream_is_decoded() -> None:
    with WireBroker() as broker:
        broker.log("t", 0).append(build_batch(records(), 0))
        reader = BrokerStreamReader(
            {**READ, "kafka.bootstrap.servers": broker.address, "startingOffsets": "earliest"}
        )
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    assert pa.Table.from_batches(batches).to_pylist() == EXPECTED


def test_a_read_from_log_directories_is_decoded(tmp_path: Path) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), TopicPartition("t", 0))
    writer.append_records(records())
    (writer.directory / ".kafka_cleanshutdown").touch()
    options = parse_segment_options({**READ, "logDirs": f"{tmp_path}/d1"})
    resolved = resolve_ranges(options, readable_partitions(options, None), PushedFilters())
    ranges = [range_of(*item) for item in resolved]
    from_batches = pa.Table.from_batches(read_segments(ranges, read_settings(options)))
    assert from_batches.to_pylist() == EXPECTED


def chosen(listed: str, options: dict[str, str], *values: bytes) -> list[dict[str, Any]]:
    """Return the rows of a list of columns."""
    read, decoding = row_decoding(options).choosing(listed)
    assert read is not None
    columns = read.split(",")
    decoded = decoding.decoded([batch_of(*values).select(columns)], TopicPartition("t", 0))
    table = pa.Table.from_batches(decoded)
    assert table.schema == decoding.schema(columns)
    return list(table.to_pylist())


def test_a_list_of_columns_may_name_fields_in_any_order() -> None:
    options = {"valueFormat": "json", "valueSchema": "id INT, `a,b` INT, offset STRING, c INT"}
    value = b'{"id": 1, "a,b": 2, "offset": "x", "c": 3}'
    row = {"c": 3, "offset": 0, "a,b": 2}
    (chosen_row,) = chosen("C, offset, `a,b`", options, value)
    assert (chosen_row, list(chosen_row)) == (row, list(row))
    assert chosen("id", options, value) == [{"id": 1}]
    assert row_decoding(options).choosing("offset,value")[0] == "offset,value"
    with pytest.raises(BadRecord, match="t-0 offset 0 cannot be decoded"):
        chosen("id,offset", options, b"[]")
    kept = chosen("id", {**options, "badRecords": "permissive"}, b"[]")
    assert kept == [{"id": None, "value_error": "[] is not an object", "value_raw": b"[]"}]


@pytest.mark.parametrize(
    ("listed", "complaint"),
    [
        (
            "id,nope",
            "'nope' is neither a column of records nor a field of the key or value; want some",
        ),
        ("id,value", "'value' stands for all fields of the value"),
        ("id,ID", "'id' is named twice"),
    ],
)
def test_a_list_of_columns_that_cannot_be_is_refused(listed: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        broker_read_options(
            {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "columns": listed, **JSON}
        )


def test_fields_are_read_in_the_order_of_the_list_through_brokers() -> None:
    options = broker_read_options(
        {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "columns": "s, key, id", **JSON,
         "includeHeaders": "true"}
    )  # fmt: skip
    assert options.columns == ("key", "value", "headers")
    assert options.decoding.schema(options.columns).names == ["s", "key", "id", "headers"]
