"""Static members (KIP-345): an instance id keeps its place in the group when it restarts."""

import pytest
from group_scenario import DELAY_MS, REBALANCE_MS, SESSION_MS, Scenario

from spindle.common.errors import ErrorCode
from spindle.coordinator.classic.classic_group import GroupState


def static_group(s: Scenario, *instances: str) -> dict[str, str]:
    """Make a Stable group of static members; return the member id of each instance."""
    for instance in instances:
        s.ask_join(instance_id=instance)
    s.advance(DELAY_MS * (len(instances) + 1))
    members = dict(s.group().static_members)
    s.sync_all(list(members.values()))
    return members


def test_returning_member_gets_a_new_id_without_a_rebalance() -> None:
    s = Scenario()
    members = static_group(s, "a", "b")
    response = s.joined(s.ask_join(instance_id="b"))
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert response.member_id != members["b"]
    assert (response.leader, response.skip_assignment) == (members["a"], False)
    assert s.group().state is GroupState.STABLE
    sync = s.synced(s.ask_sync(response.member_id, 1))
    assert sync.assignment == f"for {members['b']}".encode()


def test_returning_member_may_read_other_topics() -> None:
    """The group that wrote the record must have the same topics as one that loads it."""
    t = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
    t_and_u = b"\0\0\0\0\0\2\0\1t\0\1u\xff\xff\xff\xff"
    s = Scenario()
    s.ask_join(instance_id="a", protocols=(("range", t),))
    s.advance(2 * DELAY_MS)
    s.sync_all(list(s.group().static_members.values()))
    assert s.group().subscribed_topics == frozenset({"t"})
    s.ask_join(instance_id="a", protocols=(("range", t_and_u),))
    assert s.group().state is GroupState.STABLE
    assert s.group().subscribed_topics == frozenset({"t", "u"})


def test_returning_leader_may_skip_the_assignment() -> None:
    s = Scenario()
    members = static_group(s, "a", "b")
    response = s.joined(s.ask_join(instance_id="a"))
    assert response.skip_assignment
    assert response.leader == response.member_id
    assert [m.member_id for m in response.members] == [members["b"], response.member_id]


def test_returning_leader_before_version_9_is_shown_its_old_id() -> None:
    s = Scenario()
    members = static_group(s, "a", "b")
    response = s.joined(s.ask_join(instance_id="a", version=8))
    assert (response.leader, response.members) == (members["a"], [])
    assert response.member_id != members["a"]
    assert not response.skip_assignment


def test_old_instance_is_fenced() -> None:
    s = Scenario()
    members = static_group(s, "a")
    s.ask_join(instance_id="a")
    old = members["a"]
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert s.heartbeat(old, 1, instance_id="a") is fenced
    assert s.synced(s.ask_sync(old, 1, instance_id="a")).error_code == fenced
    assert s.joined(s.ask_join(old, instance_id="a")).error_code == fenced
    assert s.leave((old, "a")) == [fenced]
    commit = s.commit_offsets({("t", 0): 1}, member_id=old, generation=1, instance_id="a")
    assert commit is fenced


def test_unknown_instance_id_is_an_unknown_member() -> None:
    s = Scenario()
    members = static_group(s, "a")
    assert s.heartbeat(members["a"], 1, instance_id="z") is ErrorCode.UNKNOWN_MEMBER_ID


def test_parked_join_of_the_old_instance_is_fenced() -> None:
    s = Scenario()
    old_join = s.ask_join(instance_id="a")
    new_join = s.ask_join(instance_id="a")
    assert s.joined(old_join).error_code == ErrorCode.FENCED_INSTANCE_ID
    s.advance(DELAY_MS * 2)
    assert s.joined(new_join).generation_id == 1


def test_parked_sync_of_the_old_instance_is_fenced_and_the_group_rebalances() -> None:
    s = Scenario()
    s.ask_join(instance_id="a")
    s.ask_join(instance_id="b")
    s.advance(DELAY_MS * 3)
    follower = s.group().static_members["b"]
    parked = s.ask_sync(follower, 1)
    join = s.ask_join(instance_id="b")
    assert s.synced(parked).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert s.waits(join)
    assert s.group().state is GroupState.PREPARING_REBALANCE


def test_returning_member_with_another_choice_of_protocol_begins_a_rebalance() -> None:
    s = Scenario()
    both = (("range", b""), ("sticky", b""))
    s.ask_join(instance_id="a", protocols=both)
    s.advance(DELAY_MS)
    s.sync_all(list(s.group().members))
    join = s.ask_join(instance_id="a", protocols=(("sticky", b""), ("range", b"")))
    assert s.joined(join).generation_id == 2
    assert s.joined(join).protocol_name == "sticky"


