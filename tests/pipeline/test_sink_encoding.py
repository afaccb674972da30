"""Rows that the kernel encodes are what the decoder of the protocol package reads."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.client.blocking.batch_sender import GatheredRecords
from spindle.client.partitioning import partition_of_key
from spindle.common.ids import TopicPartition
from spindle.pipeline.sink.batching import BatchGatherer, BatchLimits, RowDigester
from spindle.pipeline.sink.errors import SinkError
from spindle.pipeline.sink.rows import row_buffers
from spindle.protocol.records.batch import BatchHeader, read_header
from spindle.protocol.records.builder import seal_batch
from spindle.protocol.records.record import decode_records

PARTITIONS = {"t": 5, "u": 2}
LIMITS = BatchLimits(batch_bytes=400, buffer_bytes=2000, record_bytes=2000)
NOW_S = 1_700_000_000.0
STICKY = 1
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

fields = st.none() | st.binary(max_size=150)
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3
)
rows = st.lists(
    st.tuples(fields, fields, headers, st.sampled_from(["t", "u"]), st.none() | st.integers(0, 1)),
    max_size=40,
)
Row = tuple[bytes | None, bytes | None, Any, str, int | None]


def arrow(content: list[Row]) -> pa.RecordBatch:
    key, value, header, topic, partition = zip(*content, strict=True) if content else [[]] * 5
    with_keys = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in header]
    return pa.record_batch(
        {
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
            "headers": pa.array(with_keys, HEADERS),
            "topic": pa.array(topic, pa.string()),
            "partition": pa.array(partition, pa.int32()),
            "other": pa.array([0] * len(content), pa.int64()),
        }
    )


def records_of(gathered: GatheredRecords) -> list[Any]:
    header = BatchHeader(
        0, 0, -1, 2, 0, 0, gathered.record_count - 1, gathered.timestamp_ms,
        gathered.timestamp_ms, -1, -1, -1, gathered.record_count,
    )  # fmt: skip
    data = seal_batch(header, bytes(gathered.payload))
    return decode_records(data, 0, read_header(data))


def encoded(
    batches: list[pa.RecordBatch], limits: BatchLimits = LIMITS
) -> dict[TopicPartition, list[Any]]:
    by_partition: dict[TopicPartition, list[Any]] = defaultdict(list)

    def take(gathered: GatheredRecords) -> None:
        assert len(gathered.payload) <= limits.batch_bytes or gathered.record_count == 1
        by_partition[gathered.partition] += [
            (record.key, record.value, tuple(record.headers or ()), record.timestamp_ms)
            for record in records_of(gathered)
        ]

    gatherer = BatchGatherer(
        limits, PARTITIONS.__getitem__, take, clock=lambda: NOW_S, choose=lambda _: STICKY
    )
    for batch in filter(len, batches):
        gatherer.add(row_buffers(batch, None))
    gatherer.flush()
    return dict(by_partition)


def expected(content: list[Row]) -> dict[TopicPartition, list[Any]]:
    by_partition: dict[TopicPartition, list[Any]] = defaultdict(list)
    for key, value, header, topic, partition in content:
        if partition is None:
            partition = STICKY if key is None else partition_of_key(key, PARTITIONS[topic])
        pairs = tuple((name, content) for name, content in header or ())
        by_partition[TopicPartition(topic, partition)].append(
            (key, value, pairs, int(NOW_S * 1000))
        )
    return dict(by_partition)


@given(rows, st.integers(0, 20))
@settings(deadline=None, max_examples=25)
def test_every_row_comes_back(content: list[Row], skipped: int) -> None:
    whole = arrow(content)
    cut = min(skipped, len(content))
    assert encoded([whole.slice(0, cut), whole.slice(cut)]) == expected(content)


@given(rows, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=15)
def test_the_digest_is_that_of_the_rows_and_not_of_their_order(
    content: list[Row], chance: Any
) -> None:
    shuffled = list(content)
    chance.shuffle(shuffled)
    assert digest(shuffled) == digest(content)
    if content:
        key, value, header, topic, partition = content[0]
        for changed in (
            (key, (value or b"") + b"x", header, topic, partition),
            (value, b"never", header, topic, partition),
            (key, value, [*(header or []), ("h", None)], topic, partition),
            (key, value, header, "u" if topic == "t" else "t", partition),
            (key, value, header, topic, 1 if partition == 0 else 0),
        ):
            assert digest([changed, *content[1:]]) != digest(content)


def digest(content: list[Row]) -> Any:
    digester = RowDigester()
    digester.add(row_buffers(arrow(content), None))
    return digester.digest


def test_a_null_value_and_an_empty_one_differ() -> None:
    assert digest([(None, None, None, "t", None)]) != digest([(None, b"", None, "t", None)])
    assert digest([(b"", None, None, "t", None)]) != digest([(None, b"", None, "t", None)])


def test_text_columns_and_missing_columns_are_taken() -> None:
    batch = pa.record_batch({"value": pa.array(["a", None]), "Topic": pa.array(["t", "t"])})
    rows = encoded([batch])
    assert [row[:2] for row in rows[TopicPartition("t", STICKY)]] == [(None, b"a"), (None, None)]


def test_a_large_record_gets_a_batch_of_its_own() -> None:
    content: list[Row] = [(None, bytes(size), None, "t", 0) for size in (10, 1500, 10)]
    assert encoded([arrow(content)]) == expected(content)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((b"k", bytes(2000), None, "t", 3), r"t-3 .*max.request.size \(2000\)"),
        ((b"k", b"v", None, "t", 5), "partition has 5, and topic 't' has the partitions 0 to 4"),
        ((b"k", b"v", None, "u", -1), "a negative number"),
        ((b"k", b"v", None, None, 0), "no topic"),
        ((b"k", b"v", [(None, b"x")], "t", 0), "no key"),
    ],
)
def test_a_row_that_cannot_be_written_is_named(row: Any, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        encoded([arrow([row])])
