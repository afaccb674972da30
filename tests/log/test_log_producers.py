"""Idempotent and transactional producers: sequences, epochs, duplicates, the last stable offset."""

from typing import Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_builders import (
    NOW_MS,
    BatchFields,
    append,
    batch,
    end_transaction,
    new_log,
    new_storage,
    reload,
)

from spindle.common.errors import ApiError, CorruptLog, ErrorCode
from spindle.log.formats.producer_snapshot import encode_producer_snapshot, read_producer_snapshot
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.producers.entry import BatchMetadata, ProducerStateEntry
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.testing.filesystem import MemoryFileSystem

BIG = LogConfig()


def refusal(log: Log, **fields: Unpack[BatchFields]) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(ApiError) as caught:
        append(log, "refused", **fields)
    assert log.log_end_offset == before
    return caught.value.code


def leader_of_two_aborts() -> Log:
    """Return a log where producer 1 aborts twice, and producer 2 has begun between."""
    log = new_log(BIG)
    append(log, "t", producer_id=1, sequence=0, transactional=True)
    end_transaction(log, 1, is_commit=False)
    append(log, "t", producer_id=1, sequence=1, transactional=True)
    append(log, "t", producer_id=2, sequence=0, transactional=True)
    end_transaction(log, 1, is_commit=False)
    return log


class TestSequences:
    def test_batches_in_sequence_update_the_producer_entry(self) -> None:
        log = new_log(BIG)
        append(log, "a", "b", producer_id=7, sequence=0)
        append(log, "c", producer_id=7, sequence=2)
        (entry,) = log.active_producers()
        assert (entry.producer_id, entry.producer_epoch, entry.last_sequence) == (7, 0, 2)
        assert (entry.last_data_offset, entry.last_timestamp_ms) == (2, NOW_MS)

    def test_a_gap_is_refused(self) -> None:
        log = new_log(BIG)
        append(log, "a", producer_id=7, sequence=0)
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refusal(log, producer_id=7, sequence=2) is code
        assert append(log, "b", producer_id=7, sequence=1) == 1

    def test_an_unknown_producer_may_begin_anywhere(self) -> None:
        log = new_log(BIG)
        assert append(log, "a", producer_id=7, sequence=1234) == 0

    def test_the_wrap_from_the_largest_sequence_to_0(self) -> None:
        log = new_log(BIG)
        append(log, "a", producer_id=7, sequence=2**31 - 1)
        append(log, "b", "c", producer_id=7, sequence=0)
        assert log.active_producers()[0].last_sequence == 1

    def test_a_batch_that_wraps_inside(self) -> None:
        log = new_log(BIG)
        append(log, "a", "b", "c", producer_id=7, sequence=2**31 - 2)
        append(log, "d", producer_id=7, sequence=1)
        again = log.append_as_leader(
            batch("a", "b", "c", producer_id=7, sequence=2**31 - 2), 0, NOW_MS
        )
        assert (again.is_duplicate, again.first_offset, again.last_offset) == (True, 0, 2)

    def test_a_new_epoch_begins_with_0(self) -> None:
        log = new_log(BIG)
        append(log, "a", producer_id=7, sequence=5)
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refusal(log, producer_id=7, epoch=1, sequence=6) is code
        append(log, "b", producer_id=7, epoch=1, sequence=0)
        assert log.active_producers()[0].producer_epoch == 1

    def test_an_old_epoch_is_fenced(self) -> None:
        log = new_log(BIG)
        append(log, "a", producer_id=7, epoch=3, sequence=0)
        code = ErrorCode.INVALID_PRODUCER_EPOCH
        assert refusal(log, producer_id=7, epoch=2, sequence=1) is code

    def test_a_follower_takes_over_what_the_leader_accepted(self) -> None:
        log = new_log(BIG)
        append(log, "a", producer_id=7, epoch=3, sequence=0)
        record = SimpleRecord(b"k", b"v", NOW_MS)
        odd = build_batch(
            [record], base_offset=1, producer_id=7, producer_epoch=3, base_sequence=99
        )
        log.append_as_follower(odd, 0)
        assert log.active_producers()[0].last_sequence == 99


