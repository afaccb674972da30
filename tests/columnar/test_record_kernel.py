"""The kernel against the decoder of the protocol package, also for malformed records."""

import struct

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.columnar import memory, tables
from spindle.columnar.columns import ALL_COLUMNS, KAFKA_COLUMNS, arrow_schema
from spindle.columnar.decoder import BatchDecoder, RowFilter
from spindle.common.errors import CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.protocol.records.batch import (
    CRC_COVERS_FROM,
    CRC_POSITION,
    HEADER_BYTES,
    BatchHeader,
    batches,
    read_header,
)
from spindle.protocol.records.builder import SimpleRecord, build_batch, rebuild_batch, seal_batch
from spindle.protocol.records.record import Record, decode_records

PARTITION = TopicPartition("topic", 3)

timestamps = st.integers(-1, 2**52)
fields = st.none() | st.binary(max_size=80)
header_lists = st.lists(
    st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=12)), max_size=4
)
records = st.builds(SimpleRecord, fields, fields, timestamps, header_lists)
batch_lists = st.lists(
    st.tuples(
        st.lists(records, min_size=1, max_size=12),
        st.integers(0, 4),
        st.none() | st.integers(0, 2**50),
    ),
    max_size=6,
)

Row = tuple[object, ...]


def encode(content: list[tuple[list[SimpleRecord], int, int | None]]) -> bytes:
    data = bytearray()
    offset = 100
    for part, codec, append_time in content:
        data += build_batch(part, base_offset=offset, codec=codec, log_append_time_ms=append_time)
        offset += len(part) + 2
    return bytes(data)


def expected_rows(data: bytes, wanted: RowFilter) -> list[Row]:
    return [
        row_of(header, record)
        for position, header in batches(data)
        for record in decode_records(data, position, header)
        if wanted.start_offset <= record.offset < wanted.end_offset
        and wanted.min_timestamp_ms <= record.timestamp_ms <= wanted.max_timestamp_ms
    ]


def row_of(header: BatchHeader, record: Record) -> Row:
    return (
        record.key,
        record.value,
        "topic",
        3,
        record.offset,
        record.timestamp_ms * 1000,
        int(header.has_log_append_time),
        [{"key": key, "value": value} for key, value in record.headers] or None,
    )


def rows_of(found: list[pa.RecordBatch]) -> list[Row]:
    rows: list[Row] = []
    for batch in found:
        batch.validate(full=True)
        assert batch.schema == arrow_schema(ALL_COLUMNS)
        columns = [
            batch.column(name).cast(pa.int64()) if name == "timestamp" else batch.column(name)
            for name in ALL_COLUMNS
        ]
        rows += zip(*(column.to_pylist() for column in columns), strict=True)
    return rows


@settings(deadline=None, max_examples=150)
@given(batch_lists, st.integers(0, 4), st.integers(0, 60), st.booleans())
def test_rows_are_those_of_the_plain_decoder(
    content: list[tuple[list[SimpleRecord], int, int | None]],
    skip: int,
    length: int,
    is_time_limited: bool,
) -> None:
    data = encode(content)
    wanted = RowFilter(100 + skip, 100 + skip + length)
    if is_time_limited:
        wanted = wanted._replace(min_timestamp_ms=2**20, max_timestamp_ms=2**50)
    decoder = BatchDecoder(PARTITION, ALL_COLUMNS, wanted, chunk_bytes=300)
    assert rows_of(list(decoder.decode(data))) == expected_rows(data, wanted)


@settings(deadline=None, max_examples=60)
@given(batch_lists, st.data())
def test_a_torn_last_batch_is_left_for_the_next_call(
    content: list[tuple[list[SimpleRecord], int, int | None]], draw: st.DataObject
) -> None:
    data = encode(content)
    cut = draw.draw(st.integers(0, len(data)))
    decoder = BatchDecoder(PARTITION, ALL_COLUMNS, RowFilter())
    decoded = list(decoder.decode(data, cut))
    assert decoder.consumed_bytes <= cut
    decoded += decoder.decode(data[decoder.consumed_bytes :])
    assert rows_of(decoded) == expected_rows(data, RowFilter())


