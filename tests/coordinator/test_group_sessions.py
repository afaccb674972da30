"""Heartbeat, LeaveGroup, session timeouts, and a change of coordinator."""

import pytest
from group_scenario import DELAY_MS, REBALANCE_MS, SESSION_MS, Scenario, last_generation

from spindle.common.errors import ErrorCode
from spindle.coordinator.classic.classic_group import GroupState
from spindle.coordinator.coordinator_result import GroupResult
from spindle.protocol.messages.join_group import JoinGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupResponse


def test_heartbeat_is_refused_as_the_member_is_wrong() -> None:
    s = Scenario()
    assert s.heartbeat("x", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = s.stable_group()
    assert s.heartbeat("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.heartbeat(member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert s.heartbeat(member, 1) is ErrorCode.NONE


def test_heartbeats_keep_a_member_in_the_group() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    for _ in range(3):
        s.advance(SESSION_MS - 1)
        assert s.heartbeat(member, 1) is ErrorCode.NONE
    s.advance(SESSION_MS)
    assert s.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.group().state is GroupState.EMPTY


def test_heartbeat_counts_while_the_assignment_is_made() -> None:
    s = Scenario()
    member, _ = s.join()
    s.advance(DELAY_MS)
    assert s.heartbeat(member, 1) is ErrorCode.NONE


def test_commit_counts_as_a_heartbeat() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    for _ in range(3):
        s.advance(SESSION_MS - 1)
        s.commit_offsets({("t", 0): 1}, member_id=member, generation=1)
    assert s.heartbeat(member, 1) is ErrorCode.NONE


def test_parked_rejoin_outlives_the_session() -> None:
    s = Scenario()
    first, second = s.stable_group(2)
    again = s.ask_join(first)
    for _ in range(4):
        s.advance(SESSION_MS - 1)
        assert s.heartbeat(second, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert s.waits(again)
    assert first in s.group().members


def test_parked_first_join_is_removed_after_five_minutes() -> None:
    s = Scenario()
    first, _ = s.stable_group(2, rebalance_ms=1_000_000, session_ms=1_000_000)
    newcomer, join = s.join(rebalance_ms=1_000_000)
    s.ask_join(first, rebalance_ms=1_000_000, session_ms=1_000_000)
    s.advance(300_000 - 1)
    assert s.waits(join)
    s.advance(1)
    assert s.joined(join).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer not in s.group().members


def test_expired_member_makes_the_others_join_again() -> None:
    s = Scenario()
    first, second = s.stable_group(2)
    s.advance(SESSION_MS - 1)
    s.heartbeat(second, 1)
    s.advance(1)
    assert first not in s.group().members
    assert s.heartbeat(second, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert s.joined(s.ask_join(second)).leader == second


def test_expired_member_ends_the_join_phase_of_the_others() -> None:
    s = Scenario()
    first, _ = s.stable_group(2)
    again = s.ask_join(first)
    s.advance(SESSION_MS)
    assert s.joined(again).generation_id == 2


# ---------------------------------------------------------------- leaving


def test_leaving_member_makes_the_others_join_again() -> None:
    s = Scenario()
    first, second = s.stable_group(2)
    assert s.leave(first) == [ErrorCode.NONE]
    assert s.heartbeat(second, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_last_member_leaves_an_empty_group_with_a_record() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    s.leave(member)
    assert s.group().state is GroupState.EMPTY
    value = last_generation(s)
    assert (value.generation, value.protocol_type) == (2, "consumer")
    assert (value.protocol, value.leader, value.members) == (None, None, [])
    assert value.current_state_timestamp == s.now_ms


def test_leave_is_answered_for_every_member() -> None:
    s = Scenario()
    first, second = s.stable_group(2)
    pending = s.joined(s.ask_join()).member_id
    none, unknown = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
    assert s.leave(first, "x", pending, second) == [none, unknown, none, none]
    assert s.group().state is GroupState.EMPTY


def test_a_leave_of_unknown_members_changes_nothing() -> None:
    s = Scenario()
    s.stable_group()
    assert s.leave("x") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert s.group().state is GroupState.STABLE


def test_member_that_leaves_during_the_join_phase_is_not_waited_for() -> None:
    s = Scenario()
    first, second = s.stable_group(2)
    again = s.ask_join(first)
    s.leave(second)
    assert s.joined(again).generation_id == 2


def test_leaving_with_a_parked_join_answers_it() -> None:
    s = Scenario()
    member, join = s.join()
    s.leave(member)
    assert s.joined(join).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------- a new coordinator


def test_stable_group_continues_under_a_new_coordinator() -> None:
    s = Scenario()
    first, second = s.stable_group(2)
    s.start()
    assert s.group().state is GroupState.STABLE
    assert s.heartbeat(first, 1) is ErrorCode.NONE
    assert s.synced(s.ask_sync(second, 1)).assignment == f"for {second}".encode()
    s.advance(SESSION_MS)
    assert s.group().state is GroupState.EMPTY


def test_unfinished_rebalance_falls_back_to_the_stored_generation() -> None:
    s = Scenario()
    (first,) = s.stable_group()
    s.join()
    s.start()
    assert s.group().state is GroupState.STABLE
    assert list(s.group().members) == [first]
    assert s.heartbeat(first, 1) is ErrorCode.NONE


@pytest.mark.parametrize("is_joining", [True, False])
def test_unloading_sends_parked_requests_away(is_joining: bool) -> None:
    s = Scenario()
    leader, _ = s.join()
    follower, join = s.join()
    if is_joining:
        parked = join
    else:
        s.advance(DELAY_MS * 3)
        parked = s.ask_sync(follower, 1)
    out = GroupResult(s.now_ms)
    s.shard.unloaded(out)
    answers = dict(out.answers)
    answer = answers[parked]
    assert isinstance(answer, JoinGroupResponse | SyncGroupResponse)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert leader in s.group().members
    assert s.group().state is GroupState.DEAD


def test_dead_group_answers_nothing_of_its_own() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    s.shard.unloaded(GroupResult(s.now_ms))
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert s.joined(s.ask_join(member)).error_code == gone
    assert s.synced(s.ask_sync(member, 1)).error_code == gone
    assert s.heartbeat(member, 1) is gone
    assert s.commit_offsets({("t", 0): 1}, member_id=member, generation=1) is gone
    assert s.delete_groups("orders") == [ErrorCode.GROUP_ID_NOT_FOUND]
    s.advance(REBALANCE_MS)
    assert member in s.group().members