class TestDuplicates:
    def test_the_last_five_batches_are_recognised(self) -> None:
        log = new_log(BIG)
        for number in range(7):
            append(log, f"{number}", "x", producer_id=7, sequence=2 * number, at_ms=NOW_MS + number)
        for number in range(2, 7):
            again = log.append_as_leader(
                batch(f"{number}", "x", producer_id=7, sequence=2 * number), 0, NOW_MS
            )
            assert (again.is_duplicate, again.size_bytes) == (True, 0)
            assert (again.first_offset, again.last_offset) == (2 * number, 2 * number + 1)
        assert log.log_end_offset == 14
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refusal(log, producer_id=7, sequence=2) is code

    def test_another_size_is_no_duplicate(self) -> None:
        log = new_log(BIG)
        append(log, "a", "b", producer_id=7, sequence=0)
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refusal(log, producer_id=7, sequence=1) is code

    def test_another_epoch_is_no_duplicate(self) -> None:
        log = new_log(BIG)
        append(log, "a", producer_id=7, epoch=0, sequence=0)
        info = log.append_as_leader(batch("a", producer_id=7, epoch=1, sequence=0), 0, NOW_MS)
        assert not info.is_duplicate
        assert log.log_end_offset == 2

    def test_append_time_is_that_of_the_first_time(self) -> None:
        log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
        log.append_as_leader(batch("a", producer_id=7, sequence=0), 0, NOW_MS)
        again = log.append_as_leader(batch("a", producer_id=7, sequence=0), 0, NOW_MS + 50)
        assert (again.is_duplicate, again.log_append_time_ms) == (True, NOW_MS)

    def test_all_that_may_be_sent_again_is_known_after_a_kill(self) -> None:
        """The snapshot that recovery takes at the end tells the last batch only."""
        files = MemoryFileSystem()
        log = new_log(BIG, new_storage(files))
        for sequence in range(5):
            append(log, "a", producer_id=7, sequence=sequence)
        loaded = reload(files, BIG, is_clean=False)
        for sequence in range(5):
            again = loaded.append_as_leader(batch("a", producer_id=7, sequence=sequence), 0, NOW_MS)
            assert (again.is_duplicate, again.first_offset) == (True, sequence)


