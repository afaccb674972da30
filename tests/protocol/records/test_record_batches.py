"""Batches against checksums that Apache Kafka 4.3.1 computed in a recorded run, and round trips."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import CorruptRecords
from spindle.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    add_to_sequence,
    batches,
    check_crc,
    computed_crc,
    patch_offset_and_epoch,
    patch_timestamp,
    read_header,
)
from spindle.protocol.records.builder import SimpleRecord, build_batch, rebuild_batch
from spindle.protocol.records.compression import Codec
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.record import Record, decode_records, decode_values

CREATED_MS = 1_795_269_139_059


def crc_of(batch: bytes) -> int:
    return read_header(batch).crc


def the_first_batch() -> bytes:
    pairs = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"), (b"a", b"2"), (b"b", b"2")]
    return build_batch([SimpleRecord(key, value, CREATED_MS) for key, value in pairs])


def test_a_built_batch_has_the_checksum_that_kafka_recorded() -> None:
    batch = the_first_batch()
    assert (len(batch), crc_of(batch)) == (115, 4010157125)


def test_a_compacted_batch_has_the_checksum_that_kafka_recorded() -> None:
    batch = the_first_batch()
    header = read_header(batch)
    kept = [record for record in decode_records(batch, 0, header) if record.key == b"d"]
    rebuilt = rebuild_batch(header, kept)
    after = read_header(rebuilt)
    assert (len(rebuilt), after.crc) == (70, 454007073)
    assert (after.base_offset, after.last_offset, after.record_count) == (0, 5, 1)


def test_a_delete_horizon_is_encoded_as_kafka_recorded_it() -> None:
    tombstone = build_batch([SimpleRecord(b"c", None, 1_795_269_139_120)])
    assert crc_of(tombstone) == 2920199165
    header = read_header(tombstone)
    records = decode_records(tombstone, 0, header)
    rebuilt = rebuild_batch(header, records, delete_horizon_ms=1_795_269_156_751)
    after = read_header(rebuilt)
    assert (len(rebuilt), after.crc) == (71, 9568780)
    assert after.delete_horizon_ms == 1_795_269_156_751
    assert after.max_timestamp == 1_795_269_139_120
    assert decode_records(rebuilt, 0, after) == records


def test_a_batch_that_lost_all_records_is_as_kafka_recorded_it() -> None:
    aborted = build_batch(
        [SimpleRecord(b"t", b"x", 1_795_269_185_300)],
        producer_id=0,
        producer_epoch=0,
        base_sequence=1,
        is_transactional=True,
    )
    rebuilt = rebuild_batch(read_header(aborted), [])
    after = read_header(rebuilt)
    assert (len(rebuilt), after.crc) == (61, 480434673)
    assert (after.record_count, after.last_sequence) == (0, 1)
    assert decode_records(rebuilt, 0, after) == []


@pytest.mark.parametrize(
    ("is_commit", "created_ms", "crc"),
    [(True, 1_795_269_185_326, 3364624363), (False, 1_795_269_185_357, 822976312)],
)
def test_transaction_markers_are_as_kafka_recorded_them(
    is_commit: bool, created_ms: int, crc: int
) -> None:
    marker = build_end_transaction(EndTransactionMarker(is_commit, 0), 0, 0, created_ms)
    assert (len(marker), crc_of(marker)) == (78, crc)


def test_header_fields_and_what_follows_from_them() -> None:
    batch = build_batch(
        [SimpleRecord(b"k", b"v", 10), SimpleRecord(b"k", b"v", 7)],
        base_offset=40,
        codec=Codec.GZIP,
        producer_id=9,
        producer_epoch=3,
        base_sequence=2**31 - 1,
        leader_epoch=6,
        is_transactional=True,
    )
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.last_offset, header.next_offset) == (41, 42)
    assert (header.base_timestamp, header.max_timestamp) == (10, 10)
    assert (header.codec, header.is_transactional, header.is_control) == (Codec.GZIP, True, False)
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (9, 3, 6)
    assert header.last_sequence == 0, "sequences begin again at 0 after 2**31-1"
    assert header.delete_horizon_ms is None
    assert not header.has_log_append_time


def test_sequences_continue_at_0_after_the_maximum() -> None:
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 2, 1) == 2**31 - 1


def test_log_append_time_hides_the_records_own_times() -> None:
    batch = build_batch(
        [SimpleRecord(None, b"v", 5), SimpleRecord(None, b"w", 6)], log_append_time_ms=99
    )
    header = read_header(batch)
    assert header.has_log_append_time
    assert [record.timestamp_ms for record in decode_records(batch, 0, header)] == [99, 99]


def test_batches_stops_before_an_incomplete_one() -> None:
    one = build_batch([SimpleRecord(None, b"1")])
    two = build_batch([SimpleRecord(None, b"22")])
    both = one + two
    for end in range(len(both) + 1):
        positions = [position for position, _ in batches(both[:end])]
        expected = [0][: end >= len(one)] + [len(one)][: end >= len(both)]
        assert positions == expected, f"with {end} bytes"
    assert [position for position, _ in batches(both, len(one))] == [len(one)]
    assert [position for position, _ in batches(both, 0, len(one))] == [0]


def test_patching_offset_and_epoch_leaves_the_checksum_right() -> None:
    batch = bytearray(the_first_batch())
    patch_offset_and_epoch(batch, 0, 1_000_000_000_000, 7)
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert (header.base_offset, header.leader_epoch) == (1_000_000_000_000, 7)


def test_patching_the_timestamp_computes_a_new_checksum() -> None:
    batch = bytearray(the_first_batch())
    header = patch_timestamp(batch, 0, read_header(batch), 12, is_log_append_time=True)
    assert header == read_header(batch)
    check_crc(batch, 0, header)
    assert header.has_log_append_time
    back = patch_timestamp(batch, 0, header, CREATED_MS, is_log_append_time=False)
    assert bytes(batch) == the_first_batch()
    assert not back.has_log_append_time


def test_every_changed_byte_under_the_checksum_is_noticed() -> None:
    good = the_first_batch()
    for position in range(17, len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        header = read_header(bad)
        with pytest.raises(CorruptRecords, match="stored crc"):
            check_crc(bad, 0, header)


@pytest.mark.parametrize("magic", [0, 1, 3, 127])
def test_another_magic_is_refused(magic: int) -> None:
    batch = bytearray(the_first_batch())
    batch[16] = magic
    with pytest.raises(CorruptRecords, match=f"magic {magic}, expected 2"):
        read_header(batch)


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_a_length_below_the_minimum_is_refused(length: int) -> None:
    batch = bytearray(the_first_batch())
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecords, match="below the minimum"):
        list(batches(batch))


def test_a_short_buffer_is_no_header() -> None:
    with pytest.raises(CorruptRecords, match="60 bytes are left"):
        read_header(the_first_batch()[: HEADER_BYTES - 1])


texts = st.text(max_size=8)
contents = st.none() | st.binary(max_size=300)
record_values = st.builds(
    SimpleRecord,
    key=contents,
    value=contents,
    timestamp_ms=st.integers(-1, 2**45),
    headers=st.lists(st.tuples(texts, contents), max_size=3),
)


@given(
    records=st.lists(record_values, min_size=1, max_size=20),
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, 2**62),
    base_sequence=st.integers(-1, 2**31 - 1),
)
def test_built_batches_are_decoded_unchanged(
    records: list[SimpleRecord], codec: Codec, base_offset: int, base_sequence: int
) -> None:
    batch = build_batch(
        records, base_offset=base_offset, codec=codec, base_sequence=base_sequence, producer_id=1
    )
    header = read_header(batch)
    check_crc(batch, 0, header)
    expected = [
        Record(
            base_offset + index,
            record.timestamp_ms,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            list(record.headers),
            add_to_sequence(base_sequence, index) if base_sequence >= 0 else -1,
        )
        for index, record in enumerate(records)
    ]
    assert decode_records(memoryview(b"xx" + batch), 2, header) == expected
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert rebuild_batch(header, expected) == batch


@given(st.binary(max_size=120), st.integers(0, 3))
def test_garbage_records_are_refused_or_parse_exactly(payload: bytes, count: int) -> None:
    header = BatchHeader(0, 49 + len(payload), 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, count)
    buffer = bytes(61) + payload
    try:
        records = decode_records(buffer, 0, header)
    except CorruptRecords:
        return
    assert len(records) == count


def test_a_header_key_that_is_no_text_survives_a_round_trip() -> None:
    batch = build_batch([SimpleRecord(None, b"v", 1, [("k\udcff", b"x")])])
    header = read_header(batch)
    assert b"k\xff" in batch
    assert rebuild_batch(header, decode_records(batch, 0, header)) == batch


def test_records_that_do_not_fill_the_batch_are_refused() -> None:
    batch = bytearray(the_first_batch())
    header = read_header(batch)._replace(record_count=5)
    with pytest.raises(CorruptRecords, match="follow the last of 5 records"):
        decode_records(batch, 0, header)
    with pytest.raises(CorruptRecords):
        decode_records(batch, 0, header._replace(record_count=7))
    with pytest.raises(CorruptRecords, match="-1 records"):
        decode_records(batch, 0, header._replace(record_count=-1))


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


def test_the_computed_crc_is_that_of_the_bytes() -> None:
    batch = the_first_batch()
    assert computed_crc(b"junk" + batch, 4, read_header(batch)) == 4010157125


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.binary(max_size=3)),
            st.one_of(st.none(), st.binary(max_size=200)),
            st.sampled_from([0, 1, 63, 64, 5000]),
            st.sampled_from([(), (("h", b"x"),)]),
        ),
        min_size=1,
        max_size=80,
    )
)
def test_values_are_those_of_the_decoded_records(
    rows: list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]],
) -> None:
    batch = build_batch([SimpleRecord(key, value, ms, headers) for key, value, ms, headers in rows])
    assert decode_values(batch, 0, read_header(batch)) == [value for _, value, _, _ in rows]


@given(st.integers(1, 300), st.sampled_from([0, 40, 70, 8180, 8200]), st.randoms())
def test_damaged_values_are_refused_as_damaged_records_are(
    count: int, size: int, random: Random
) -> None:
    batch = bytearray(build_batch([SimpleRecord(None, bytes(size))] * count))
    header = read_header(batch)
    assert decode_values(batch, 0, header) == [bytes(size)] * count
    batch[random.randrange(HEADER_BYTES, min(len(batch), 400))] ^= 1 << random.randrange(8)
    try:
        expected = [record.value for record in decode_records(bytes(batch), 0, header)]
    except CorruptRecords:
        with pytest.raises(CorruptRecords):
            decode_values(bytes(batch), 0, header)
    else:
        assert decode_values(bytes(batch), 0, header) == expected
