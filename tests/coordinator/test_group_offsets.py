"""OffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups and expiry."""

import pytest
from coordinator_log import image_of, topic
from group_scenario import RANGE, REBALANCE_MS, Scenario, subscription, with_config

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.coordinator.classic.classic_group import GroupState
from spindle.coordinator.consumer.subscriptions import TopicsView
from spindle.coordinator.coordinator_result import GroupResult
from spindle.coordinator.descriptions import describe_group, list_groups
from spindle.coordinator.records import CommittedOffset, GroupRecord, OffsetRecord

RETENTION_MS = 7 * 24 * 3_600_000
ID_A, ID_B = b"a" * 16, b"b" * 16


def present(s: Scenario, topic_id: bytes) -> Scenario:
    """Let the cluster have one topic, of the name `t`."""
    s.shard.groups.view = TopicsView(image_of(topic("t", topic_id, 4)).topics, 1)
    return s


# ---------------------------------------------------------------- committing


def test_commit_without_membership_makes_a_simple_group() -> None:
    s = Scenario()
    assert s.commit_offsets({("t", 0): 5, ("t", 1): 7}) is ErrorCode.NONE
    assert s.fetch(("t", 0), ("t", 1), ("t", 2)) == {("t", 0): 5, ("t", 1): 7, ("t", 2): -1}
    assert s.group().is_simple
    (listed,) = list_groups(s.shard.groups, [], [])
    assert (listed.protocol_type, listed.group_state) == ("", "Empty")


def test_commit_is_visible_once_it_is_committed() -> None:
    s = Scenario()
    s.hold()
    token = s.ask_commit({("t", 0): 5})
    assert s.waits(token)
    assert s.fetch(("t", 0)) == {("t", 0): -1}
    s.commit()
    assert not s.waits(token)
    assert s.fetch(("t", 0)) == {("t", 0): 5}


def test_failed_commit_changes_nothing() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5})
    s.hold()
    token = s.ask_commit({("t", 0): 6})
    s.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert s.answers[token].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert s.fetch(("t", 0)) == {("t", 0): 5}


def test_commit_stores_what_the_request_says() -> None:
    s = present(Scenario(), ID_A)
    s.commit_offsets({("t", 0): 5}, metadata="note", topic_id=ID_A)
    assert s.offset("t", 0) == CommittedOffset(5, -1, "note", s.now_ms, -1, ID_A, 0)


def test_null_metadata_is_stored_as_empty_text() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5}, metadata=None)
    committed = s.offset("t", 0)
    assert committed is not None
    assert committed.metadata == ""


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 16, ErrorCode.NONE),
        ("x" * 17, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\N{GRINNING FACE}" * 8, ErrorCode.NONE),
        ("\N{GRINNING FACE}" * 9, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_has_a_limit_in_utf16_units(metadata: str, code: ErrorCode) -> None:
    s = with_config(offset_metadata_max_bytes=16)
    assert s.commit_offsets({("t", 0): 5}, metadata=metadata) is code
    assert bool(s.log) is (code is ErrorCode.NONE)


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_generation_of_a_group_that_does_not_exist(version: int, code: ErrorCode) -> None:
    s = Scenario()
    assert s.commit_offsets({("t", 0): 1}, member_id="x", generation=3, version=version) is code


def test_members_commit_with_their_generation() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    assert s.commit_offsets({("t", 0): 1}, member_id=member, generation=1) is ErrorCode.NONE
    illegal = s.commit_offsets({("t", 0): 1}, member_id=member, generation=0)
    assert illegal is ErrorCode.ILLEGAL_GENERATION
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert s.commit_offsets({("t", 0): 1}, member_id="x", generation=1) is unknown
    assert s.commit_offsets({("t", 0): 1}) is unknown


def test_commit_during_the_join_phase_is_accepted() -> None:
    s = Scenario()
    first, _ = s.stable_group(2)
    s.join()
    assert s.group().state is GroupState.PREPARING_REBALANCE
    assert s.commit_offsets({("t", 0): 1}, member_id=first, generation=1) is ErrorCode.NONE


def test_commit_while_the_assignment_is_made_is_refused() -> None:
    s = Scenario()
    member, join = s.join()
    s.advance_until_joined(join)
    code = s.commit_offsets({("t", 0): 1}, member_id=member, generation=1)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS


def test_tool_may_commit_while_the_group_is_empty() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    s.leave(member)
    assert s.commit_offsets({("t", 0): 0}) is ErrorCode.NONE
    refused = s.commit_offsets({("t", 0): 0}, member_id=member, generation=2)
    assert refused is ErrorCode.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------- fetching


def test_missing_group_and_group_without_commits_have_no_offsets() -> None:
    s = Scenario()
    assert s.fetch() == {}
    assert s.fetch(("t", 0)) == {("t", 0): -1}
    s.stable_group()
    assert s.fetch() == {}


def test_all_offsets_of_a_group() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5, ("u", 3): 9})
    s.commit_offsets({("t", 1): 6})
    s.commit_offsets({("t", 0): 1}, group="other")
    assert s.fetch() == {("t", 0): 5, ("t", 1): 6, ("u", 3): 9}


