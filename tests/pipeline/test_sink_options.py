"""Options, columns and the stored state of the sink."""

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from wire_broker import WireBroker

from spindle.client.transactions import ProducerIdentity, StoredOffset
from spindle.pipeline.sink.errors import SinkError, SinkReplaced
from spindle.pipeline.sink.options import DeliveryGuarantee, sink_options
from spindle.pipeline.sink.rows import check_columns
from spindle.pipeline.sink.state import (
    BatchDecision,
    QueryState,
    RowsDigest,
    TaskTransaction,
    decode_state,
    encode_state,
)
from spindle.pipeline.sink.writers import stream_writer

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
HEADERS = "array<struct<key:string,value:binary>>"


def test_the_sink_is_exactly_once_by_default() -> None:
    options = sink_options(SERVERS)
    assert options.guarantee is DeliveryGuarantee.EXACTLY_ONCE
    assert (options.topic, options.codec, options.acks) == (None, 0, -1)
    assert options.transaction_timeout_ms == 900_000


def test_names_of_options_may_have_any_case() -> None:
    options = sink_options(
        {**SERVERS, "TOPIC": "T", "DeliveryGuarantee": "at-least-once", "kafka.acks": "1",
         "KAFKA.Compression.Type": "zstd"}
    )  # fmt: skip
    assert (options.topic, options.codec, options.acks) == ("T", 4, 1)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers"),
        ({"deliveryGuarantee": "twice"}, "exactly-once or at-least-once"),
        ({"kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ({"kafka.key.serializer": "x"}, "written as they are"),
        ({"kafka.partitioner.class": "x"}, "column partition"),
        ({"kafka.acks": "0"}, "rows get lost"),
        ({"kafka.acks": "1"}, "transactions want all"),
        ({"kafka.compression.type": "brotli"}, "gzip, snappy, lz4 or zstd"),
        ({"kafka.batch.size": "0"}, "kafka.batch.size: 0, want 1 to"),
        ({"kafka.transaction.timeout.ms": "soon"}, "want an integer"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "want 1 to 5"),
        ({"kafka.enable.idempotence": "false"}, "idempotently"),
        ({"writeId": " "}, "writeId is empty"),
        ({"writeId": "x", "deliveryGuarantee": "at-least-once"}, "wants deliveryGuarantee"),
        ({"missingState": "maybe"}, "fail or write"),
    ],
)
def test_a_bad_option_is_named(option: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sink_options({**SERVERS, **option})


def test_the_servers_are_required() -> None:
    with pytest.raises(ValueError, match="is missing"):
        sink_options({})


def test_columns_of_the_built_in_sink_are_taken() -> None:
    check_columns({"value": "string"}, "t")
    check_columns(
        {"key": "binary", "value": "binary", "headers": HEADERS, "topic": "string",
         "partition": "int", "offset": "bigint"},
        None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": "string"}, "t", "column value is missing, the rows have the columns key"),
        ({"value": "string"}, None, "no topic"),
        ({"value": "int"}, "t", "column value has the type int, want string or binary"),
        ({"value": "string", "partition": "bigint"}, "t", "want int"),
        ({"value": "string", "topic": "binary"}, None, "want string"),
        ({"value": "string", "headers": "array<string>"}, "t", "column headers"),
    ],
)
def test_a_bad_column_is_named(columns: dict[str, str], topic: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_columns(columns, topic)


def transactions(count: int) -> tuple[TaskTransaction, ...]:
    return tuple(
        TaskTransaction(
            task, f"{task}-0", ProducerIdentity(2**40 + task, task % 9),
            RowsDigest(task, (2**64 - 1 - task, task)), task % 3 == 0, task % 3 == 1,
        )
        for task in range(count)
    )  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 500])
def test_a_state_is_stored_in_as_many_offsets_as_it_needs(count: int) -> None:
    decision = BatchDecision(7, "b", count + 2, transactions(count))
    state = QueryState("a", tuple(f"{n:016x}" for n in range(64)), decision)
    stored = encode_state(state)
    assert all(len(part.metadata) <= 4096 for part in stored)
    assert decode_state(dict(enumerate(stored))) == state
    stale = dict(enumerate([*stored, StoredOffset(3, "0 of an older decision")]))
    assert decode_state(stale) == state
    if count:
        with pytest.raises(SinkError, match="lacks the offsets"):
            decode_state(dict(enumerate(stored[:-1])))


@pytest.mark.parametrize("text", ["", "x", "[]", '{"v":1}', '{"v":2,"owner":"a","former":[]}'])
def test_a_foreign_offset_is_refused(text: str) -> None:
    with pytest.raises(SinkError, match="state of the query"):
        decode_state({0: StoredOffset(0, text)})


def test_a_replaced_run_does_not_become_the_owner_again() -> None:
    state = QueryState("first").owned_by("second")
    assert state == QueryState("second", ("first",))
    with pytest.raises(SinkReplaced, match="two drivers"):
        state.owned_by("first")
    with pytest.raises(SinkReplaced):
        state.check_owner("first")


@pytest.mark.parametrize("option", ["topic", "stateTopic"])
def test_a_topic_that_does_not_exist_is_named_before_the_first_task(option: str) -> None:
    rows = StructType([StructField("value", BinaryType())])
    with WireBroker() as broker:
        broker.log("t", 0)
        given = {"kafka.bootstrap.servers": broker.address, "topic": "t"}
        stream_writer(given | {"stateTopic": "t"}, rows, False)
        with pytest.raises(SinkError, match="topic 'nope' does not exist"):
            stream_writer(given | {option: "nope"}, rows, False)
