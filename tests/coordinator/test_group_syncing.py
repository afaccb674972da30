"""SyncGroup: the leader's assignment reaches every member once it is stored."""

import pytest
from group_scenario import REBALANCE_MS, SESSION_MS, Scenario, last_generation, with_config

from spindle.common.errors import ErrorCode
from spindle.coordinator.classic.classic_group import GroupState


def two_joined(s: Scenario) -> tuple[str, str]:
    """Make a group of leader and follower at generation 1 that waits for its assignment."""
    leader, join = s.join()
    follower, _ = s.join()
    s.advance_until_joined(join)
    return leader, follower


def test_followers_wait_for_the_leader() -> None:
    s = Scenario()
    leader, follower = two_joined(s)
    early = s.ask_sync(follower, 1)
    assert s.waits(early)
    lead = s.ask_sync(leader, 1, {leader: b"p0", follower: b"p1"})
    assert (s.synced(lead).assignment, s.synced(early).assignment) == (b"p0", b"p1")
    assert s.synced(early).protocol_name == "range"
    assert s.group().state is GroupState.STABLE
    assert s.synced(s.ask_sync(follower, 1)).assignment == b"p1"


def test_nobody_is_answered_before_the_record_is_committed() -> None:
    s = Scenario()
    leader, follower = two_joined(s)
    s.hold()
    early = s.ask_sync(follower, 1)
    lead = s.ask_sync(leader, 1, {leader: b"p0"})
    assert s.waits(early)
    assert s.waits(lead)
    s.commit()
    assert s.synced(lead).assignment == b"p0"
    assert s.synced(early).assignment == b""


def test_record_has_every_member_with_its_assignment() -> None:
    s = Scenario()
    leader, follower = two_joined(s)
    s.ask_sync(leader, 1, {leader: b"p0", "somebody else": b"p9"})
    value = last_generation(s)
    assert (value.generation, value.protocol, value.leader) == (1, "range", leader)
    assert [(m.member_id, m.assignment) for m in value.members] == [
        (leader, b"p0"),
        (follower, b""),
    ]


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failed_record_fails_all_syncs_and_begins_again(
    failure: ErrorCode, told: ErrorCode
) -> None:
    s = Scenario()
    leader, follower = two_joined(s)
    s.hold()
    early = s.ask_sync(follower, 1)
    lead = s.ask_sync(leader, 1, {leader: b"p0"})
    s.fail(failure)
    assert s.synced(early).error_code == s.synced(lead).error_code == told
    assert s.group().state is GroupState.PREPARING_REBALANCE


def test_record_of_an_overtaken_generation_changes_nothing() -> None:
    s = Scenario()
    leader, follower = two_joined(s)
    s.hold()
    lead = s.ask_sync(leader, 1, {leader: b"p0", follower: b"p1"})
    s.leave(follower)
    assert s.synced(lead).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = s.ask_join(leader)
    s.commit()
    assert s.joined(again).generation_id == 2
    assert s.group().state is GroupState.COMPLETING_REBALANCE