@pytest.mark.parametrize(
    ("stored", "asked", "offset"),
    [(ID_A, ID_A, 5), (ID_A, ID_B, -1), (ZERO_UUID, ID_B, 5), (ID_A, ZERO_UUID, 5)],
)
def test_offset_of_a_former_topic_of_that_name_is_not_shown(
    stored: bytes, asked: bytes, offset: int
) -> None:
    s = present(Scenario(), stored)
    s.commit_offsets({("t", 0): 5}, topic_id=stored)
    assert s.fetch(("t", 0), topic_id=asked) == {("t", 0): offset}


def test_a_commit_that_waited_until_its_topic_was_deleted_is_refused() -> None:
    s = present(Scenario(), ID_B)
    assert s.commit_offsets({("t", 0): 5}, topic_id=ID_B) is ErrorCode.NONE
    late = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert s.commit_offsets({("t", 0): 9}, topic_id=ID_A) is late
    assert s.add_offsets({("t", 0): 9}, topic_ids={"t": ID_A}) is late
    assert s.fetch(("t", 0)) == {("t", 0): 5}


# ---------------------------------------------------------------- transactions


def pending(s: Scenario, offset: int, record_offset: int, producer_id: int = 7) -> None:
    record = OffsetRecord(
        "orders", TopicPartition("t", 0), CommittedOffset(offset, record_offset=record_offset)
    )
    s.shard.replay(record, producer_id)
    s.shard.check()


