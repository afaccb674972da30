"""The state machine of transactional ids, as a client and a new coordinator see it."""

from typing import Any

import pytest
from transaction_scenario import LAST_EPOCH, P0, P1, START_MS, TX, TransactionScenario

from spindle.common.errors import ApiError, ErrorCode
from spindle.coordinator.config import TransactionsConfig
from spindle.coordinator.transactions.descriptions import (
    TransactionFilter,
    describe_transaction,
    unknown_states,
)
from spindle.coordinator.transactions.metadata import NO_TIMEOUT_MS, TransactionState
from spindle.protocol.messages.list_transactions import ListTransactionsRequest

FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
NO_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT


def started(version: int = 2, epoch: int = 0) -> TransactionScenario:
    """Return a scenario with producer 100 at this epoch, without a transaction."""
    s = TransactionScenario(transaction_version=version)
    assert s.init() == (100, 0)
    if epoch:
        s.set_epoch(epoch)
    return s


def ongoing(version: int = 2, epoch: int = 0) -> TransactionScenario:
    s = started(version, epoch)
    assert s.add((100, epoch), P0, P1, version=version) == ErrorCode.NONE
    return s


# ---------------------------------------------------------------- InitProducerId


def test_each_initialisation_fences_the_one_before() -> None:
    s = started()
    assert s.init() == (100, 1)
    assert s.add((100, 0), P0) == FENCED
    assert s.add((99, 1), P0) == NO_MAPPING
    assert s.add((100, 1), P0) == ErrorCode.NONE


def test_requests_during_an_append_are_concurrent() -> None:
    s = started()
    s.hold()
    s.add((100, 0), P0)
    assert s.init() == CONCURRENT
    assert s.add((100, 0), P1) == CONCURRENT
    assert s.end((100, 0)) == CONCURRENT
    s.commit()
    assert s.metadata.partitions == (P0,)


def test_an_append_that_fails_changes_nothing() -> None:
    s = started()
    before = s.metadata
    s.hold()
    s.add((100, 0), P0)
    s.fail()
    assert (s.metadata, s.id.pending) == (before, None)
    assert s.init() == (100, 1)


def test_a_first_initialisation_that_fails_is_repeated() -> None:
    s = TransactionScenario()
    s.hold()
    assert s.init() is None
    s.fail()
    assert s.init() == (100, 0)


def test_an_open_transaction_is_aborted_first() -> None:
    s = ongoing()
    assert s.init() == CONCURRENT
    assert s.state is TransactionState.PREPARE_ABORT
    assert s.init() == CONCURRENT
    assert s.mark() == [(100, 1, False)]
    assert s.state is COMPLETE_ABORT
    assert s.init() == (100, 2)


@pytest.mark.parametrize("version", [0, 1])
def test_an_open_transaction_is_aborted_first_without_epoch_bump(version: int) -> None:
    s = ongoing(version)
    assert s.init() == CONCURRENT
    assert s.end((100, 0), version=0) == FENCED
    assert s.mark() == [(100, 1, False)]
    assert s.init() == (100, 2)
    assert {record.value_version for record in s.log} == {version}


def test_a_fence_that_cannot_be_appended_raises_the_epoch_once() -> None:
    s = ongoing(0)
    for _ in range(3):
        s.hold()
        s.init()
        s.fail()
        assert s.metadata.producer_epoch == 1
        assert s.add((100, 0), P0) == FENCED
    assert s.init() == CONCURRENT
    assert s.mark() == [(100, 1, False)]


def test_a_producer_recovers_with_its_id_and_epoch() -> None:
    s = started()
    assert s.init((100, 0)) == (100, 1)
    assert s.init((100, 0)) == (100, 1), "the request is repeated"
    assert s.init((100, 1)) == (100, 2)
    assert s.init((100, 0)) == FENCED
    assert s.init((99, 2)) == FENCED


