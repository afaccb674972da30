"""The refusals, patches and conversions of a leader before it appends."""

import tracemalloc

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.records.batch import check_crc, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch, seal_batch
from spindle.protocol.records.compression import Codec
from spindle.protocol.records.record import decode_records
from spindle.protocol.records.validation import (
    AppendOrigin,
    AppendRules,
    RecordsRejected,
    ValidRecords,
    check_produce_request,
    validate_for_append,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RULES = AppendRules(max_batch_bytes=10_000)
WHERE = TopicPartition("t", 3)


def batch_of(*timestamps_ms: int, codec: int = 0, key: bytes | None = b"k") -> bytes:
    return build_batch([SimpleRecord(key, b"v" * 50, at) for at in timestamps_ms], codec=codec)


def validate(
    records: bytes, rules: AppendRules = RULES, origin: AppendOrigin = AppendOrigin.CLIENT
) -> ValidRecords:
    return validate_for_append(bytearray(records), rules, NOW_MS, origin, WHERE)


def refusal(
    records: bytes, rules: AppendRules = RULES, origin: AppendOrigin = AppendOrigin.CLIENT
) -> ApiError:
    with pytest.raises(ApiError) as caught:
        validate(records, rules, origin)
    return caught.value


def changed(batch: bytes, **fields: int) -> bytes:
    return seal_batch(read_header(batch)._replace(**fields), batch[61:])


def test_a_sound_batch_is_kept_as_it_came() -> None:
    batch = batch_of(NOW_MS, NOW_MS + 1)
    buffer = bytearray(batch)
    valid = validate_for_append(buffer, RULES, NOW_MS, AppendOrigin.CLIENT, WHERE)
    assert valid.records is buffer
    assert bytes(buffer) == batch
    assert valid.batches == [(0, read_header(batch))]


def test_a_batch_with_a_wrong_checksum_is_refused() -> None:
    batch = bytearray(batch_of(NOW_MS))
    batch[-1] ^= 1
    error = refusal(bytes(batch))
    assert error.code is ErrorCode.CORRUPT_MESSAGE
    assert "t-3" in str(error)


def test_a_batch_that_is_cut_off_is_refused() -> None:
    batch = batch_of(NOW_MS)
    assert refusal(batch[:-1]).code is ErrorCode.CORRUPT_MESSAGE
    assert refusal(batch[:30]).code is ErrorCode.CORRUPT_MESSAGE


def test_the_size_limit_counts_the_whole_batch() -> None:
    batch = batch_of(NOW_MS)
    exact = RULES._replace(max_batch_bytes=len(batch))
    assert validate(batch, exact).batches
    error = refusal(batch, RULES._replace(max_batch_bytes=len(batch) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(len(batch)) in str(error)


def test_a_batch_of_an_old_format_is_refused() -> None:
    batch = bytearray(batch_of(NOW_MS))
    batch[16] = 1
    assert refusal(bytes(batch)).code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 3},
        {"last_offset_delta": 0},
        {"last_offset_delta": -1, "record_count": 0},
        {"base_offset": 1},
        {"attributes": 0x20},
        {"producer_id": 5, "base_sequence": -1},
        {"attributes": 0x10},
    ],
)
def test_headers_that_a_client_may_not_send(fields: dict[str, int]) -> None:
    batch = changed(batch_of(NOW_MS, NOW_MS), **fields)
    assert refusal(batch).code is ErrorCode.INVALID_RECORD


def test_a_coordinator_may_write_control_batches_and_several_batches() -> None:
    control = build_batch([SimpleRecord(b"\0\0\0\1", b"\0\0\0\0\0\1", NOW_MS)], is_control=True)
    valid = validate(control + batch_of(NOW_MS), origin=AppendOrigin.COORDINATOR)
    assert [position for position, _ in valid.batches] == [0, len(control)]


def test_a_client_sends_exactly_one_batch() -> None:
    assert refusal(batch_of(NOW_MS) * 2).code is ErrorCode.INVALID_RECORD
    assert refusal(b"").code is ErrorCode.INVALID_RECORD