def test_transactional_offset_is_pending_until_the_marker() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5})
    pending(s, 8, record_offset=1)
    assert s.fetch(("t", 0)) == {("t", 0): 5}
    unstable = {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert s.fetch(("t", 0), require_stable=True) == unstable
    assert s.fetch(require_stable=True) == unstable
    s.shard.replay_marker(7, is_commit=True)
    s.shard.check()
    assert s.fetch(("t", 0), require_stable=True) == {("t", 0): 8}


def test_aborted_offset_is_dropped() -> None:
    s = Scenario()
    pending(s, 8, record_offset=1)
    s.shard.replay_marker(7, is_commit=False)
    s.shard.check()
    assert s.fetch(("t", 0), require_stable=True) == {("t", 0): -1}


def test_marker_does_not_bring_back_an_older_offset() -> None:
    s = Scenario()
    pending(s, 8, record_offset=0)
    s.shard.replay(
        OffsetRecord("orders", TopicPartition("t", 0), CommittedOffset(9, record_offset=1))
    )
    s.shard.replay_marker(7, is_commit=True)
    assert s.fetch(("t", 0)) == {("t", 0): 9}


def test_markers_of_others_and_of_nobody_change_nothing() -> None:
    s = Scenario()
    pending(s, 8, record_offset=0)
    pending(s, 9, record_offset=1, producer_id=8)
    s.shard.replay_marker(99, is_commit=True)
    s.shard.replay_marker(8, is_commit=False)
    s.shard.check()
    assert s.fetch(("t", 0), require_stable=True) == {("t", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    s.shard.replay_marker(7, is_commit=True)
    assert s.fetch(("t", 0), require_stable=True) == {("t", 0): 8}


def test_deleting_an_offset_takes_pending_ones_with_it() -> None:
    s = Scenario()
    pending(s, 8, record_offset=0)
    assert s.delete_offsets(("t", 0)) == [ErrorCode.NONE]
    s.shard.replay_marker(7, is_commit=True)
    assert s.fetch(("t", 0), require_stable=True) == {("t", 0): -1}


# ---------------------------------------------------------------- deleting


def test_offsets_of_a_simple_group_are_deleted() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5, ("t", 1): 6})
    assert s.delete_offsets(("t", 0), ("t", 9)) == [ErrorCode.NONE, ErrorCode.NONE]
    assert s.log[2:] == [OffsetRecord("orders", TopicPartition("t", 0), None)]
    assert s.fetch() == {("t", 1): 6}


def test_offsets_that_the_group_reads_are_kept() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    s.commit_offsets({("t", 0): 5, ("u", 0): 6}, member_id=member, generation=1)
    codes = s.delete_offsets(("t", 0), ("u", 0))
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert s.fetch() == {("t", 0): 5}


def test_group_with_unreadable_metadata_reads_everything() -> None:
    s = Scenario()
    s.stable_group(protocols=(("range", b"?"),))
    assert s.delete_offsets(("u", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_groups_of_other_types_need_them_empty() -> None:
    s = Scenario()
    assert s.delete_offsets(("t", 0)) is ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = s.stable_group(protocol_type="connect")
    assert s.delete_offsets(("t", 0)) is ErrorCode.NON_EMPTY_GROUP
    s.leave(member)
    assert s.delete_offsets(("t", 0)) == [ErrorCode.NONE]


def test_group_is_deleted_with_its_offsets() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5, ("u", 1): 6})
    assert s.delete_groups("orders", "nope") == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert s.log[2:] == [
        OffsetRecord("orders", TopicPartition("t", 0), None),
        OffsetRecord("orders", TopicPartition("u", 1), None),
        GroupRecord("orders", None),
    ]
    assert s.shard.groups.get("orders") is None
    assert s.fetch() == {}


def test_group_with_members_is_not_deleted() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    assert s.delete_groups("orders") == [ErrorCode.NON_EMPTY_GROUP]
    s.leave(member)
    assert s.delete_groups("orders") == [ErrorCode.NONE]


def test_deleting_a_group_takes_pending_offsets_with_it() -> None:
    s = Scenario()
    pending(s, 8, record_offset=0)
    s.delete_groups("orders")
    assert s.log == [
        OffsetRecord("orders", TopicPartition("t", 0), None),
        GroupRecord("orders", None),
    ]


def test_offsets_go_with_their_topic() -> None:
    s = present(Scenario(), ID_A)
    s.commit_offsets({("t", 0): 5}, topic_id=ID_A)
    present(s, ID_B).commit_offsets({("t", 1): 5}, topic_id=ID_B)
    s.commit_offsets({("t", 2): 5, ("u", 0): 5})
    out = GroupResult(s.now_ms)
    s.shard.offset_requests.on_topics_deleted([(ID_A, "t")], out)
    assert out.records == [
        OffsetRecord("orders", TopicPartition("t", 0), None),
        OffsetRecord("orders", TopicPartition("t", 2), None),
    ]


# ---------------------------------------------------------------- expiry


def test_offsets_of_a_simple_group_expire_after_their_commit() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5})
    s.advance(RETENTION_MS // 2)
    s.commit_offsets({("t", 1): 6})
    s.advance(RETENTION_MS // 2 + 600_000)
    assert s.fetch() == {("t", 1): 6}
    s.advance(RETENTION_MS)
    assert s.fetch() == {}
    assert s.log[-1] == GroupRecord("orders", None)


def test_offsets_of_an_empty_group_expire_after_its_last_member_left() -> None:
    s = Scenario()
    (member,) = s.stable_group(session_ms=RETENTION_MS * 3)
    s.commit_offsets({("t", 0): 5}, member_id=member, generation=1)
    s.advance(RETENTION_MS * 2)
    s.leave(member)
    s.advance(RETENTION_MS - 1)
    assert s.fetch() == {("t", 0): 5}
    s.advance(600_000)
    assert s.fetch() == {}
    assert s.shard.groups.get("orders") is None


def test_offsets_that_a_stable_group_reads_do_not_expire() -> None:
    s = Scenario()
    (member,) = s.stable_group(session_ms=RETENTION_MS * 3)
    s.commit_offsets({("t", 0): 5, ("u", 0): 6}, member_id=member, generation=1)
    s.advance(RETENTION_MS + 600_000)
    assert s.fetch() == {("t", 0): 5}


def test_offsets_of_other_group_types_do_not_expire_while_it_has_members() -> None:
    s = Scenario()
    (member,) = s.stable_group(protocol_type="connect", session_ms=RETENTION_MS * 3)
    s.commit_offsets({("t", 0): 5}, member_id=member, generation=1)
    s.advance(RETENTION_MS + 600_000)
    assert s.fetch() == {("t", 0): 5}


def test_old_clients_choose_their_own_retention() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5}, retention_ms=1_000_000, version=4)
    s.advance(600_000)
    assert s.fetch() == {("t", 0): 5}
    s.advance(600_000)
    assert s.fetch() == {}