class TestTransactions:
    def test_the_last_stable_offset_waits_for_the_marker_and_its_replication(self) -> None:
        log = new_log(BIG)
        append(log, "plain")
        append(log, "t", producer_id=7, sequence=0, transactional=True)
        append(log, "u", producer_id=7, sequence=1, transactional=True)
        log.update_high_watermark(3)
        assert log.last_stable_offset == 1
        end_transaction(log, 7, is_commit=True)
        assert log.last_stable_offset == 1
        log.update_high_watermark(3)
        assert log.last_stable_offset == 1
        log.update_high_watermark(4)
        assert log.last_stable_offset == 4

    def test_the_oldest_open_transaction_limits_the_last_stable_offset(self) -> None:
        log = new_log(BIG)
        for producer_id in (1, 2, 3):
            append(log, "t", producer_id=producer_id, sequence=0, transactional=True)
        end_transaction(log, 2, is_commit=False)
        end_transaction(log, 1, is_commit=False)
        log.update_high_watermark(5)
        assert log.last_stable_offset == 2
        (second, first) = log.aborted_transactions(0, 5)
        assert second == (2, 1, 3, 0)
        assert first == (1, 0, 4, 2)
        end_transaction(log, 3, is_commit=True)
        log.update_high_watermark(6)
        assert log.last_stable_offset == 6

    def test_transactions_stay_unstable_in_any_order_of_replication(self) -> None:
        log = new_log(BIG)
        append(log, "t", producer_id=1, sequence=0, transactional=True)
        append(log, "t", producer_id=2, sequence=0, transactional=True)
        end_transaction(log, 2, is_commit=True)
        end_transaction(log, 1, is_commit=True)
        log.update_high_watermark(3)
        assert log.last_stable_offset == 0
        log.update_high_watermark(4)
        assert log.last_stable_offset == 4

    def test_a_follower_that_gets_transactions_together_knows_the_first_open_one(self) -> None:
        leader = new_log(BIG)
        append(leader, "t", producer_id=1, sequence=0, transactional=True)
        end_transaction(leader, 1, is_commit=True)
        append(leader, "t", producer_id=2, sequence=0, transactional=True)
        append(leader, "t", producer_id=1, sequence=1, transactional=True)
        follower = new_log(BIG)
        records = leader.read(0, 2**20, leader.log_end_offset).records
        follower.append_as_follower(bytes(records), 0, NOW_MS)
        for log in (leader, follower):
            log.update_high_watermark(4)
            assert log.last_stable_offset == 2

    def test_a_follower_that_gets_transactions_together_has_the_index_of_the_leader(self) -> None:
        leader = leader_of_two_aborts()
        follower = new_log(BIG)
        records = leader.read(0, 2**20, leader.log_end_offset).records
        follower.append_as_follower(bytes(records), 0, NOW_MS)
        for log in (leader, follower):
            assert log.aborted_transactions(0, 6) == [(1, 0, 1, 2), (1, 2, 4, 3)]
            assert log.aborted_transactions(2, 3) == [(1, 2, 4, 3)]

    def test_an_index_entry_that_knows_later_transactions_hides_no_abort(self) -> None:
        log = leader_of_two_aborts()
        index = log.segments.active.transaction_index
        index.reset()
        for entry in ((1, 0, 1, 3), (1, 2, 4, 3)):
            index.append(AbortedTransaction(*entry))
        assert log.aborted_transactions(2, 3) == [(1, 2, 4, 3)]

    def test_the_age_of_the_oldest_transaction(self) -> None:
        log = new_log(BIG)
        assert log.producers.oldest_transaction_last_ms() is None
        append(log, "t", producer_id=1, sequence=0, at_ms=NOW_MS, transactional=True)
        append(log, "t", producer_id=2, sequence=0, at_ms=NOW_MS + 1, transactional=True)
        append(log, "t", producer_id=1, sequence=1, at_ms=NOW_MS + 2, transactional=True)
        assert log.producers.oldest_transaction_last_ms() == NOW_MS + 2
        end_transaction(log, 1, is_commit=True)
        assert log.producers.oldest_transaction_last_ms() == NOW_MS + 1

    def test_a_marker_without_records_ends_nothing(self) -> None:
        log = new_log(BIG)
        end_transaction(log, 7, is_commit=False)
        log.update_high_watermark(1)
        assert (log.last_stable_offset, log.aborted_transactions(0, 1)) == (1, [])

    def test_plain_writes_inside_a_transaction_are_refused(self) -> None:
        log = new_log(BIG)
        append(log, "t", producer_id=7, sequence=0, transactional=True)
        assert refusal(log, producer_id=7, sequence=1) is ErrorCode.INVALID_TXN_STATE

    def test_markers_of_an_old_epoch_or_coordinator_are_fenced(self) -> None:
        log = new_log(BIG)
        append(log, "t", producer_id=7, epoch=2, sequence=0, transactional=True)
        with pytest.raises(ApiError) as caught:
            end_transaction(log, 7, is_commit=True, epoch=1)
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        end_transaction(log, 7, is_commit=True, epoch=2, coordinator_epoch=5)
        with pytest.raises(ApiError) as caught:
            end_transaction(log, 7, is_commit=True, epoch=2, coordinator_epoch=4)
        assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_after_a_marker_with_a_newer_epoch_sequences_begin_with_0(self) -> None:
        log = new_log(BIG)
        append(log, "t", producer_id=7, epoch=2, sequence=0, transactional=True)
        end_transaction(log, 7, is_commit=True, epoch=3)
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert refusal(log, producer_id=7, epoch=3, sequence=1, transactional=True) is code
        append(log, "t", producer_id=7, epoch=3, sequence=0, transactional=True)

    def test_the_log_start_makes_transactions_that_ended_below_it_stable(self) -> None:
        log = new_log(BIG)
        append(log, "t", producer_id=7, sequence=0, transactional=True)
        end_transaction(log, 7, is_commit=False)
        append(log, "a")
        log.update_high_watermark(3)
        log.increment_log_start_offset(2)
        assert log.last_stable_offset == 3

    def test_the_last_stable_offset_is_not_below_the_log_start(self) -> None:
        log = new_log(BIG)
        append(log, "t", producer_id=7, sequence=0, transactional=True)
        append(log, "a")
        log.update_high_watermark(2)
        log.increment_log_start_offset(1)
        assert (log.log_start_offset, log.last_stable_offset) == (1, 1)

    def test_a_transaction_stays_open_if_the_log_begins_inside_of_its_batch(self) -> None:
        log = new_log(BIG)
        append(log, "t", "u", producer_id=7, sequence=0, transactional=True)
        append(log, "a")
        log.update_high_watermark(2)
        log.increment_log_start_offset(1)
        log.truncate_to(2)
        assert log.last_stable_offset == 1