def test_sync_is_refused_as_the_member_is_wrong() -> None:
    s = Scenario()
    assert s.synced(s.ask_sync("x", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = s.stable_group()
    assert s.synced(s.ask_sync("x", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert s.synced(s.ask_sync(member, 2)).error_code == ErrorCode.ILLEGAL_GENERATION
    s.leave(member)
    assert s.group().state is GroupState.EMPTY
    assert s.synced(s.ask_sync(member, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "code"),
    [
        ("consumer", "range", ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_sync_names_the_protocol(protocol_type: str, protocol_name: str, code: ErrorCode) -> None:
    s = Scenario()
    (member,) = s.stable_group()
    sync = s.ask_sync(member, 1, protocol_type=protocol_type, protocol_name=protocol_name)
    assert s.synced(sync).error_code == code


def test_sync_during_the_join_phase_has_to_join() -> None:
    s = Scenario()
    first, _ = s.stable_group(2)
    s.join()
    assert s.synced(s.ask_sync(first, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_sync_are_removed() -> None:
    s = Scenario()
    leader, join = s.join(session_ms=REBALANCE_MS * 2)
    follower, _ = s.join(session_ms=REBALANCE_MS * 2)
    s.advance_until_joined(join)
    s.ask_sync(leader, 1, {})
    s.advance(REBALANCE_MS - 1)
    assert s.group().state is GroupState.STABLE
    s.advance(1)
    assert s.group().state is GroupState.PREPARING_REBALANCE
    assert list(s.group().members) == [leader]
    assert s.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_never_syncs_frees_its_followers() -> None:
    s = Scenario()
    leader, join = s.join(session_ms=REBALANCE_MS * 2)
    follower, _ = s.join(session_ms=REBALANCE_MS * 2)
    s.advance_until_joined(join)
    parked = s.ask_sync(follower, 1)
    s.advance(REBALANCE_MS)
    assert s.synced(parked).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in s.group().members


def test_session_does_not_end_while_a_sync_is_parked() -> None:
    s = Scenario()
    leader, follower = two_joined(s)
    parked = s.ask_sync(follower, 1)
    for _ in range(3):
        s.advance(SESSION_MS - 1)
        assert s.heartbeat(leader, 1) is ErrorCode.NONE
    s.ask_sync(leader, 1, {follower: b"p1"})
    assert s.synced(parked).assignment == b"p1"
    s.advance(SESSION_MS - 1)
    assert follower in s.group().members
    s.advance(1)
    assert follower not in s.group().members


def test_sync_that_is_sent_twice_answers_the_first_one() -> None:
    s = Scenario()
    leader, follower = two_joined(s)
    lost = s.ask_sync(follower, 1)
    parked = s.ask_sync(follower, 1)
    assert s.synced(lost).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    s.ask_sync(leader, 1, {follower: b"p1"})
    assert s.synced(parked).assignment == b"p1"


def test_parked_sync_of_a_member_that_is_removed_is_answered() -> None:
    s = Scenario()
    _, follower = two_joined(s)
    parked = s.ask_sync(follower, 1)
    s.leave(follower)
    assert s.synced(parked).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_parked_sync_of_an_instance_that_is_removed_is_answered() -> None:
    s = Scenario()
    _, join = s.join()
    static = s.ask_join(instance_id="a")
    s.advance_until_joined(join)
    member_id = s.joined(static).member_id
    parked = s.ask_sync(member_id, 1, instance_id="a")
    s.leave(("", "a"))
    assert s.synced(parked).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_second_assignment_of_a_generation_does_not_replace_the_first() -> None:
    s = Scenario()
    leader, follower = two_joined(s)
    s.hold()
    first = s.ask_sync(leader, 1, {leader: b"p0", follower: b"p1"})
    second = s.ask_sync(leader, 1, {leader: b"p1", follower: b"p0"})
    s.commit()
    assert s.synced(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert s.synced(second).assignment == b"p0"
    assert [m.assignment for m in last_generation(s).members] == [b"p0", b"p1"]


def test_assignment_of_a_former_group_of_that_name_is_not_delivered() -> None:
    s = with_config(initial_rebalance_delay_ms=0)
    s.hold()
    gone, join = s.join()
    s.advance(0)
    assert s.joined(join).generation_id == 1
    s.ask_sync(gone, 1, {gone: b"p0"})
    creation, assignment = s.held or []
    s.held = [creation]
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    member, join = s.join()
    s.advance(0)
    assert s.joined(join).generation_id == 1
    s.held = [assignment]
    s.commit()
    assert s.group().state is GroupState.COMPLETING_REBALANCE
    sync = s.ask_sync(member, 1, {member: b"p9"})
    assert s.synced(sync).assignment == b"p9"
