"""Truncation, the log start, retention, and what becomes of the files."""

import pytest
from log_builders import (
    NOW_MS,
    ROOT,
    SMALL,
    append,
    batch,
    end_transaction,
    new_log,
    new_storage,
    reload,
    search,
    values,
)

from spindle.common.errors import ApiError, CorruptLog, ErrorCode
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.testing.filesystem import MemoryFileSystem


def filled(config: LogConfig = SMALL, files: MemoryFileSystem | None = None) -> Log:
    log = new_log(config, new_storage(files))
    for number in range(30):
        append(log, f"{number}" + "x" * 100, at_ms=NOW_MS + number, leader_epoch=number // 10)
    log.update_high_watermark(30)
    return log


class TestTruncateTo:
    @pytest.mark.parametrize("offset", range(31))
    def test_truncation_at_any_offset_keeps_exactly_the_records_before_it(
        self, offset: int
    ) -> None:
        files = MemoryFileSystem()
        log = filled(files=files)
        expected = values(log)[:offset]
        log.flush()
        log.truncate_to(offset)
        assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (offset,) * 3
        assert values(log) == expected
        assert log.epochs.entries == [(0, 0), (1, 10), (2, 20)][: (offset + 9) // 10]
        last = search(log, None)
        assert (last.offset if last else -1) == offset - 1
        assert append(log, "next", leader_epoch=7) == offset
        assert values(reload(files, is_clean=False)) == [*expected, (offset, "next")]

    def test_beyond_the_end_drops_only_an_epoch_without_records(self) -> None:
        log = filled()
        log.assign_epoch_start(9, 30)
        log.truncate_to(31)
        assert log.log_end_offset == 30
        assert log.epochs.latest == 2

    def test_inside_a_batch_removes_the_batch(self) -> None:
        log = new_log(LogConfig())
        append(log, "a", "b", "c")
        append(log, "d", "e", "f")
        log.truncate_to(4)
        assert values(log) == [(0, "a"), (1, "b"), (2, "c")]
        assert log.log_end_offset == 3
        assert append(log, "again") == 3

    def test_below_the_first_segment_empties_the_log(self) -> None:
        log = filled()
        log.increment_log_start_offset(20)
        log.delete_old_segments(NOW_MS)
        assert log.segments.first.base_offset > 0
        log.truncate_to(2)
        assert (log.log_start_offset, log.log_end_offset) == (2, 2)
        assert append(log, "a", leader_epoch=3) == 2

    def test_producers_go_back_as_well(self) -> None:
        log = new_log(SMALL)
        for number in range(20):
            append(log, "x" * 100, producer_id=4, sequence=number)
        append(log, "t", producer_id=5, sequence=0, transactional=True)
        end_transaction(log, 5, is_commit=False)
        log.truncate_to(13)
        (entry,) = log.active_producers()
        assert (entry.producer_id, entry.last_sequence) == (4, 12)
        assert log.aborted_transactions(0, 13) == []
        again = log.append_as_leader(batch("x", producer_id=4, sequence=13), 0, NOW_MS)
        assert again.first_offset == 13

    def test_an_ended_transaction_is_open_again_without_its_marker(self) -> None:
        log = new_log(LogConfig())
        append(log, "t", producer_id=5, sequence=0, transactional=True)
        end_transaction(log, 5, is_commit=False)
        log.update_high_watermark(2)
        assert log.last_stable_offset == 2
        log.truncate_to(1)
        assert log.last_stable_offset == 0
        assert log.aborted_transactions(0, 1) == []

    @pytest.mark.parametrize("at", [8, 16])
    def test_a_rotten_header_at_the_offset_leaves_the_log_as_it_is(self, at: int) -> None:
        files = MemoryFileSystem()
        log = filled(files=files)
        segment = list(log.segments)[1]
        offset = segment.base_offset + 1
        position = segment.position_of(offset)
        assert position
        files.open(segment.path).pwrite(b"\0\0\0\7", position + at)
        bases, end_offset = log.segments.base_offsets, log.log_end_offset
        with pytest.raises(CorruptLog, match=f"at byte {position}"):
            log.truncate_to(offset)
        assert (log.segments.base_offsets, log.log_end_offset) == (bases, end_offset)
        append(log, "more", leader_epoch=3)

    def test_a_negative_offset_is_a_mistake(self) -> None:
        with pytest.raises(ValueError, match="-1"):
            filled().truncate_to(-1)


def test_truncating_fully_leaves_one_empty_segment() -> None:
    files = MemoryFileSystem()
    log = filled(files=files)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert (log.epochs.entries, log.active_producers()) == ([], [])
    names = [name for name in files.list_directory(log.path) if name[0] == "0"]
    assert names == [f"{100:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]
    assert append(log, "a") == 100


class TestLogStart:
    def test_the_log_start_never_moves_down(self) -> None:
        log = filled()
        log.increment_log_start_offset(15)
        log.increment_log_start_offset(3)
        assert log.log_start_offset == 15
        assert log.epochs.entries == [(1, 15), (2, 20)]
        assert values(log)[0][0] == 15

    def test_not_above_the_high_watermark(self) -> None:
        log = filled()
        log.update_high_watermark(10)
        with pytest.raises(ApiError) as caught:
            log.increment_log_start_offset(11)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.log_start_offset == 0

    def test_segments_below_the_log_start_are_deleted(self) -> None:
        log = filled(LogConfig(segment_bytes=1000, cleanup_policy=("compact",)))
        bases = log.segments.base_offsets
        log.increment_log_start_offset(bases[2])
        assert log.delete_old_segments(NOW_MS) == 2
        assert log.segments.base_offsets == bases[2:]

    def test_the_active_segment_stays(self) -> None:
        log = filled()
        log.increment_log_start_offset(30)
        log.delete_old_segments(NOW_MS)
        assert len(log.segments) == 1


class TestHighWatermark:
    def test_stays_within_the_log(self) -> None:
        log = filled()
        log.update_high_watermark(99)
        assert log.high_watermark == 30
        log.update_high_watermark(20)
        log.increment_log_start_offset(5)
        log.update_high_watermark(1)
        assert log.high_watermark == 5


class TestRetention:
    def test_retention_deletes_segments_whose_newest_record_is_too_old(self) -> None:
        log = filled(LogConfig(segment_bytes=1000, retention_ms=1000))
        bases = log.segments.base_offsets
        assert log.delete_old_segments(NOW_MS + 1000) == 0
        newest_of_first = NOW_MS + bases[1] - 1
        assert log.delete_old_segments(newest_of_first + 1000) == 0
        assert log.delete_old_segments(newest_of_first + 1001) == 1
        assert (log.log_start_offset, log.segments.base_offsets) == (bases[1], bases[1:])

    def test_by_time_without_timestamps_goes_by_the_file(self) -> None:
        files = MemoryFileSystem()
        files.now_ms = NOW_MS
        log = new_log(LogConfig(segment_bytes=100, retention_ms=1000), new_storage(files))
        for _ in range(3):
            append(log, "a", at_ms=-1)
        log.update_high_watermark(3)
        assert log.delete_old_segments(NOW_MS + 1000) == 0
        assert log.delete_old_segments(NOW_MS + 1001) == 3

    def test_retention_deletes_segments_until_the_log_fits(self) -> None:
        log = filled(LogConfig(segment_bytes=1000, retention_bytes=2500))
        log.delete_old_segments(NOW_MS)
        first = log.segments.first.size_bytes
        assert 2500 <= log.size_bytes < 2500 + first
        assert log.log_start_offset == log.segments.first.base_offset

    def test_everything_may_go_and_the_log_end_stays(self) -> None:
        log = filled(LogConfig(segment_bytes=1000, retention_ms=1000))
        count = len(log.segments)
        assert log.delete_old_segments(NOW_MS + 10_000) == count
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (30, 30, 0)
        assert append(log, "a", leader_epoch=3) == 30
        assert log.delete_old_segments(NOW_MS + 20_000) == 0, "30 is above the high watermark"

    def test_only_below_the_high_watermark(self) -> None:
        log = filled(LogConfig(segment_bytes=1000, retention_ms=1000))
        bases = log.segments.base_offsets
        log.update_high_watermark(bases[2] - 1)
        assert log.delete_old_segments(NOW_MS + 10_000) == 1
        assert log.log_start_offset == bases[1]

    def test_a_compacted_topic_keeps_what_is_old(self) -> None:
        config = LogConfig(segment_bytes=1000, retention_ms=1, cleanup_policy=("compact",))
        assert filled(config).delete_old_segments(NOW_MS + 10**9) == 0

    def test_no_limits_keep_everything(self) -> None:
        log = filled(LogConfig(segment_bytes=1000, retention_ms=-1, retention_bytes=-1))
        assert log.delete_old_segments(NOW_MS + 10**12) == 0

    def test_files_stay_renamed_until_their_delay_is_over(self) -> None:
        files = MemoryFileSystem()
        storage = new_storage(files)
        config = LogConfig(segment_bytes=1000, retention_ms=1000, file_delete_delay_ms=500)
        log = new_log(config, storage)
        for number in range(30):
            append(log, "x" * 100, producer_id=1, sequence=number)
        log.update_high_watermark(30)
        now_ms = NOW_MS + 10_000
        log.delete_old_segments(now_ms)
        deleted = [n for n in files.list_directory(log.path) if n.endswith(".deleted")]
        assert f"{0:020d}.log.deleted" in deleted
        kinds = {name.split(".")[1] for name in deleted}
        assert kinds == {"log", "index", "timeindex", "snapshot"}
        assert storage.delete_expired(now_ms + 499) == 0
        assert storage.delete_expired(now_ms + 500) == len(deleted)
        assert storage.delete_expired(now_ms + 10**9) == 0
        left = files.list_directory(log.path)
        assert [name for name in left if name[0] == "0"] == [
            f"{30:020d}{suffix}" for suffix in (".index", ".log", ".snapshot", ".timeindex")
        ]

    def test_files_that_are_gone_already_are_no_failure(self) -> None:
        files = MemoryFileSystem()
        storage = new_storage(files)
        log = new_log(LogConfig(segment_bytes=1000, retention_ms=1), storage)
        append(log, "a")
        log.update_high_watermark(1)
        assert log.delete_old_segments(NOW_MS + 10) == 1
        log.delete()
        assert storage.delete_expired(NOW_MS + 10**9) == 0


class TestNames:
    def test_a_renamed_log_continues(self) -> None:
        files = MemoryFileSystem()
        log = filled(files=files)
        log.rename("orders-0.abc-delete")
        assert log.path == f"{ROOT}/orders-0.abc-delete"
        assert append(log, "next", leader_epoch=5) == 30
        log.roll(NOW_MS)
        assert len(values(log)) == 31
        assert files.list_directory(ROOT) == ["orders-0.abc-delete"]

    def test_a_deleted_log_leaves_nothing(self) -> None:
        files = MemoryFileSystem()
        filled(files=files).delete()
        assert files.list_directory(ROOT) == []


class TestFlush:
    def test_moves_the_recovery_point_and_survives_a_power_failure(self) -> None:
        files = MemoryFileSystem()
        log = filled(files=files)
        assert log.recovery_point == 0
        log.flush()
        assert log.recovery_point == 30
        files.crash()
        assert len(values(reload(files, is_clean=False, recovery_point=30))) == 30

    def test_only_segments_from_the_recovery_point_on_are_synced(self) -> None:
        files = MemoryFileSystem()
        log = filled(files=files)
        log.flush()
        append(log, "a", leader_epoch=2)
        before = len(files.operations)
        log.flush()
        synced = [path for name, path in files.operations[before:] if name == "sync"]
        base = log.segments.from_offset(30)[0].base_offset
        assert {path.rpartition("/")[2][:20] for path in synced} == {f"{base:020d}"}
        before = len(files.operations)
        log.flush()
        assert len(files.operations) == before, "nothing new, nothing to do"

    def test_a_flush_in_another_thread_ends_where_it_began(self) -> None:
        log = filled()
        task = log.begin_flush()
        append(log, "during", leader_epoch=2)
        task.run()
        log.complete_flush(task)
        assert (log.recovery_point, log.log_end_offset) == (30, 31)

    def test_a_truncation_during_a_flush_wins(self) -> None:
        log = filled()
        task = log.begin_flush()
        log.truncate_to(3)
        append(log, "not in the flush", leader_epoch=4)
        task.run()
        log.complete_flush(task)
        assert (log.recovery_point, log.log_end_offset) == (3, 4)

    def test_a_segment_finished_during_a_flush_is_flushed_next(self) -> None:
        log = new_log()
        append(log, "before")
        task = log.begin_flush()
        append(log, "during")
        log.roll(NOW_MS)
        append(log, "after")
        task.run()
        log.complete_flush(task)
        assert log.recovery_point == 1
        assert log.must_flush(NOW_MS)

    def test_indexes_cut_during_a_flush_are_synced_by_the_next(self) -> None:
        files = MemoryFileSystem()
        log = new_log(storage=new_storage(files))
        append(log, "a")
        task = log.begin_flush()
        task.run()
        log.roll(NOW_MS)
        log.complete_flush(task)
        assert log.must_flush(NOW_MS)
        finished = log.segments.first.offset_index.file.path
        before = len(files.operations)
        log.begin_flush().run()
        assert ("sync", finished) in files.operations[before:]

    def test_a_flush_of_files_that_were_renamed_counts_for_nothing(self) -> None:
        log = filled()
        task = log.begin_flush()
        log.rename("orders-0.000102030405060708090a0b0c0d0e0f-stray")
        task.run()
        log.complete_flush(task)
        assert log.recovery_point == 0
        assert log.must_flush(NOW_MS)

    def test_a_flush_that_another_one_replaced_counts_for_nothing(self) -> None:
        log = filled()
        task = log.begin_flush()
        log.truncate_to(3)
        append(log, "new", leader_epoch=4)
        log.flush()
        log.complete_flush(task)
        assert (log.recovery_point, log.log_end_offset) == (4, 4)

    def test_a_flush_of_a_log_that_is_gone_does_nothing(self) -> None:
        log = filled()
        task = log.begin_flush()
        log.delete()
        task.run()

    def test_it_is_due_by_time_and_after_a_roll(self) -> None:
        log = new_log(LogConfig(flush_ms=1000))
        append(log, "a")
        assert not log.must_flush(NOW_MS + 999)
        assert log.must_flush(NOW_MS + 1000)
        log.flush()
        assert not log.must_flush(NOW_MS + 10_000)
        append(log, "c")
        log.roll(NOW_MS)
        assert log.must_flush(NOW_MS)

    def test_an_append_that_reaches_the_count_is_on_the_device_when_it_returns(self) -> None:
        files = MemoryFileSystem()
        log = new_log(LogConfig(flush_messages=3), new_storage(files))
        append(log, "a", "b")
        assert log.recovery_point == 0
        append(log, "c")
        assert log.recovery_point == 3
        files.crash()
        assert reload(files, is_clean=False).log_end_offset == 3

    def test_a_follower_flushes_by_count_too(self) -> None:
        log = new_log(LogConfig(flush_messages=1))
        log.append_as_follower(batch("a"), 0, NOW_MS)
        assert log.recovery_point == 1

    def test_a_truncation_wins_over_a_flush_that_another_one_overtook(self) -> None:
        log = filled()
        task = log.begin_flush()
        log.flush()
        log.truncate_to(3)
        append(log, "not in the flush", leader_epoch=4)
        task.run()
        log.complete_flush(task)
        assert (log.recovery_point, log.log_end_offset) == (3, 4)
