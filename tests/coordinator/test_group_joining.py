"""JoinGroup: which clients may join, under which member id, and how long the members wait."""

import pytest
from group_scenario import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Scenario,
    last_generation,
    subscription,
    with_config,
)

from spindle.common.errors import ErrorCode
from spindle.coordinator.classic.classic_group import GroupState

FIRST_ID = "00000000-0000-0000-0000-000000000001"


def test_new_member_is_given_an_id_to_join_with() -> None:
    s = Scenario()
    response = s.joined(s.ask_join(client_id="billing"))
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id == f"billing-{FIRST_ID}"
    assert s.group().state is GroupState.EMPTY
    assert s.waits(s.ask_join(response.member_id))


def test_member_id_is_not_required_before_version_4() -> None:
    s = Scenario()
    assert s.waits(s.ask_join(version=3))
    assert list(s.group().members) == [f"app-{FIRST_ID}"]


def test_static_member_needs_no_id_first() -> None:
    s = Scenario()
    assert s.waits(s.ask_join(instance_id="host-a"))
    assert list(s.group().members) == [f"host-a-{FIRST_ID}"]


def test_pending_member_id_is_removed_after_the_session_timeout() -> None:
    s = Scenario()
    member_id = s.joined(s.ask_join()).member_id
    s.advance(SESSION_MS)
    assert s.joined(s.ask_join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_first_join_stores_an_empty_group() -> None:
    s = Scenario()
    s.ask_join()
    (record,) = s.log
    assert record.group_id == "orders"
    value = last_generation(s)
    assert (value.generation, value.protocol_type) == (0, "")
    assert (value.protocol, value.leader, value.members) == (None, None, [])


def test_failed_first_record_undoes_the_group() -> None:
    s = Scenario()
    s.hold()
    join = s.ask_join(version=3)
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert s.joined(join).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert s.shard.groups.get("orders") is None
    s.advance(REBALANCE_MS)
    assert s.log == []


def test_an_unknown_member_of_a_missing_group_is_refused() -> None:
    s = Scenario()
    response = s.joined(s.ask_join("app-7"))
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "app-7")
    assert s.shard.groups.get("orders") is None


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", (("range", b""),)), ("consumer", ())],
)
def test_first_member_must_name_type_and_protocols(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    s = Scenario()
    response = s.joined(s.ask_join(protocol_type=protocol_type, protocols=protocols))
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("protocol_type", "protocol"), [("connect", "range"), ("consumer", "sticky")]
)
def test_later_member_must_fit_the_present_ones(protocol_type: str, protocol: str) -> None:
    s = Scenario()
    s.stable_group()
    response = s.joined(s.ask_join(protocol_type=protocol_type, protocols=((protocol, b""),)))
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_group_over_its_size_takes_no_new_member() -> None:
    s = with_config(max_size=2)
    members = s.stable_group(2)
    assert s.joined(s.ask_join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    s.ask_join(members[0])
    s.ask_join(members[1])
    assert s.group().state is GroupState.COMPLETING_REBALANCE


def test_last_to_rejoin_is_turned_away_when_the_limit_was_lowered() -> None:
    s = Scenario()
    first, second = s.stable_group(2)
    s.config = with_config(max_size=1).config
    s.start()
    assert s.group().state is GroupState.PREPARING_REBALANCE
    assert s.waits(s.ask_join(first))
    assert s.joined(s.ask_join(second)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(s.group().members) == [first]


# ---------------------------------------------------------------- the initial delay


def test_empty_group_waits_for_more_members() -> None:
    s = Scenario()
    member_id, join = s.join()
    s.advance(DELAY_MS - 1)
    assert s.waits(join)
    s.advance(1)
    response = s.joined(join)
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert (response.leader, response.protocol_name) == (member_id, "range")
    assert [m.member_id for m in response.members] == [member_id]


def test_every_new_member_extends_the_initial_delay() -> None:
    s = Scenario()
    _, first = s.join()
    s.advance(DELAY_MS - 1)
    _, second = s.join()
    s.advance(1)
    assert s.waits(first)
    s.advance(DELAY_MS)
    assert s.joined(first).generation_id == s.joined(second).generation_id == 1


def test_initial_delay_ends_with_the_rebalance_timeout() -> None:
    s = Scenario()
    _, first = s.join(rebalance_ms=7_000)
    for _ in range(2):
        s.advance(2_900)
        s.join(rebalance_ms=7_000)
    s.advance(1_199)
    assert s.waits(first)
    s.advance(1)
    assert s.joined(first).generation_id == 1


def test_delay_of_zero_begins_at_once() -> None:
    s = with_config(initial_rebalance_delay_ms=0)
    _, join = s.join()
    s.advance(0)
    assert s.joined(join).generation_id == 1


# ---------------------------------------------------------------- later rebalances


def test_new_member_makes_the_others_join_again() -> None:
    s = Scenario()
    (first,) = s.stable_group()
    second, join = s.join()
    assert s.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = s.ask_join(first)
    assert s.joined(again).generation_id == s.joined(join).generation_id == 2
    assert s.joined(join).leader == first
    assert s.joined(join).members == []
    assert [m.member_id for m in s.joined(again).members] == [first, second]


def test_member_that_does_not_join_again_is_removed() -> None:
    s = Scenario()
    first, second = s.stable_group(2, session_ms=REBALANCE_MS * 2)
    again = s.ask_join(first)
    s.advance(REBALANCE_MS - 1)
    assert s.waits(again)
    s.advance(1)
    assert s.joined(again).generation_id == 2
    assert s.heartbeat(second, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_join_again_is_replaced() -> None:
    s = Scenario()
    _, second = s.stable_group(2, session_ms=REBALANCE_MS * 2)
    _, third_join = s.join()
    again = s.ask_join(second)
    s.advance(REBALANCE_MS)
    assert s.joined(again).leader == s.joined(third_join).leader == second


def test_longest_rebalance_timeout_counts() -> None:
    s = Scenario()
    first, _ = s.stable_group(2, rebalance_ms=REBALANCE_MS * 2, session_ms=REBALANCE_MS * 3)
    again = s.ask_join(first, rebalance_ms=1_000)
    s.advance(REBALANCE_MS * 2 - 1)
    assert s.waits(again)
    s.advance(1)
    assert s.joined(again).generation_id == 2


def test_pending_member_is_waited_for() -> None:
    s = Scenario()
    (first,) = s.stable_group()
    pending = s.joined(s.ask_join()).member_id
    again = s.ask_join(first)
    assert s.waits(again)
    s.ask_join(pending)
    assert s.joined(again).generation_id == 2


def test_expired_pending_member_ends_the_wait() -> None:
    s = Scenario()
    (first,) = s.stable_group()
    s.ask_join()
    again = s.ask_join(first)
    s.advance(SESSION_MS)
    assert s.joined(again).generation_id == 2


def test_follower_that_joins_again_unchanged_starts_no_rebalance() -> None:
    s = Scenario()
    first, second = s.stable_group(2)
    response = s.joined(s.ask_join(second))
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert (response.leader, response.members) == (first, [])
    assert s.group().state is GroupState.STABLE


def test_follower_with_new_metadata_begins_a_rebalance() -> None:
    s = Scenario()
    _, second = s.stable_group(2)
    assert s.waits(s.ask_join(second, protocols=(("range", subscription("t", "u")),)))
    assert s.group().state is GroupState.PREPARING_REBALANCE


def test_leader_that_joins_again_begins_a_rebalance() -> None:
    s = Scenario()
    first, _ = s.stable_group(2)
    assert s.waits(s.ask_join(first))
    assert s.group().state is GroupState.PREPARING_REBALANCE


def test_lost_answer_is_given_again_while_the_assignment_is_made() -> None:
    s = Scenario()
    member_id, join = s.join()
    s.advance(DELAY_MS)
    assert s.joined(s.ask_join(member_id)) == s.joined(join)


def test_new_metadata_while_the_assignment_is_made_begins_again() -> None:
    s = Scenario()
    member_id, _ = s.join()
    s.advance(DELAY_MS)
    other = (("range", subscription("u")),)
    assert s.joined(s.ask_join(member_id, protocols=other)).generation_id == 2


def test_join_that_is_sent_twice_answers_the_first_one() -> None:
    s = Scenario()
    first, _ = s.stable_group(2)
    lost = s.ask_join(first)
    again = s.ask_join(first)
    assert s.joined(lost).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert s.waits(again)


# ---------------------------------------------------------------- protocols


def test_protocol_that_most_members_prefer_is_selected() -> None:
    s = Scenario()
    a, b, c = (b"a",), (b"b",), (b"c",)
    likes = [("roundrobin", "range"), ("range", "roundrobin"), ("range", "roundrobin")]
    joins = [
        s.join(protocols=tuple((name, meta[0]) for name in order))
        for order, meta in zip(likes, (a, b, c), strict=True)
    ]
    s.advance(DELAY_MS * 4)
    responses = [s.joined(token) for _, token in joins]
    assert {r.protocol_name for r in responses} == {"range"}
    assert [m.metadata for m in responses[0].members] == [b"a", b"b", b"c"]


def test_only_protocols_that_all_members_speak_are_candidates() -> None:
    s = Scenario()
    s.join(protocols=(("sticky", b""), ("range", b"")))
    s.join(protocols=(("sticky", b""), ("range", b"")))
    _, third = s.join(protocols=(("range", b""),))
    s.advance(DELAY_MS * 4)
    assert s.joined(third).protocol_name == "range"


def test_protocol_named_twice_counts_once() -> None:
    s = Scenario()
    s.join(protocols=(("range", b"1"), ("range", b"2")))
    _, second = s.join()
    s.advance(DELAY_MS * 3)
    assert s.joined(second).error_code == ErrorCode.NONE
    assert s.group().members[f"app-{FIRST_ID}"].protocols == (("range", b"1"),)