@settings(deadline=None, max_examples=300)
@given(
    st.lists(records, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_lying_records_are_refused_or_decoded_as_the_plain_decoder_does(
    part: list[SimpleRecord], changes: list[tuple[int, int]]
) -> None:
    """The checksum is right, the content is not: no byte outside the batch may be read."""
    data = bytearray(build_batch(part, base_offset=100))
    for position, byte in changes:
        data[HEADER_BYTES + position % max(1, len(data) - HEADER_BYTES)] = byte
    struct.pack_into(">I", data, CRC_POSITION, crc32c(data[CRC_COVERS_FROM:]))
    decoder = BatchDecoder(PARTITION, ALL_COLUMNS)
    try:
        rows = rows_of(list(decoder.decode(bytes(data))))
    except CorruptRecords:
        return
    offsets = [row[4] for row in rows]
    assert all(100 <= int(str(offset)) < 100 + len(part) for offset in offsets)
    header = read_header(data)
    try:
        plain = decode_records(bytes(data), 0, header)
    except (CorruptRecords, UnicodeDecodeError):
        return
    assert [row[:2] for row in rows] == [(record.key, record.value) for record in plain]


def test_a_wrong_checksum_names_partition_offset_and_both_values() -> None:
    data = bytearray(build_batch([SimpleRecord(b"k", b"v", 5)], base_offset=77))
    data[-2] ^= 1
    with pytest.raises(CorruptRecords, match=r"topic-3: .*offset 77 .*checksum.*stored \d+"):
        list(BatchDecoder(PARTITION).decode(bytes(data)))


def test_checksums_can_be_left_unchecked() -> None:
    data = bytearray(build_batch([SimpleRecord(b"k", b"value", 5)]))
    data[-2] ^= 1
    decoded = list(BatchDecoder(PARTITION, check_crcs=False).decode(bytes(data)))
    assert decoded[0].num_rows == 1


def test_old_formats_are_refused() -> None:
    data = bytearray(build_batch([SimpleRecord(b"k", b"v", 5)]))
    data[16] = 1
    with pytest.raises(CorruptRecords, match="formats 0 and 1"):
        list(BatchDecoder(PARTITION).decode(bytes(data)))


def test_a_length_below_a_header_is_refused() -> None:
    data = bytearray(build_batch([SimpleRecord(b"k", b"v", 5)]))
    struct.pack_into(">i", data, 8, 20)
    with pytest.raises(CorruptRecords, match="length"):
        list(BatchDecoder(PARTITION).decode(bytes(data)))


@pytest.mark.parametrize("codec", range(5))
def test_a_record_count_that_cannot_be_is_refused(codec: int) -> None:
    good = build_batch([SimpleRecord(b"k", b"v", 5)], codec=codec)
    header = read_header(good)._replace(record_count=2**31 - 1)
    lying = seal_batch(header, good[HEADER_BYTES:])
    with pytest.raises(CorruptRecords, match=r"count of records|2147483647 records"):
        list(BatchDecoder(PARTITION).decode(lying))


def test_a_timestamp_beyond_microseconds_is_refused_only_when_it_is_wanted() -> None:
    data = build_batch([SimpleRecord(b"k", b"v", 2**62)])
    with pytest.raises(CorruptRecords, match="microseconds"):
        list(BatchDecoder(PARTITION).decode(data))
    (decoded,) = BatchDecoder(PARTITION, ("offset",)).decode(data)
    assert decoded.column("offset").to_pylist() == [0]


def test_gaps_of_compaction_and_empty_batches() -> None:
    written = build_batch([SimpleRecord(None, b"%d" % index, 5) for index in range(6)])
    header = read_header(written)
    kept = [record for record in decode_records(written, 0, header) if record.offset % 4 == 1]
    data = rebuild_batch(header, kept, delete_horizon_ms=9)
    data += rebuild_batch(header._replace(base_offset=6), [])
    decoder = BatchDecoder(PARTITION)
    (decoded,) = decoder.decode(data)
    assert decoded.column("offset").to_pylist() == [1, 5]
    assert decoded.column("timestamp").cast(pa.int64()).to_pylist() == [5000, 5000]
    assert decoder.next_offset == 12


def test_control_batches_are_left_out() -> None:
    data = build_batch([SimpleRecord(b"\0\0\0\1", b"\0\0\0\0\0\0", 5)], is_control=True)
    decoder = BatchDecoder(PARTITION)
    assert list(decoder.decode(data)) == []
    assert decoder.next_offset == 1


def test_a_header_key_that_is_no_text_is_replaced_as_java_does() -> None:
    data = build_batch([SimpleRecord(None, None, 5, [("a\udcff", b"x")])])
    (decoded,) = BatchDecoder(PARTITION, ("headers",)).decode(data)
    assert decoded.column("headers").to_pylist() == [[{"key": "a�", "value": b"x"}]]


def test_one_large_batch_comes_in_slices() -> None:
    part = [SimpleRecord(None, bytes(1000), 5) for _ in range(300)]
    decoded = list(BatchDecoder(PARTITION, chunk_bytes=20_000).decode(build_batch(part)))
    assert sum(batch.num_rows for batch in decoded) == 300
    assert max(batch.num_rows for batch in decoded) < 60


def test_chunks_are_about_as_large_as_asked_for() -> None:
    data = b"".join(
        build_batch([SimpleRecord(None, bytes(1000), 5)], base_offset=offset)
        for offset in range(100)
    )
    decoded = list(BatchDecoder(PARTITION, chunk_bytes=10_000).decode(data))
    assert [batch.num_rows for batch in decoded] == [10] * 10


@pytest.mark.parametrize("columns", [KAFKA_COLUMNS, ("offset", "timestamp"), ("topic", "headers")])
def test_only_the_wanted_columns_are_made(columns: tuple[str, ...]) -> None:
    data = build_batch([SimpleRecord(b"k", b"v", 5, [("h", b"x")])])
    (decoded,) = BatchDecoder(PARTITION, columns).decode(data)
    assert decoded.schema == arrow_schema(columns)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_both_checksums_are_crc32c(data: bytes) -> None:
    buffer = b"\0" + data
    address = tables.address_of(buffer) + 1
    assert memory.crc32c_at(address, len(data)) == crc32c(data)
    assert memory.crc_with_table(address, len(data)) == crc32c(data)
