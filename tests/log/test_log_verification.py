"""Verification of transactions before their first records (KIP-890), and epochs of markers."""

import pytest
from log_builders import (
    NOW_MS,
    append,
    batch,
    end_transaction,
    new_log,
    verified,
)

from spindle.common.errors import ApiError, ErrorCode
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.producers.verification import NO_TRANSACTION, TransactionContext
from spindle.protocol.records.batch import batches

BIG = LogConfig()
PRODUCER = 7


def transactional(sequence: int = 0, epoch: int = 0) -> bytes:
    return batch("t", producer_id=PRODUCER, sequence=sequence, epoch=epoch, transactional=True)


def add(log: Log, terms: TransactionContext, sequence: int = 0, epoch: int = 0) -> int:
    data = transactional(sequence, epoch)
    return log.append_as_leader(data, 0, NOW_MS, terms=terms).first_offset


def begin(log: Log, sequence: int = 0, epoch: int = 0, *, adds: bool = False) -> TransactionContext:
    return verified(log, transactional(sequence, epoch), adds_partitions=adds)


def refusal(
    log: Log, terms: TransactionContext = NO_TRANSACTION, sequence: int = 0, epoch: int = 0
) -> ErrorCode:
    end_offset = log.log_end_offset
    with pytest.raises(ApiError) as caught:
        add(log, terms, sequence, epoch)
    assert log.log_end_offset == end_offset
    return caught.value.code