def test_exhausted_epochs_lead_to_a_new_producer_id() -> None:
    s = started(epoch=LAST_EPOCH)
    assert s.init() == (101, 0)
    s = started(epoch=LAST_EPOCH)
    assert s.init((100, LAST_EPOCH)) == (101, 0)
    assert s.init((100, LAST_EPOCH)) == (101, 0), "the request is repeated"


def test_without_a_producer_id_the_client_asks_again() -> None:
    s = TransactionScenario()
    s.has_ids = False
    assert s.init() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    s = started(epoch=LAST_EPOCH)
    s.has_ids = False
    assert s.init() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    s.has_ids = True
    assert s.init() == (101, 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_timeouts_have_a_limit(timeout_ms: int) -> None:
    s = TransactionScenario()
    assert s.init(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert s.init(timeout_ms=900_000) == (100, 0)


def test_two_phase_commit_must_be_allowed_and_never_times_out() -> None:
    s = TransactionScenario()
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert s.init(enable2_pc=True) == refused
    assert s.init(keep_prepared_txn=True) == ErrorCode.UNSUPPORTED_VERSION
    s = TransactionScenario(config=TransactionsConfig(allows_two_phase_commit=True))
    assert s.init(timeout_ms=0, enable2_pc=True) == (100, 0)
    assert s.metadata.timeout_ms == NO_TIMEOUT_MS
    s.add((100, 0), P0)
    s.advance(10 * 86_400_000)
    assert s.state is TransactionState.ONGOING


# ---------------------------------------------------------------- partitions


def test_partitions_that_belong_to_the_transaction_need_no_record() -> None:
    s = ongoing()
    records = len(s.log)
    assert s.add((100, 0), P1) == ErrorCode.NONE
    assert len(s.log) == records


def test_start_of_a_transaction_is_its_first_partition() -> None:
    s = started()
    s.advance(500)
    s.add((100, 0), P0)
    s.advance(500)
    s.add((100, 0), P1)
    assert (s.metadata.start_ms, s.metadata.last_update_ms) == (START_MS + 500, START_MS + 1000)


def test_verification_adds_no_partition_to_the_transaction() -> None:
    s = started()
    s.add((100, 0), P0)
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    verify_partitions = s.shard.verify_partitions(TX, (100, 0), [P0, P1])
    assert verify_partitions == {P0: ErrorCode.NONE, P1: abortable}
    for name, producer, code in [
        (TX, (100, 1), FENCED),
        (TX, (101, 0), NO_MAPPING),
        ("other", (100, 0), NO_MAPPING),
        ("", (100, 0), ErrorCode.INVALID_REQUEST),
    ]:
        with pytest.raises(ApiError) as raised:
            s.shard.verify_partitions(name, producer, [P0])
        assert raised.value.code is code
    s.end((100, 0))
    with pytest.raises(ApiError, match="CONCURRENT"):
        s.shard.verify_partitions(TX, (100, 1), [P0])


# ---------------------------------------------------------------- EndTxn, with an epoch for each


@pytest.mark.parametrize("is_commit", [True, False])
def test_each_transaction_bumps_the_epoch(is_commit: bool) -> None:
    s = ongoing()
    assert s.end((100, 0), is_commit=is_commit) == (100, 1)
    assert s.end((100, 0), is_commit=is_commit) == CONCURRENT
    assert s.mark() == [(100, 1, is_commit)]
    assert s.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    assert s.end((100, 0), is_commit=is_commit) == (100, 1), "the request is repeated"
    assert s.end((100, 0), is_commit=not is_commit) == INVALID_STATE
    assert s.add((100, 1), P0) == ErrorCode.NONE


def test_an_abort_without_a_transaction_bumps_the_epoch() -> None:
    s = started()
    assert s.end((100, 0), is_commit=True) == INVALID_STATE
    assert s.end((100, 0), is_commit=False) == (100, 1)
    s.advance()
    assert s.state is COMPLETE_ABORT
    assert s.end((100, 1), is_commit=False) == (100, 2)
    s.advance()
    s.add((100, 2), P0)
    s.end((100, 2))
    s.mark()
    assert s.state is COMPLETE_COMMIT
    assert s.end((100, 3), is_commit=True) == INVALID_STATE
    assert s.end((100, 3), is_commit=False) == (100, 4)


def test_repeated_end_before_any_transaction_is_fenced() -> None:
    s = started()
    s.init()
    assert s.end((100, 0), is_commit=False) == FENCED
    assert s.end((100, 7), is_commit=False) == FENCED


def test_the_last_epoch_ends_with_a_new_producer_id() -> None:
    s = ongoing(epoch=LAST_EPOCH)
    assert s.end((100, LAST_EPOCH)) == (101, 0)
    assert s.mark() == [(100, LAST_EPOCH + 1, True)]
    assert (s.metadata.producer_id, s.metadata.producer_epoch) == (101, 0)
    assert s.metadata.previous_producer_id == 100
    assert s.end((100, LAST_EPOCH)) == (101, 0), "the request is repeated"
    assert s.end((99, LAST_EPOCH)) == NO_MAPPING
    assert s.add((101, 0), P0) == ErrorCode.NONE


def test_a_fenced_producer_with_the_last_epoch_gets_a_new_id() -> None:
    s = ongoing(epoch=LAST_EPOCH)
    assert s.init() == CONCURRENT
    assert s.mark() == [(100, LAST_EPOCH + 1, False)]
    assert s.init() == (101, 1)


def test_end_needs_the_producer() -> None:
    s = ongoing()
    assert s.end((99, 0)) == NO_MAPPING
    assert s.end((100, 1)) == FENCED
    s.shard.ids.remove(TX)
    assert s.end((100, 0)) == NO_MAPPING


# ---------------------------------------------------------------- EndTxn without epoch bump


@pytest.mark.parametrize("is_commit", [True, False])
def test_older_clients_keep_their_epoch(is_commit: bool) -> None:
    s = ongoing(0)
    assert s.end((100, 0), is_commit=is_commit, version=0) == (100, 0)
    assert s.end((100, 0), is_commit=is_commit, version=0) == CONCURRENT
    assert s.mark() == [(100, 0, is_commit)]
    assert s.end((100, 0), is_commit=is_commit, version=0) == (100, 0)
    assert s.end((100, 0), is_commit=not is_commit, version=0) == INVALID_STATE
    assert s.add((100, 0), P0, version=0) == ErrorCode.NONE


def test_older_clients_cannot_end_what_did_not_begin() -> None:
    s = started(0)
    assert s.end((100, 0), is_commit=False, version=0) == INVALID_STATE
    assert s.end((100, 1), version=0) == FENCED
    assert s.end((99, 0), version=0) == NO_MAPPING


# ---------------------------------------------------------------- markers


def test_a_transaction_is_complete_when_no_marker_is_missing() -> None:
    s = ongoing()
    s.end((100, 0))
    ((transaction, partitions),) = s.markers
    assert partitions == [P0, P1]
    s.markers_written(transaction, [P0])
    assert s.shard.is_marking(transaction)
    assert describe_transaction(s.shard.ids, TX).topics[0].partitions == [1]
    s.markers_written(transaction, [P1])
    assert s.state is COMPLETE_COMMIT
    assert not s.shard.is_marking(transaction)
    s.markers_written(transaction, [P1])
    assert len(s.log) == 4


def test_markers_of_an_earlier_transaction_count_for_nothing() -> None:
    s = ongoing()
    s.end((100, 0))
    earlier = s.markers[0][0]
    s.mark()
    s.add((100, 1), P0, P1)
    s.end((100, 1))
    s.markers_written(earlier, [P0, P1])
    assert s.state is TransactionState.PREPARE_COMMIT


def test_a_completion_is_appended_again_until_it_is_committed() -> None:
    s = ongoing()
    s.end((100, 0))
    s.hold()
    s.mark()
    for _ in range(3):
        s.fail()
        assert s.init() == CONCURRENT
        s.hold()
        s.advance(100)
        assert s.held
    s.commit()
    assert s.state is COMPLETE_COMMIT


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_new_coordinator_continues_what_was_decided(is_commit: bool) -> None:
    s = ongoing()
    s.end((100, 0), is_commit=is_commit)
    s.start()
    assert s.init() == CONCURRENT
    assert s.mark() == [(100, 1, is_commit)]
    assert s.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    s.start()
    assert s.markers == []
    assert s.end((100, 0), is_commit=is_commit) == (100, 1)


def test_a_new_coordinator_continues_the_abort_of_a_transaction_without_partitions() -> None:
    s = started()
    s.end((100, 0), is_commit=False)
    s.start()
    s.advance()
    assert s.state is COMPLETE_ABORT


def test_a_new_coordinator_keeps_an_open_transaction() -> None:
    s = ongoing()
    s.start()
    assert s.end((100, 0)) == (100, 1)


# ---------------------------------------------------------------- time


def test_an_old_transaction_is_aborted_and_its_producer_fenced() -> None:
    s = ongoing()
    s.advance(60_000)
    before = s.state
    s.advance(10_000)
    assert (before, s.state) == (TransactionState.ONGOING, TransactionState.PREPARE_ABORT)
    assert s.mark() == [(100, 1, False)]
    assert s.end((100, 0)) == INVALID_STATE
    assert s.add((100, 0), P0) == FENCED


def test_an_old_transaction_waits_for_a_producer_id() -> None:
    s = ongoing(epoch=LAST_EPOCH)
    s.has_ids = False
    s.advance(80_000)
    before = s.state
    s.has_ids = True
    s.advance(10_000)
    assert (before, s.state) == (TransactionState.ONGOING, TransactionState.PREPARE_ABORT)


def test_unused_ids_expire() -> None:
    s = ongoing()
    week_ms = 604_800_000
    s.end((100, 0))
    s.mark()
    s.advance(week_ms - 1)
    assert s.shard.ids.find(TX) is not None
    s.hold()
    s.advance(3_600_000)
    assert s.init() == CONCURRENT
    s.fail()
    s.advance(3_600_000)
    assert s.shard.ids.find(TX) is None
    assert s.log[-1].metadata is None
    s.start()
    assert s.add((100, 1), P0) == NO_MAPPING


# ---------------------------------------------------------------- questions


def test_an_open_transaction_is_described() -> None:
    s = ongoing()
    transaction = describe_transaction(s.shard.ids, TX)
    assert (transaction.transaction_state, transaction.producer_id, transaction.producer_epoch) == (
        "Ongoing",
        100,
        0,
    )
    assert (transaction.transaction_timeout_ms, transaction.transaction_start_time_ms) == (
        60_000,
        START_MS,
    )
    assert [(topic.topic, topic.partitions) for topic in transaction.topics] == [("t", [0, 1])]
    missing = describe_transaction(s.shard.ids, "other")
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_listed_transactions_pass_all_filters() -> None:
    s = ongoing()
    s.advance(1_000)

    def listed(**filters: Any) -> int:
        wanted = TransactionFilter(ListTransactionsRequest(**filters))
        return len(wanted.listed(s.shard.ids, s.now_ms))

    assert listed() == 1
    assert listed(state_filters=["Ongoing", "Empty"]) == 1
    assert listed(state_filters=["Empty"]) == listed(state_filters=["what"]) == 0
    assert listed(producer_id_filters=[100]) == 1
    assert listed(producer_id_filters=[101]) == 0
    assert listed(duration_filter=999) == 1
    assert listed(duration_filter=1_000) == 0
    assert listed(transactional_id_pattern="t.*") == listed(transactional_id_pattern="") == 1
    assert listed(transactional_id_pattern="t") == 0
    with pytest.raises(ApiError, match="INVALID_REGULAR_EXPRESSION"):
        listed(transactional_id_pattern="(")
    request = ListTransactionsRequest(state_filters=["what", "PrepareEpochFence", "Dead"])
    assert unknown_states(request) == ["what"]
