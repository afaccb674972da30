"""Appending as leader and as follower."""

from itertools import pairwise

import pytest
from log_builders import (
    NOW_MS,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    new_log,
    new_storage,
    read_all,
    values,
)

from spindle.common.errors import ApiError, CorruptRecords, ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.log.errors import UnexpectedAppendOffset
from spindle.log.formats.partition_metadata import read_partition_metadata
from spindle.log.log_config import LogConfig
from spindle.protocol.records.batch import batches, check_crc, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.compression import Codec
from spindle.protocol.records.validation import AppendOrigin
from spindle.testing.filesystem import MemoryFileSystem


def test_a_leader_gives_offsets_and_the_epoch() -> None:
    log = new_log()
    first = log.append_as_leader(batch("a", "b"), 4, NOW_MS)
    second = log.append_as_leader(batch("c", at_ms=NOW_MS + 5), 4, NOW_MS)
    assert (first.first_offset, first.last_offset) == (0, 1)
    assert (second.first_offset, second.last_offset) == (2, 2)
    assert (second.max_timestamp, second.log_append_time_ms) == (NOW_MS + 5, -1)
    assert second.size_bytes == len(batch("c"))
    assert log.log_end_offset == 3
    data = log.read(0, 10_000, 3).records
    headers = [header for _, header in batches(data)]
    assert [header.base_offset for header in headers] == [0, 2]
    assert [header.leader_epoch for header in headers] == [4, 4]
    for position, header in batches(data):
        check_crc(data, position, header)


def test_a_writable_buffer_is_patched_in_place_and_others_are_left_alone() -> None:
    log = new_log()
    append(log, "first")
    writable, fixed = bytearray(batch("a")), batch("b")
    log.append_as_leader(writable, 7, NOW_MS)
    log.append_as_leader(fixed, 7, NOW_MS)
    assert read_header(writable).base_offset == 1
    assert read_header(fixed).base_offset == 0


def test_nothing_to_append_changes_nothing() -> None:
    log = new_log()
    info = log.append_as_follower(b"", 0)
    assert (info.first_offset, info.last_offset, info.size_bytes) == (0, -1, 0)
    assert log.log_end_offset == 0


def test_a_refused_batch_leaves_the_log_as_it_was() -> None:
    log = new_log()
    append(log, "a")
    broken = bytearray(batch("b"))
    broken[-1] ^= 1
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(broken, 0, NOW_MS)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, values(log)) == (1, [(0, "a")])


def test_validated_batches_are_not_checked_again() -> None:
    log = new_log(LogConfig(max_message_bytes=100))
    big = build_batch([SimpleRecord(b"k", b"v" * 500, NOW_MS)])
    assert log.append_as_leader(big, 0, NOW_MS, validated=True).last_offset == 0


def test_the_topics_settings_are_obeyed() -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime", compression_type="zstd"))
    info = log.append_as_leader(batch("a", "b", at_ms=5), 0, NOW_MS)
    assert info.log_append_time_ms == NOW_MS
    header = read_header(log.read(0, 1000, 2).records)
    assert header.codec == Codec.ZSTD
    assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS, NOW_MS]


def test_the_topic_id_is_on_the_device_before_the_first_record() -> None:
    files = MemoryFileSystem()
    log = new_log(storage=new_storage(files))
    before = len(files.operations)
    append(log, "a")
    operations = [
        (operation, path.rpartition("/")[2])
        for operation, path in files.operations[before:]
        if operation in ("write_atomically", "pwrite", "sync_directory")
    ]
    # Its own file before all others: whatever syncs the directory keeps the name of this one.
    assert operations[:2] == [
        ("write_atomically", "partition.metadata"),
        ("sync_directory", "data"),
    ]
    assert operations[2] == ("write_atomically", "leader-epoch-checkpoint")
    assert operations[3] == ("pwrite", "00000000000000000000.log")
    assert read_partition_metadata(files, log.path) == TOPIC_ID
    before = len(files.operations)
    append(log, "b")
    assert [name for name, _ in files.operations[before:]] == ["pwrite"]


