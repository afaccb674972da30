"""Reading by offset and finding offsets by time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_builders import (
    NOW_MS,
    SMALL,
    append,
    batch,
    decode,
    end_transaction,
    new_log,
    new_storage,
    search,
    values,
)

from spindle.common.errors import ApiError, CorruptLog, ErrorCode
from spindle.log.errors import OffsetOutOfRange
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.compression import Codec
from spindle.testing.filesystem import MemoryFileSystem


def filled(count: int = 30, config: LogConfig = SMALL) -> Log:
    """Batches of three records, of a few sizes."""
    log = new_log(config)
    for number in range(count):
        append(log, "a" * (number % 7) * 10, "b", f"{number}", at_ms=NOW_MS + number)
    return log


def headers_of(data: memoryview) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for _, header in batches(data)]


def test_every_offset_is_found_in_its_batch() -> None:
    log = filled()
    for offset in range(90):
        fetched = log.read(offset, 1, 90)
        ((base, last),) = headers_of(fetched.records)
        assert base <= offset <= last
        assert fetched.first_offset == base


def test_reading_on_from_where_the_last_read_ended() -> None:
    log = filled()
    assert [offset for offset, _ in values(log)] == list(range(90))


def test_only_whole_batches_within_the_limit() -> None:
    log = filled(config=LogConfig())
    size = [header.size_bytes for _, header in batches(log.read(0, 10_000, 90).records)]
    for max_bytes in range(size[0], sum(size[:5])):
        data = log.read(0, max_bytes, 90).records
        count = len(headers_of(data))
        assert len(data) == sum(size[:count]) <= max_bytes < sum(size[: count + 1])


def test_the_first_batch_may_exceed_the_limit_if_one_is_wanted() -> None:
    log = new_log(LogConfig())
    append(log, "x" * 500)
    append(log, "y")
    assert headers_of(log.read(0, 1, 2).records) == [(0, 0)]
    nothing = log.read(0, 100, 2, min_one_batch=False)
    assert (len(nothing.records), nothing.first_offset) == (0, 0)


def test_nothing_at_or_after_the_end_offset() -> None:
    log = filled()
    for end_offset in range(0, 91, 3):
        data = log.read(0, 1_000, end_offset).records
        assert all(last < end_offset for _, last in headers_of(data))
    assert headers_of(log.read(0, 10_000, 4).records) == [(0, 2), (3, 5)], "a batch is not split"
    assert len(log.read(6, 1_000, 6).records) == 0
    assert len(log.read(7, 1_000, 6).records) == 0


def test_offsets_outside_the_log() -> None:
    log = filled()
    log.update_high_watermark(90)
    log.increment_log_start_offset(10)
    assert len(log.read(90, 1000, 90).records) == 0
    for offset in (-1, 9, 91):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, 1000, 90)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (caught.value.log_start_offset, caught.value.end_offset) == (10, 90)


def test_a_gap_leads_to_the_next_batch() -> None:
    log = new_log(LogConfig())
    for offset in (5, 20, 2**31 + 50):
        record = SimpleRecord(b"k", str(offset).encode(), NOW_MS)
        log.append_as_follower(build_batch([record], base_offset=offset), 0)
    assert len(log.segments) == 2
    for asked, number in ((0, 5), (5, 5), (6, 20), (21, 2**31 + 50), (2**31, 2**31 + 50)):
        assert log.read(asked, 1, log.log_end_offset).first_offset == number


@pytest.mark.parametrize(("at", "written"), [(16, b"\x07"), (8, b"\0\0\0\5"), (8, b"\xff" * 4)])
def test_damage_is_named_by_file_and_position(at: int, written: bytes) -> None:
    files = MemoryFileSystem()
    log = new_log(LogConfig(), new_storage(files))
    for _ in range(3):
        append(log, "x" * 100)
    size = log.size_bytes // 3
    files.open(f"{log.path}/{0:020d}.log").pwrite(written, size + at)
    with pytest.raises(CorruptLog, match=rf"0000\.log at byte {size}"):
        log.read(2, 1000, 3)


def test_a_length_past_the_end_of_the_file_is_not_read() -> None:
    files = MemoryFileSystem()
    log = new_log(LogConfig(), new_storage(files))
    append(log, "x")
    files.open(f"{log.path}/{0:020d}.log").pwrite(b"\x7f\xff\xff\x00", 8)
    assert len(log.read(0, 1000, 1).records) == 0, "the batch is not found at all"


def test_few_descriptors_suffice_for_many_segments() -> None:
    files = MemoryFileSystem()
    files.make_directories("/data")
    storage = LogStorage(files, "/data", open_files=2)
    log = new_log(SMALL, storage)
    for number in range(60):
        append(log, "x" * 100, at_ms=NOW_MS + number)
    assert len(log.segments) > 10
    assert [offset for offset, _ in values(log)] == list(range(60))
    assert len(storage.handles) == 2


def test_a_fetch_takes_one_read_of_the_file_when_it_follows_another() -> None:
    files = MemoryFileSystem()
    log = new_log(LogConfig(), new_storage(files))
    for _ in range(50):
        append(log, "x" * 100)
    first = log.read(0, 1000, 50)
    before = len(files.operations)
    log.read(headers_of(first.records)[-1][1] + 1, 1000, 50)
    assert [name for name, _ in files.operations[before:]] == ["pread"]


def test_a_second_reader_that_follows_the_first_finds_its_place_at_once() -> None:
    files = MemoryFileSystem()
    log = new_log(LogConfig(), new_storage(files))
    for _ in range(50):
        append(log, "x" * 100)
    log.read(0, 1000, 50)
    for end_offset in (40, 50):
        log.read(30, 1000, end_offset)  # the first of two followers
        before = len(files.operations)
        log.read(30, 1000, end_offset)
        assert [name for name, _ in files.operations[before:]] == ["pread"]


class TestTimestamps:
    def test_the_first_record_at_or_after_a_time(self) -> None:
        log = filled()
        for number in range(30):
            expected = (NOW_MS + number, 3 * number, 0)
            assert search(log, NOW_MS + number) == expected
        assert search(log, NOW_MS - 100) == (NOW_MS, 0, 0)
        assert search(log, NOW_MS + 30) is None

    def test_a_timestamp_leads_to_the_exact_record_in_a_compressed_batch(self) -> None:
        log = new_log(LogConfig())
        times = [50, 70, 60, 90]
        records = [SimpleRecord(b"k", b"v", NOW_MS + at) for at in times]
        log.append_as_leader(build_batch(records, codec=Codec.LZ4), 6, NOW_MS)
        assert search(log, NOW_MS + 51) == (NOW_MS + 70, 1, 6)
        assert search(log, NOW_MS + 71) == (NOW_MS + 90, 3, 6)
        assert search(log, None) == (NOW_MS + 90, 3, 6)

    def test_records_below_the_log_start_do_not_count(self) -> None:
        log = filled()
        log.update_high_watermark(90)
        log.increment_log_start_offset(10)
        assert search(log, NOW_MS) == (NOW_MS + 3, 10, 0)

    def test_no_record_has_a_time(self) -> None:
        log = new_log()
        assert search(log, None) is None
        append(log, "a", at_ms=-1)
        assert search(log, None) is None
        assert search(log, 0) is None

    @given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(-1, 51))
    def test_times_in_any_order(self, times: list[int], asked: int) -> None:
        log = new_log(LogConfig(segment_bytes=300, segment_index_bytes=240, index_interval_bytes=1))
        for at in times:
            append(log, "v", at_ms=at)
        after = [offset for offset, at in enumerate(times) if at >= asked]
        place = search(log, asked)
        assert (place.offset if place else None) == (after[0] if after else None)
        largest = search(log, None)
        assert largest is not None
        assert (largest.timestamp_ms, largest.offset) == (max(times), times.index(max(times)))

    def test_records_that_do_not_parse_are_named_by_file_and_position(self) -> None:
        log = new_log(LogConfig())
        append(log, "first", at_ms=NOW_MS - 10)
        broken = bytearray(batch("a"))
        broken[61] = 0xFF
        log.append_as_leader(broken, 0, NOW_MS, validated=True)
        with pytest.raises(ApiError, match=r"INVALID_RECORD: .*00000\.log at byte"):
            search(log, NOW_MS)


class TestAbortedTransactions:
    def test_those_that_overlap_the_range(self) -> None:
        log = new_log(SMALL)
        for producer_id in range(1, 7):
            append(log, "t" * 100, producer_id=producer_id, sequence=0, transactional=True)
            end_transaction(log, producer_id, is_commit=producer_id % 2 == 0)
        assert len(log.segments) > 1
        all_aborted = log.aborted_transactions(0, log.log_end_offset)
        assert [entry[:3] for entry in all_aborted] == [(1, 0, 1), (3, 4, 5), (5, 8, 9)]
        assert [entry.producer_id for entry in log.aborted_transactions(2, 9)] == [3, 5]
        assert [entry.producer_id for entry in log.aborted_transactions(5, 8)] == [3]
        assert log.aborted_transactions(6, 8) == []

    def test_decoded_control_records_are_in_the_log(self) -> None:
        log = new_log(LogConfig())
        append(log, "t", producer_id=1, sequence=0, transactional=True)
        end_transaction(log, 1, is_commit=True)
        records = decode(log.read(0, 1000, 2).records)
        assert [record.key for record in records] == [b"k", b"\0\0\0\1"]