def test_silent_producers_are_forgotten_but_not_their_open_transactions() -> None:
    log = new_log(LogConfig(producer_id_expiration_ms=100))
    append(log, "a", producer_id=1, sequence=0, at_ms=NOW_MS)
    append(log, "b", producer_id=2, sequence=0, at_ms=NOW_MS, transactional=True)
    append(log, "c", producer_id=3, sequence=0, at_ms=NOW_MS + 1)
    log.remove_expired_producers(NOW_MS + 100)
    assert [entry.producer_id for entry in log.active_producers()] == [2, 3]


int64 = st.integers(0, 2**63 - 1)
int32 = st.integers(0, 2**31 - 1)


@st.composite
def entries(draw: st.DrawFn) -> ProducerStateEntry:
    timestamp = draw(int64)
    batches = draw(st.none() | st.builds(BatchMetadata, int32, int64, int32, st.just(timestamp)))
    return ProducerStateEntry(
        draw(int64),
        draw(st.integers(-1, 2**15 - 1)),
        () if batches is None else (batches,),
        timestamp,
        draw(st.integers(-1, 2**31 - 1)),
        draw(st.none() | int64),
    )


@given(st.lists(entries(), max_size=5))
def test_a_snapshot_is_read_back(producers: list[ProducerStateEntry]) -> None:
    files = MemoryFileSystem()
    files.write_atomically("/s", encode_producer_snapshot(producers))
    assert files.size("/s") == 10 + 46 * len(producers)
    read = read_producer_snapshot(files, "/s")
    assert encode_producer_snapshot(read) == encode_producer_snapshot(producers)
    assert [entry.batches for entry in read] == [entry.batches for entry in producers]


def test_an_empty_snapshot_has_the_bytes_of_kafka() -> None:
    content = encode_producer_snapshot([])
    assert content.hex() == "000148674bc700000000"


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"", "0 bytes"),
        (bytes.fromhex("000248674bc700000000"), "version 2"),
        (bytes.fromhex("000148674bc800000000"), "stored crc"),
        (bytes.fromhex("000148674bc700000000") + b"x", "stored crc"),
    ],
)
def test_damaged_snapshots_are_refused(content: bytes, finding: str) -> None:
    files = MemoryFileSystem()
    files.write_atomically("/s", content)
    with pytest.raises(CorruptLog, match=finding):
        read_producer_snapshot(files, "/s")