def test_epochs_are_noted_where_they_begin() -> None:
    log = new_log()
    log.assign_epoch_start(2, 0)
    append(log, "a", leader_epoch=2)
    append(log, "b", leader_epoch=2)
    append(log, "c", leader_epoch=5)
    assert log.epochs.entries == [(2, 0), (5, 2)]
    assert log.epochs.latest == 5
    assert log.end_offset_for_epoch(2) == OffsetAndEpoch(2, 2)
    assert log.end_offset_for_epoch(5) == OffsetAndEpoch(3, 5)
    assert log.end_offset_for_epoch(6) == OffsetAndEpoch(-1, -1)


class TestFollower:
    def leaders_bytes(self) -> bytes:
        leader = new_log(LogConfig())
        append(leader, "a", "b", leader_epoch=1)
        append(leader, "c", leader_epoch=1)
        append(leader, "d", leader_epoch=3)
        return bytes(leader.read(0, 10_000, 4).records)

    def test_offsets_and_epochs_stay(self) -> None:
        data = self.leaders_bytes()
        log = new_log(LogConfig())
        info = log.append_as_follower(data, 3)
        assert (info.first_offset, info.last_offset) == (0, 3)
        assert bytes(log.read(0, 10_000, 4).records) == data
        assert log.epochs.entries == [(1, 0), (3, 3)]

    def test_an_incomplete_batch_at_the_end_is_left_out(self) -> None:
        data = self.leaders_bytes()
        for cut in range(1, len(batch("d"))):
            log = new_log(LogConfig())
            assert log.append_as_follower(memoryview(data)[:-cut], 3).last_offset == 2
            assert log.log_end_offset == 3

    def test_batches_of_a_later_epoch_are_left_out(self) -> None:
        log = new_log(LogConfig())
        log.append_as_follower(self.leaders_bytes(), 2)
        assert (log.log_end_offset, log.epochs.entries) == (3, [(1, 0)])

    def test_a_gap_is_kept(self) -> None:
        data = self.leaders_bytes()
        log = new_log(LogConfig())
        log.append_as_follower(data[len(batch("a", "b")) :], 3)
        assert values(log) == [(2, "c"), (3, "d")]
        assert log.read(0, 10_000, 4).first_offset == 2

    def test_offsets_that_are_there_already_are_refused(self) -> None:
        data = self.leaders_bytes()
        log = new_log(LogConfig())
        log.append_as_follower(data, 3)
        with pytest.raises(UnexpectedAppendOffset, match=r"offsets 0 to 1 to orders-0") as caught:
            log.append_as_follower(data, 3)
        assert (caught.value.first_offset, caught.value.end_offset) == (0, 4)

    def test_offsets_out_of_order_and_wrong_checksums_are_refused(self) -> None:
        data = self.leaders_bytes()
        first = len(batch("a", "b"))
        log = new_log(LogConfig())
        with pytest.raises(CorruptRecords, match="follows a later one"):
            log.append_as_follower(data + data[:first], 3)
        broken = bytearray(data)
        broken[-1] ^= 1
        with pytest.raises(CorruptRecords, match="stored crc"):
            log.append_as_follower(broken, 3)
        assert log.log_end_offset == 0

    def test_a_follower_appends_batches_above_the_size_limit(self) -> None:
        log = new_log(LogConfig(max_message_bytes=70))
        log.append_as_follower(self.leaders_bytes(), 3)
        assert log.log_end_offset == 4