def marker_refusal(log: Log, epoch: int, transaction_version: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        end_transaction(
            log, PRODUCER, is_commit=True, epoch=epoch, transaction_version=transaction_version
        )
    return caught.value.code


class TestGuard:
    def test_records_without_verification_are_refused(self) -> None:
        assert refusal(new_log(BIG)) is ErrorCode.INVALID_TXN_STATE

    def test_the_first_records_need_it_and_later_ones_do_not(self) -> None:
        log = new_log(BIG)
        assert add(log, begin(log)) == 0
        assert begin(log, 1).verification is None
        assert add(log, NO_TRANSACTION, 1) == 1

    def test_a_late_answer_lets_nothing_into_the_next_transaction(self) -> None:
        log = new_log(BIG)
        late = begin(log)
        end_transaction(log, PRODUCER, is_commit=False)
        assert refusal(log, late) is ErrorCode.INVALID_TXN_STATE
        begin(log)
        assert refusal(log, late) is ErrorCode.INVALID_TXN_STATE

    def test_a_marker_that_a_follower_fetched_ends_it_as_well(self) -> None:
        leader, log = new_log(BIG), new_log(BIG)
        late = begin(log)
        end_transaction(leader, PRODUCER, is_commit=False)
        log.append_as_follower(bytes(leader.read(0, 1000, 1).records), 0)
        assert refusal(log, late) is ErrorCode.INVALID_TXN_STATE

    def test_batches_that_wait_together_share_it(self) -> None:
        log = new_log(BIG)
        first, second = begin(log, 0), begin(log, 1)
        assert add(log, first, 0) == 0
        assert add(log, second, 1) == 1

    def test_another_producer_needs_its_own(self) -> None:
        log = new_log(BIG)
        append(log, "other", producer_id=8, sequence=0, transactional=True)
        assert refusal(log) is ErrorCode.INVALID_TXN_STATE

    def test_another_epoch_needs_its_own(self) -> None:
        log = new_log(BIG)
        add(log, begin(log))
        assert refusal(log, NO_TRANSACTION, 0, epoch=1) is ErrorCode.INVALID_TXN_STATE

    def test_a_fenced_epoch_begins_none(self) -> None:
        log = new_log(BIG)
        late = begin(log, epoch=1)
        append(log, "x", producer_id=PRODUCER, epoch=2, sequence=0)
        with pytest.raises(ApiError) as caught:
            begin(log, epoch=1)
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert refusal(log, late, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_it_expires_with_its_producer(self) -> None:
        log = new_log(LogConfig(producer_id_expiration_ms=100))
        late = begin(log)
        log.remove_expired_producers(NOW_MS + 99)
        assert begin(log) == late
        log.remove_expired_producers(NOW_MS + 100)
        assert refusal(log, late) is ErrorCode.INVALID_TXN_STATE

    def test_a_broker_that_does_not_verify_needs_none(self) -> None:
        log = new_log(LogConfig(verifies_transactions=False))
        assert add(log, NO_TRANSACTION) == 0

    def test_a_truncated_log_has_none(self) -> None:
        log = new_log(BIG)
        append(log, "a")
        late = begin(log)
        log.truncate_to(0)
        assert refusal(log, late) is ErrorCode.INVALID_TXN_STATE


class TestSequences:
    def test_a_batch_does_not_overtake_one_whose_verification_failed(self) -> None:
        log = new_log(BIG)
        begin(log, 0)
        terms = begin(log, 1)
        assert refusal(log, terms, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert add(log, terms, 0) == 0
        assert add(log, terms, 1) == 1

    def test_the_lowest_sequence_counts_in_any_order(self) -> None:
        log = new_log(BIG)
        begin(log, 3)
        terms = begin(log, 2)
        assert refusal(log, terms, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert add(log, terms, 2) == 0

    def test_a_new_epoch_is_verified_from_its_own_first_sequence(self) -> None:
        log = new_log(BIG)
        begin(log, 0, epoch=1)
        terms = begin(log, 4, epoch=2)
        assert add(log, terms, 4, epoch=2) == 0

    def test_an_unknown_producer_that_bumps_epochs_begins_at_0(self) -> None:
        log = new_log(BIG)
        terms = begin(log, 1, adds=True)
        assert refusal(log, terms, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        begin(log, 0, adds=True)
        assert add(log, terms, 0) == 0

    def test_an_unknown_producer_of_an_older_version_may_begin_anywhere(self) -> None:
        log = new_log(BIG)
        assert add(log, begin(log, 9), 9) == 0


class TestEpochsOfMarkers:
    def test_with_a_bump_an_equal_epoch_does_not_end_a_transaction(self) -> None:
        log = new_log(BIG)
        add(log, begin(log, epoch=3), epoch=3)
        assert marker_refusal(log, 3, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
        end_transaction(log, PRODUCER, is_commit=True, epoch=4, transaction_version=2)
        log.update_high_watermark(2)
        assert log.last_stable_offset == 2

    def test_without_a_bump_it_does(self) -> None:
        log = new_log(BIG)
        add(log, begin(log, epoch=3), epoch=3)
        end_transaction(log, PRODUCER, is_commit=True, epoch=3, transaction_version=1)
        log.update_high_watermark(2)
        assert log.last_stable_offset == 2

    def test_a_marker_may_be_repeated_but_not_at_a_lower_epoch(self) -> None:
        log = new_log(BIG)
        add(log, begin(log, epoch=3), epoch=3)
        for _ in range(2):
            end_transaction(log, PRODUCER, is_commit=True, epoch=4, transaction_version=2)
        assert marker_refusal(log, 3, 2) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_the_largest_epoch_cannot_be_bumped(self) -> None:
        log = new_log(BIG)
        largest = 2**15 - 1
        add(log, begin(log, epoch=largest), epoch=largest)
        end_transaction(log, PRODUCER, is_commit=True, epoch=largest, transaction_version=2)
        log.update_high_watermark(2)
        assert log.last_stable_offset == 2

    def test_a_marker_of_an_unknown_producer_is_appended(self) -> None:
        log = new_log(BIG)
        end_transaction(log, PRODUCER, is_commit=False, epoch=0, transaction_version=2)
        (entry,) = log.active_producers()
        assert (entry.producer_epoch, entry.coordinator_epoch) == (0, 0)


def test_a_marker_stays_as_it_is_where_records_are_compressed() -> None:
    log = new_log(LogConfig(compression_type="gzip"))
    add(log, begin(log))
    end_transaction(log, PRODUCER, is_commit=True)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2
    ((_, header),) = batches(log.read(1, 1000, 2).records)
    assert (header.is_control, header.codec) == (True, 0)