def test_an_undefined_codec_is_refused() -> None:
    batch = changed(batch_of(NOW_MS), attributes=6)
    assert refusal(batch).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_records_too_far_in_the_future_are_named() -> None:
    batch = batch_of(NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, -1)
    error = refusal(batch)
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [entry.batch_index for entry in error.record_errors] == [2]
    assert str(NOW_MS + HOUR_MS + 1) in error.record_errors[0].message


def test_records_too_far_in_the_past_are_named() -> None:
    rules = RULES._replace(timestamp_before_max_ms=1000)
    batch = batch_of(NOW_MS - 1001, NOW_MS - 1000, codec=Codec.LZ4)
    error = refusal(batch, rules)
    assert isinstance(error, RecordsRejected)
    assert [entry.batch_index for entry in error.record_errors] == [0]
    assert validate(batch_of(NOW_MS - 1000), rules).batches


def test_a_compacted_topic_wants_keys() -> None:
    rules = RULES._replace(is_compacted=True)
    batch = build_batch([SimpleRecord(b"k", b"v", NOW_MS), SimpleRecord(None, b"v", NOW_MS)])
    error = refusal(batch, rules)
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [entry.batch_index for entry in error.record_errors] == [1]
    assert validate(batch_of(NOW_MS), rules).batches


def test_batches_written_by_a_coordinator_are_not_validated() -> None:
    rules = RULES._replace(is_compacted=True)
    keyless = build_batch([SimpleRecord(None, b"v", NOW_MS)])
    assert validate(keyless, rules, AppendOrigin.COORDINATOR).batches
    assert refusal(keyless, rules).code is ErrorCode.INVALID_RECORD


def test_records_that_do_not_parse_on_a_compacted_topic() -> None:
    good = batch_of(NOW_MS)
    bad = seal_batch(read_header(good), b"\x00" * 20)
    assert refusal(bad, RULES._replace(is_compacted=True)).code is ErrorCode.INVALID_RECORD


def test_log_append_time_is_patched_in_place() -> None:
    buffer = bytearray(batch_of(NOW_MS + 10 * HOUR_MS, codec=Codec.ZSTD))
    rules = RULES._replace(uses_log_append_time=True)
    valid = validate_for_append(buffer, rules, NOW_MS, AppendOrigin.CLIENT, WHERE)
    assert valid.records is buffer
    header = read_header(buffer)
    check_crc(buffer, 0, header)
    assert (header.has_log_append_time, header.max_timestamp) == (True, NOW_MS)


def test_a_client_that_claims_append_time_is_put_right() -> None:
    times = [SimpleRecord(b"k", b"v", NOW_MS - 5), SimpleRecord(b"k", b"v", NOW_MS - 7)]
    claimed = build_batch(times, log_append_time_ms=NOW_MS + HOUR_MS * 100)
    valid = validate(claimed)
    header = valid.batches[0][1]
    check_crc(valid.records, 0, header)
    assert (header.has_log_append_time, header.max_timestamp) == (False, NOW_MS - 5)


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_the_topics_codec_replaces_the_producers(source: Codec, target: Codec) -> None:
    batch = build_batch(
        [SimpleRecord(b"k%d" % i, b"v" * 99, NOW_MS + i, [("h", None)]) for i in range(5)],
        codec=source,
        producer_id=7,
        producer_epoch=1,
        base_sequence=2,
        is_transactional=True,
    )
    valid = validate(batch, RULES._replace(codec=target))
    header = valid.batches[0][1]
    check_crc(valid.records, 0, header)
    assert header.codec == target
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 2)
    assert header.is_transactional
    before = decode_records(batch, 0, read_header(batch))
    assert decode_records(valid.records, 0, header) == before


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.ZSTD, 19)])
def test_a_conversion_uses_the_level_of_the_topic(codec: Codec, level: int) -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(1000))
    batch = build_batch([SimpleRecord(b"k", text, NOW_MS)])
    sizes = [
        len(validate(batch, RULES._replace(codec=codec, compression_level=chosen)).records)
        for chosen in (level, None)
    ]
    assert sizes[0] != sizes[1]