def test_failed_record_of_a_return_restores_the_old_id() -> None:
    s = Scenario()
    members = static_group(s, "a")
    s.hold()
    join = s.ask_join(instance_id="a")
    assert s.waits(join)
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert s.joined(join).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert s.heartbeat(members["a"], 1, instance_id="a") is ErrorCode.NONE


def test_rebalance_that_begins_during_the_record_answers_the_return() -> None:
    s = Scenario()
    static_group(s, "a", "b")
    s.hold()
    back = s.ask_join(instance_id="b")
    leader = s.group().static_members["a"]
    lead = s.ask_join(leader, instance_id="a")
    s.commit()
    assert s.joined(back).generation_id == s.joined(lead).generation_id == 2


def test_absent_static_member_stays_until_its_session_ends() -> None:
    s = Scenario()
    static_group(s, "a", "b")
    other = s.group().static_members["b"]
    s.join()
    s.ask_join(other, instance_id="b")
    s.advance(SESSION_MS - 1)
    assert "a" in s.group().static_members
    s.advance(1)
    assert "a" not in s.group().static_members


def test_rebalance_completes_with_absent_static_members() -> None:
    s = Scenario()
    for instance in ("a", "b"):
        s.ask_join(instance_id=instance, session_ms=REBALANCE_MS * 5)
    s.advance(DELAY_MS * 3)
    members = dict(s.group().static_members)
    s.sync_all(list(members.values()))
    join = s.ask_join(members["b"], instance_id="b", protocols=(("range", b"new"),))
    s.advance(REBALANCE_MS)
    response = s.joined(join)
    assert response.generation_id == 2
    assert response.leader == members["b"]
    assert len(response.members) == 2


def test_rebalance_waits_on_when_only_absent_static_members_are_left() -> None:
    s = Scenario()
    for instance in ("a", "b"):
        s.ask_join(instance_id=instance, session_ms=REBALANCE_MS * 5)
    s.advance(DELAY_MS * 3)
    members = dict(s.group().static_members)
    s.sync_all(list(members.values()))
    dynamic, _ = s.join()
    s.leave(dynamic)
    s.advance(REBALANCE_MS)
    assert s.group().state is GroupState.PREPARING_REBALANCE
    assert s.group().generation_id == 1
    s.advance(REBALANCE_MS * 5)
    assert s.group().state is GroupState.EMPTY


def test_static_member_is_removed_by_its_instance_id_alone() -> None:
    s = Scenario()
    static_group(s, "a", "b")
    assert s.leave(("", "a"), ("", "z")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(s.group().static_members) == ["b"]
    assert s.group().state is GroupState.PREPARING_REBALANCE


def test_static_members_survive_a_change_of_coordinator() -> None:
    s = Scenario()
    members = static_group(s, "a", "b")
    s.start()
    assert s.group().static_members == members
    assert s.heartbeat(members["a"], 1, instance_id="a") is ErrorCode.NONE


def test_failed_record_of_a_return_leaves_the_rebalance_alone_that_began_meanwhile() -> None:
    s = Scenario()
    ids = static_group(s, "a", "b")
    s.hold()
    back = s.ask_join(instance_id="b")
    again = s.ask_join(ids["a"], instance_id="a")
    new_id = s.joined(back).member_id
    assert s.joined(again).generation_id == s.joined(back).generation_id == 2
    parked = s.ask_sync(new_id, 2, instance_id="b")
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert s.waits(parked)
    s.ask_sync(ids["a"], 2, {new_id: b"p1"}, instance_id="a")
    assert s.synced(parked).assignment == b"p1"


def test_session_of_a_returning_member_ends_also_if_its_record_took_longer() -> None:
    s = Scenario()
    ids = static_group(s, "a", "b")
    s.hold()
    back = s.ask_join(instance_id="b")
    s.advance(SESSION_MS - 1)
    assert s.heartbeat(ids["a"], 1, instance_id="a") is ErrorCode.NONE
    s.advance(1)
    s.commit()
    new_id = s.joined(back).member_id
    s.advance(SESSION_MS)
    assert new_id not in s.group().members


@pytest.mark.parametrize("rebalance_ms", [-(2**31), -1, 0])
def test_absent_static_member_without_a_rebalance_timeout_is_waited_for(rebalance_ms: int) -> None:
    s = Scenario()
    static = s.ask_join(instance_id="s")
    dynamic, join = s.join()
    s.advance_until_joined(join)
    s.sync_all([s.joined(static).member_id, dynamic])
    s.ask_join(instance_id="s", rebalance_ms=rebalance_ms)
    s.leave(dynamic)
    s.advance(SESSION_MS - 1)
    assert s.group().state is GroupState.PREPARING_REBALANCE
    s.advance(1)
    assert s.group().state is GroupState.EMPTY