def test_a_retention_beyond_all_time_is_kept_for_as_long_as_a_record_can_say() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5}, retention_ms=2**63 - 1, version=4)
    record = s.log[-1]
    assert isinstance(record, OffsetRecord)
    assert record.committed is not None
    assert record.committed.expire_timestamp_ms == 2**63 - 1
    s.advance(RETENTION_MS * 2)
    assert s.fetch() == {("t", 0): 5}


def test_open_transaction_keeps_offset_and_group() -> None:
    s = Scenario()
    s.commit_offsets({("t", 0): 5})
    pending(s, 8, record_offset=1)
    s.advance(RETENTION_MS * 2)
    assert s.fetch() == {("t", 0): 5}
    s.shard.replay_marker(7, is_commit=False)
    s.advance(600_000)
    assert s.shard.groups.get("orders") is None


def test_group_that_never_had_a_member_is_deleted_at_the_next_check() -> None:
    s = Scenario()
    s.ask_join(session_ms=1_200_001)
    s.advance(600_000)
    assert s.log[-1] != GroupRecord("orders", None)
    s.advance(1_200_000)
    assert s.log[-1] == GroupRecord("orders", None)


# ---------------------------------------------------------------- looking


def test_stable_group_is_described_with_its_members() -> None:
    s = Scenario()
    (member,) = s.stable_group()
    group = describe_group(s.shard.groups, "orders", 6)
    assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
    assert group.protocol_data == "range"
    (described,) = group.members
    assert (described.member_id, described.client_id) == (member, "app")
    assert described.client_host == "/127.0.0.1"
    assert described.member_metadata == RANGE[0][1] == subscription("t")
    assert described.member_assignment == f"for {member}".encode()


def test_rebalancing_group_is_described_without_metadata() -> None:
    s = Scenario()
    s.stable_group(2)
    s.join()
    group = describe_group(s.shard.groups, "orders", 6)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata for m in group.members] == [b"", b"", b""]


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_missing_group_is_described_as_dead(version: int, code: ErrorCode) -> None:
    s = Scenario()
    group = describe_group(s.shard.groups, "nope", version)
    assert (group.group_id, group.group_state, group.error_code) == ("nope", "Dead", code)
    assert (group.error_message is None) is (code is ErrorCode.NONE)


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        ([], [], ["orders", "simple"]),
        (["stable"], [], ["orders"]),
        ([" EMPTY "], ["Classic"], ["simple"]),
        (["Stable", "Empty"], ["consumer", "classic"], ["orders", "simple"]),
        ([], ["consumer"], []),
        ([], ["nonsense"], []),
        (["nonsense"], [], []),
    ],
)
def test_groups_are_listed_by_state_and_type(
    states: list[str], types: list[str], listed: list[str]
) -> None:
    s = Scenario()
    s.stable_group()
    s.commit_offsets({("t", 0): 5}, group="simple")
    groups = list_groups(s.shard.groups, states, types)
    assert [group.group_id for group in groups] == listed
    assert {group.group_type for group in groups} <= {"classic"}


def test_group_is_listed_once_it_is_stored() -> None:
    s = Scenario()
    s.hold()
    s.ask_join(rebalance_ms=REBALANCE_MS)
    assert list_groups(s.shard.groups, [], []) == []
    s.commit()
    assert [group.group_id for group in list_groups(s.shard.groups, [], [])] == ["orders"]