def test_conversion_and_append_time_together() -> None:
    rules = RULES._replace(codec=Codec.GZIP, uses_log_append_time=True)
    valid = validate(batch_of(5, 6), rules)
    header = valid.batches[0][1]
    assert (header.codec, header.max_timestamp) == (Codec.GZIP, NOW_MS)
    records = decode_records(valid.records, 0, header)
    assert [record.timestamp_ms for record in records] == [NOW_MS, NOW_MS]


def test_conversion_of_one_batch_among_several_keeps_the_others() -> None:
    zipped, plain = batch_of(NOW_MS, codec=Codec.GZIP), batch_of(NOW_MS)
    rules = RULES._replace(codec=Codec.GZIP)
    valid = validate(zipped + plain + zipped, rules, AppendOrigin.COORDINATOR)
    assert [header.codec for _, header in valid.batches] == [Codec.GZIP] * 3
    for position, header in valid.batches:
        check_crc(valid.records, position, header)
    assert bytes(valid.records[: len(zipped)]) == zipped


class TestProduceRequest:
    def code(self, records: bytes | None, version: int) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            check_produce_request(records, version)
        return caught.value.code

    def test_one_batch_of_magic_2(self) -> None:
        check_produce_request(batch_of(NOW_MS), 3)
        check_produce_request(batch_of(NOW_MS, codec=Codec.ZSTD), 7)

    def test_a_request_without_exactly_one_batch_is_refused(self) -> None:
        assert self.code(None, 9) is ErrorCode.INVALID_RECORD
        assert self.code(b"", 9) is ErrorCode.INVALID_RECORD
        assert self.code(batch_of(NOW_MS) * 2, 9) is ErrorCode.INVALID_RECORD

    def test_an_old_message_format_is_refused(self) -> None:
        batch = bytearray(batch_of(NOW_MS))
        batch[16] = 0
        assert self.code(bytes(batch), 9) is ErrorCode.INVALID_RECORD

    def test_zstd_needs_version_7(self) -> None:
        batch = batch_of(NOW_MS, codec=Codec.ZSTD)
        assert self.code(batch, 6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_more_records_than_are_looked_into_are_refused_unread() -> None:
    batch = changed(
        batch_of(NOW_MS, codec=Codec.ZSTD), record_count=200_001, last_offset_delta=200_000
    )
    assert validate(batch).batches, "nobody has to look into it"
    error = refusal(batch, RULES._replace(is_compacted=True))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "200001 records" in str(error)


def test_a_record_above_the_limit_is_refused_in_compressed_batches_only() -> None:
    """`max.decompressed.message.bytes` counts a record without the field that has its length."""
    rules = RULES._replace(max_decompressed_record_bytes=57)
    for codec in (Codec.GZIP, Codec.ZSTD):
        batch = batch_of(NOW_MS, codec=codec)
        assert bytes(validate(batch, rules).records) == batch
        error = refusal(batch, rules._replace(max_decompressed_record_bytes=56))
        assert error.code is ErrorCode.INVALID_RECORD
        assert "57 bytes after decompression; max.decompressed.message.bytes is 56" in str(error)
    plain = batch_of(NOW_MS)
    strict = RULES._replace(max_decompressed_record_bytes=1)
    assert bytes(validate(plain, strict).records) == plain


def test_a_decompression_bomb_is_refused_before_it_takes_memory() -> None:
    plain = build_batch([SimpleRecord(b"k", bytes(80 * 1024 * 1024), NOW_MS)], codec=Codec.ZSTD)
    assert len(plain) < 10_000
    tracemalloc.start()
    try:
        error = refusal(plain, RULES._replace(is_compacted=True))
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert error.code is ErrorCode.INVALID_RECORD
    assert "unpacks to more than" in str(error)


def test_a_batch_that_another_codec_makes_too_large_is_refused() -> None:
    batch = build_batch([SimpleRecord(b"k", bytes(5_000), NOW_MS)], codec=Codec.ZSTD)
    rules = RULES._replace(max_batch_bytes=1_000, codec=Codec.NONE)
    assert len(batch) < 1_000
    error = refusal(batch, rules)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "exceeds the maximum configured value of 1000" in str(error)