class TestRolling:
    def test_a_segment_is_rolled_before_it_exceeds_its_size(self) -> None:
        log = new_log()
        size = len(batch("x" * 100))
        for _ in range(20):
            append(log, "x" * 100)
        per_segment = SMALL.segment_bytes // size
        assert log.segments.base_offsets == list(range(0, 20, per_segment))
        assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
        assert len(values(log)) == 20

    def test_a_batch_larger_than_a_segment_has_one_for_itself(self) -> None:
        log = new_log()
        append(log, "a")
        append(log, "x" * 5000)
        append(log, "b")
        assert log.segments.base_offsets == [0, 1, 2]

    def test_by_time_between_the_first_batch_and_the_incoming(self) -> None:
        log = new_log(LogConfig(segment_ms=900))
        append(log, "a", at_ms=NOW_MS)
        append(log, "b", at_ms=NOW_MS + 900)
        append(log, "c", at_ms=NOW_MS + 901)
        assert log.segments.base_offsets == [0, 2]

    def test_by_time_less_another_jitter_for_each_segment(self) -> None:
        log = new_log(LogConfig(segment_ms=1000, segment_jitter_ms=400))
        for at_ms in range(0, 9000, 10):
            append(log, "a", at_ms=NOW_MS + at_ms)
        starts = log.segments.base_offsets
        ages_ms = [10 * (end - start) for start, end in pairwise(starts)]
        assert all(600 < age_ms <= 1010 for age_ms in ages_ms)
        assert len(set(ages_ms)) > 3

    def test_a_jitter_longer_than_the_time_itself_is_cut_to_it(self) -> None:
        log = new_log(LogConfig(segment_ms=10, segment_jitter_ms=10**9))
        append(log, "a", at_ms=NOW_MS)
        append(log, "b", at_ms=NOW_MS)
        assert log.segments.base_offsets == [0]

    def test_by_time_without_timestamps_counts_from_the_creation(self) -> None:
        log = new_log(LogConfig(segment_ms=1000))
        log.append_as_leader(batch("a", at_ms=-1), 0, NOW_MS)
        log.append_as_leader(batch("b", at_ms=-1), 0, NOW_MS + 1000)
        log.append_as_leader(batch("c", at_ms=-1), 0, NOW_MS + 1001)
        assert log.segments.base_offsets == [0, 2]

    def test_when_an_index_is_full(self) -> None:
        log = new_log(LogConfig(segment_index_bytes=36, index_interval_bytes=1))
        for _ in range(12):
            append(log, "a", at_ms=NOW_MS)
        assert log.segments.base_offsets == [0, 5, 10], "four entries fit, the first has none"

    def test_when_the_time_index_has_only_its_last_place_left(self) -> None:
        log = new_log(LogConfig(segment_index_bytes=24, index_interval_bytes=1))
        for number in range(8):
            append(log, "a", at_ms=NOW_MS + number)
        assert log.segments.base_offsets == [0, 2, 4, 6]

    def test_when_offsets_are_too_far_from_the_base(self) -> None:
        log = new_log(LogConfig())
        append(log, "a")
        far, farther = 2**31, 2**33
        for offset in (far, farther):
            record = SimpleRecord(b"k", b"far", NOW_MS)
            log.append_as_follower(build_batch([record], base_offset=offset), 0)
        assert log.segments.base_offsets == [0, 1, farther]
        assert values(log) == [(0, "a"), (far, "far"), (farther, "far")]

    def test_an_empty_segment_that_offsets_are_too_far_from_is_replaced(self) -> None:
        log = new_log(LogConfig())
        far = build_batch([SimpleRecord(b"k", b"far", NOW_MS)], base_offset=2**31)
        log.append_as_follower(far, 0)
        assert log.segments.base_offsets == [2**31]

    def test_rolling_leaves_trimmed_indexes_and_a_snapshot(self) -> None:
        files = MemoryFileSystem()
        log = new_log(storage=new_storage(files))
        for _ in range(9):
            append(log, "x" * 100)
        names = files.list_directory(log.path)
        assert "00000000000000000005.snapshot" in names
        size_of = {name: files.size(f"{log.path}/{name}") for name in names}
        first, active = "00000000000000000000", "00000000000000000005"
        assert (size_of[f"{first}.index"], size_of[f"{first}.timeindex"]) == (32, 12)
        assert (size_of[f"{active}.index"], size_of[f"{active}.timeindex"]) == (240, 240)

    def test_an_empty_log_does_not_roll(self) -> None:
        log = new_log()
        log.roll(NOW_MS)
        assert len(log.segments) == 1
        append(log, "a")
        log.roll(NOW_MS)
        log.roll(NOW_MS)
        assert log.segments.base_offsets == [0, 1]


def test_coordinators_may_append_control_batches() -> None:
    log = new_log()
    control = build_batch([SimpleRecord(b"\0\0\0\2", b"", NOW_MS)], is_control=True)
    with pytest.raises(ApiError):
        log.append_as_leader(control, 0, NOW_MS)
    info = log.append_as_leader(control, 0, NOW_MS, origin=AppendOrigin.RAFT_LEADER)
    assert info.last_offset == 0
