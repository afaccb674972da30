"""A follower's log becomes equal to its leader's, from any two logs."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replica_pair import (
    BACKOFF_MS,
    Follower,
    Leader,
    PartitionData,
    append,
    commit,
    content,
    key,
    new_log,
)

from spindle.common.errors import ErrorCode
from spindle.log.log import Log
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.replication.fetcher import Step
from spindle.replication.follower_log import TruncateToEpoch


def positions(request: FetchRequest | None) -> dict[int, tuple[int, int, int]]:
    """(fetch offset, last fetched epoch, current leader epoch) by partition."""
    assert request is not None
    return {
        p.partition: (p.fetch_offset, p.last_fetched_epoch, p.current_leader_epoch)
        for topic in request.topics
        for p in topic.partitions
    }


def test_a_follower_takes_over_records_epochs_and_the_high_watermark() -> None:
    leader_log, log = new_log(), new_log()
    append(leader_log, 0, "a", "b")
    append(leader_log, 3, "c")
    leader, follower = Leader(leader_log, epoch=3), Follower(log)
    follower.follow(epoch=3)
    follower.round(leader)
    assert (log.log_end_offset, log.high_watermark) == (3, 0)
    leader_log.update_high_watermark(2)
    follower.round(leader)
    assert log.high_watermark == 2
    assert log.epochs.entries == [(0, 0), (3, 2)]
    assert content(log) == content(leader_log)
    assert positions(leader.requests[1]) == {0: (3, 3, 3)}


def test_the_high_watermark_is_at_most_the_own_log_end() -> None:
    leader_log, log = new_log(), new_log()
    for number in range(40):
        append(leader_log, 0, f"value {number}" * 5)
    commit(leader_log)
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    follower.round(leader)
    assert 0 < log.log_end_offset < 40
    assert log.high_watermark == log.log_end_offset
    follower.catch_up(leader)
    assert content(log) == content(leader_log)


def test_only_what_changed_is_asked_for_and_nothing_is_asked_twice() -> None:
    logs, copies = [new_log(p) for p in range(3)], [new_log(p) for p in range(3)]
    leader, follower = Leader(*logs), Follower(*copies)
    for partition in range(3):
        follower.follow(partition=partition)
    follower.round(leader)
    append(logs[1], 0, "a")
    follower.round(leader)
    follower.round(leader)
    assert [sorted(positions(request)) for request in leader.requests] == [[0, 1, 2], [], [1]]
    assert [request.session_epoch for request in leader.requests] == [0, 1, 2]


def test_a_divergent_tail_goes_at_the_epoch_where_the_logs_part() -> None:
    leader_log, log = new_log(), new_log()
    for one in (leader_log, log):
        append(one, 0, "a", "b")
        commit(one)
    append(log, 1, "lost", "lost too")
    append(leader_log, 2, "c")
    leader, follower = Leader(leader_log, epoch=2), Follower(log)
    follower.follow(epoch=2)
    follower.round(leader)
    assert (log.log_end_offset, log.high_watermark) == (2, 2)
    follower.catch_up(leader)
    assert content(log) == content(leader_log)


def test_several_divergent_epochs_take_one_round_each_at_most() -> None:
    leader_log, log = new_log(), new_log()
    for one in (leader_log, log):
        append(one, 0, "a")
    for epoch in (1, 3, 5):
        append(log, epoch, f"lost in {epoch}")
    for epoch in (2, 4, 6):
        append(leader_log, epoch, f"kept in {epoch}")
    leader, follower = Leader(leader_log, epoch=6), Follower(log)
    follower.follow(epoch=6)
    follower.catch_up(leader)
    assert content(log) == content(leader_log)
    assert len(leader.requests) <= 5


def test_an_epoch_that_a_former_leader_noted_without_a_record_does_not_stop_it() -> None:
    leader_log, log = new_log(), new_log()
    for one in (leader_log, log):
        append(one, 0, "a")
    log.assign_epoch_start(1, 1)
    append(leader_log, 2, "b")
    leader, follower = Leader(leader_log, epoch=2), Follower(log)
    follower.follow(epoch=2)
    follower.catch_up(leader)
    assert content(log) == content(leader_log)


def test_without_epochs_what_is_not_committed_goes_before_the_first_fetch() -> None:
    log = new_log()
    append(log, -1, "a", "b")
    append(log, -1, "not committed")
    log.update_high_watermark(2)
    assert log.epochs.latest is None
    followed = Follower(log).follow()
    assert followed.position.end_offset == 2


def test_a_follower_that_is_behind_the_leaders_log_start_starts_over_there() -> None:
    leader_log, log = new_log(), new_log()
    append(log, 0, "old")
    for value in "abcdef":
        append(leader_log, 1, value)
    commit(leader_log)
    leader_log.increment_log_start_offset(4)
    leader, follower = Leader(leader_log, epoch=1), Follower(log)
    follower.follow(epoch=1)
    follower.catch_up(leader)
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    assert content(log) == content(leader_log)


def test_a_log_start_in_the_middle_of_a_batch_is_followed() -> None:
    leader_log, log = new_log(), new_log()
    append(leader_log, 0, "a", "b", "c", "d")
    commit(leader_log)
    leader_log.increment_log_start_offset(2)
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    follower.catch_up(leader)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (2, 4, 4)
    assert log.segments.first.base_offset == 0
    assert content(log) == content(leader_log)


def test_deleted_records_are_deleted_here_too_and_reported_to_the_leader() -> None:
    leader_log, log = new_log(), new_log()
    append(leader_log, 0, "a", "b", "c")
    commit(leader_log)
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    follower.catch_up(leader)
    leader_log.increment_log_start_offset(2)
    follower.round(leader)
    follower.round(leader)
    assert log.log_start_offset == 2
    (topic,) = leader.requests[-1].topics
    assert [p.log_start_offset for p in topic.partitions] == [2]


def test_a_longer_log_is_cut_to_the_leaders_end() -> None:
    """The leader lost its tail within one epoch (a lost disk, an unclean election)."""
    leader_log, log = new_log(), new_log()
    append(leader_log, 0, "a")
    for value in "abc":
        append(log, 0, value)
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    follower.catch_up(leader)
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_refused_partition_is_left_alone_for_a_while_and_the_others_continue(
    code: ErrorCode,
) -> None:
    logs, copies = [new_log(p) for p in range(2)], [new_log(p) for p in range(2)]
    leader, follower = Leader(*logs), Follower(*copies)
    for partition in range(2):
        follower.follow(partition=partition)
        append(logs[partition], 0, "a")
    leader.errors[0] = code
    follower.round(leader)
    assert [copy.log_end_offset for copy in copies] == [0, 1]
    leader.errors.clear()
    follower.round(leader)
    assert copies[0].log_end_offset == 0
    (forgotten,) = leader.requests[-1].forgotten_topics_data
    assert forgotten.partitions == [0]
    wake_ms = follower.fetcher.wake_ms
    assert wake_ms == BACKOFF_MS // 16
    follower.now_ms = wake_ms
    follower.round(leader)
    assert copies[0].log_end_offset == 1


def test_pauses_grow_up_to_the_backoff_until_it_works_again() -> None:
    leader_log, log = new_log(), new_log()
    leader, follower = Leader(leader_log), Follower(log)
    followed = follower.follow()

    def pauses() -> list[int]:
        leader.errors[0] = ErrorCode.UNKNOWN_TOPIC_ID
        pauses_ms = []
        for _ in range(7):
            follower.round(leader)
            wake_ms = follower.fetcher.wake_ms
            assert wake_ms is not None
            pauses_ms.append(wake_ms - follower.now_ms)
            follower.now_ms = wake_ms
        return pauses_ms

    assert pauses() == [62, 124, 248, 496, 992, 1000, 1000]
    leader.errors.clear()
    append(leader_log, 0, "a")
    follower.round(leader)
    assert followed.delay_ms == 0
    assert pauses()[0] == 62


def test_a_fenced_partition_waits_for_new_metadata() -> None:
    leader_log, log = new_log(), new_log()
    append(leader_log, 4, "a")
    leader, follower = Leader(leader_log, epoch=4), Follower(log)
    follower.follow(epoch=3)
    follower.round(leader)
    follower.now_ms += 100 * BACKOFF_MS
    assert follower.request() is None
    assert follower.fetcher.failed[key()].leader_epoch == 3
    follower.follow(epoch=4)
    follower.catch_up(leader)
    assert not follower.fetcher.failed


def test_damaged_records_are_refused_and_asked_for_again() -> None:
    leader_log, log = new_log(), new_log()
    append(leader_log, 0, "a")
    append(leader_log, 0, "b")
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    response = leader.answer(follower.request())
    data = response.responses[0].partitions[0]
    data.records = bytearray(data.records)
    data.records[-1] ^= 1
    follower.do(follower.fetcher.on_response(response, 0) or [])
    assert log.log_end_offset == 0
    assert follower.request() is None
    follower.catch_up(leader)
    assert content(log) == content(leader_log)


def test_batches_of_a_later_epoch_wait_for_its_leader() -> None:
    leader_log, log = new_log(), new_log()
    append(leader_log, 1, "a")
    append(leader_log, 2, "of a leader that we do not know yet")
    leader, follower = Leader(leader_log, epoch=1), Follower(log)
    follower.follow(epoch=1)
    follower.round(leader)
    assert log.log_end_offset == 1


def test_an_answer_for_what_was_removed_or_moved_meanwhile_is_dropped() -> None:
    logs, copies = [new_log(p) for p in range(2)], [new_log(p) for p in range(2)]
    leader, follower = Leader(*logs), Follower(*copies)
    for partition in range(2):
        follower.follow(partition=partition)
        append(logs[partition], 0, "a")
    response = leader.answer(follower.request())
    follower.fetcher.remove(key(0))
    follower.follow(epoch=1, partition=1)
    assert follower.fetcher.on_response(response, 0) == []


def test_a_high_watermark_in_a_dropped_answer_is_asked_for_again() -> None:
    """The leader does not tell again what the session was told before the partition was removed."""
    leader_log, log = new_log(), new_log()
    append(leader_log, 0, "a")
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    follower.round(leader)
    commit(leader_log)
    response = leader.answer(follower.request())
    follower.follow()
    assert follower.fetcher.on_response(response, 0) == []
    follower.round(leader)
    assert log.high_watermark == 1


def test_work_that_ends_after_its_partition_was_removed_changes_nothing() -> None:
    leader_log, log = new_log(), new_log()
    append(leader_log, 0, "a")
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    (step,) = follower.fetcher.on_response(leader.answer(follower.request()), 0) or []
    followed = follower.follow(epoch=1)
    follower.do([step])
    assert followed.position.end_offset == 0
    # The log has the records: the directory's thread appended them before it reported the position.
    request = follower.request()
    assert positions(request) == {0: (0, -1, 1)}


def test_a_partition_that_is_worked_on_is_not_worked_on_twice() -> None:
    leader_log, log = new_log(), new_log()
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    follower.round(leader)
    append(leader_log, 0, "a")
    response = leader.answer(follower.request())
    response.responses.append(response.responses[0])
    assert len(follower.fetcher.on_response(response, 0) or []) == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_lost_session_starts_over_with_everything(code: ErrorCode) -> None:
    logs, copies = [new_log(p) for p in range(2)], [new_log(p) for p in range(2)]
    leader, follower = Leader(*logs), Follower(*copies)
    for partition in range(2):
        follower.follow(partition=partition)
    follower.round(leader)
    assert follower.request() is not None
    assert follower.fetcher.on_response(FetchResponse(error_code=code), 0) is None
    follower.round(leader)
    request = leader.requests[-1]
    assert sorted(positions(request)) == [0, 1]
    assert request.session_epoch == 0
    is_gone = code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (request.session_id == 0) == is_gone


def test_a_leader_without_room_for_sessions_is_asked_for_everything_each_time() -> None:
    leader_log, log = new_log(), new_log()
    leader, follower = Leader(leader_log), Follower(log)
    leader.sessions._max_sessions = 0
    follower.follow()
    for _ in range(3):
        append(leader_log, 0, "a")
        follower.round(leader)
    assert log.log_end_offset == 3
    assert all(request.session_epoch == 0 for request in leader.requests)


def test_an_answer_with_partitions_that_were_not_asked_for_is_of_no_use() -> None:
    leader_log, log = new_log(), new_log()
    leader, follower = Leader(leader_log), Follower(log)
    follower.follow()
    response = leader.answer(follower.request())
    response.responses[0].partitions.append(PartitionData(partition_index=9))
    assert follower.fetcher.on_response(response, 0) is None


def test_a_throttled_partition_is_left_out_until_it_has_caught_up() -> None:
    logs, copies = [new_log(p) for p in range(2)], [new_log(p) for p in range(2)]
    leader, follower = Leader(*logs), Follower(*copies)
    for partition in range(2):
        follower.follow(partition=partition)
    follower.fetcher.throttle(key(1), True)
    assert sorted(positions(follower.request(is_quota_exceeded=True))) == [0]
    follower.fetcher.on_no_answer()
    waited = follower.fetcher.waits_for_quota
    follower.round(leader)  # the quota has room again
    assert (waited, follower.fetcher.waits_for_quota) == (True, False)
    request = follower.request(is_quota_exceeded=True)  # caught up: it stays
    assert request is not None
    assert request.forgotten_topics_data == []


def test_wrong_epochs_from_a_leader_cause_no_busy_loop() -> None:
    log = new_log()
    append(log, 0, "a")
    follower = Follower(log)
    followed = follower.follow()
    assert follower.request() is not None
    data = PartitionData(partition_index=0, high_watermark=0)
    data.diverging_epoch = PartitionData.EpochEndOffset(epoch=0, end_offset=1)
    topic = FetchResponse.FetchableTopicResponse(topic_id=key().topic_id, partitions=[data])
    (step,) = follower.fetcher.on_response(FetchResponse(responses=[topic]), 0) or []
    assert step == Step(followed, TruncateToEpoch(0, 1))
    follower.do([step])
    assert log.log_end_offset == 1
    assert follower.request() is None


def _grow(random: Random, log: Log, epoch: int) -> None:
    for _ in range(random.randrange(4)):
        append(log, epoch, *("x" * random.randrange(30) for _ in range(random.randrange(1, 4))))


@settings(deadline=None, max_examples=100)
@given(st.randoms(use_true_random=False))
def test_three_replicas_that_lead_in_turn_end_with_the_same_log(random: Random) -> None:
    """Every epoch has another leader with any log, as after the worst unclean elections."""
    logs = [new_log() for _ in range(3)]
    for epoch in range(random.randrange(1, 8)):
        leading = random.randrange(3)
        leader_log = logs[leading]
        leader_log.assign_epoch_start(epoch, leader_log.log_end_offset)
        _grow(random, leader_log, epoch)
        leader = Leader(leader_log, epoch=epoch)
        for number in random.sample(range(3), 3):
            if number == leading:
                continue
            follower = Follower(logs[number])
            follower.follow(epoch)
            for _ in range(random.randrange(5)):
                follower.round(leader)
                _grow(random, leader_log, epoch)
        leader_log.update_high_watermark(
            min(random.randrange(leader_log.log_end_offset + 1), leader_log.log_end_offset)
        )
        if random.randrange(3) == 0:
            leader_log.increment_log_start_offset(
                random.randrange(leader_log.log_start_offset, leader_log.high_watermark + 1)
            )
    append(logs[0], 100, "last")
    commit(logs[0])
    leader = Leader(logs[0], epoch=100)
    for log in logs[1:]:
        follower = Follower(log)
        follower.follow(100)
        follower.catch_up(leader)
        start = max(log.log_start_offset, logs[0].log_start_offset)
        assert content(log, start) == content(logs[0], start)
        for offset in range(start, log.log_end_offset):
            assert log.epochs.epoch_at(offset) == logs[0].epochs.epoch_at(offset)
