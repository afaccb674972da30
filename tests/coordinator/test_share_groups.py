"""Share groups (KIP-932): joining, states of partitions, assignment, leaving, administration."""

from typing import Any

import pytest
from consumer_group_scenario import topic_id, topics_image
from group_scenario import GROUP, Scenario

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.coordinator.config import GroupCoordinatorConfig, ShareGroupConfig
from spindle.coordinator.consumer.subscriptions import TopicsView
from spindle.coordinator.coordinator_result import Client, GroupRequest
from spindle.coordinator.descriptions import list_groups
from spindle.coordinator.share.assignor import assign
from spindle.coordinator.share.descriptions import describe_share_group
from spindle.coordinator.share.group_records import ShareGroupRecord, ShareRecordKind, StateTopic
from spindle.coordinator.share.heartbeat import check_request
from spindle.coordinator.share.share_group import ShareGroup, ShareGroupState
from spindle.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

CLIENT = Client("client", "/127.0.0.1", 1)


class ShareScenario(Scenario):
    """A shard with members of a share group.

    Attributes:
        topics: the topics of the cluster.
    """

    def __init__(self, max_size: int = 200, **counts: int) -> None:
        self.topics = topics_image(**(counts or {"t": 2}))
        share = ShareGroupConfig(assignment_interval_ms=0, max_size=max_size)
        super().__init__(GroupCoordinatorConfig(share=share))

    def start(self) -> None:
        super().start()
        self.shard.groups.view = TopicsView(self.topics, 7)

    @property
    def share(self) -> ShareGroup:
        return self.shard.groups.share[GROUP]

    def beat(self, member_id: str, epoch: int, *topics: str) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=list(topics) or None,
        )
        check_request(request)
        self.shard.groups.view = TopicsView(self.topics, 7)
        token = self._ask(
            lambda token, out: self.shard.share.heartbeat(GroupRequest(token, request, out, CLIENT))
        )
        answer = self.answers[token]
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        return answer

    def refused(self, member_id: str, epoch: int, *topics: str) -> ErrorCode:
        with pytest.raises(ApiError) as error:
            self.beat(member_id, epoch, *topics)
        return error.value.code

    def initialize(self) -> None:
        """Create the states that are missing."""
        change = self.shard.share.due_initializations(GROUP)
        assert change is not None
        self.act(self.shard.share.initialized, GROUP, change.partitions)

    def join_share(self, member_id: str, *topics: str) -> ShareGroupHeartbeatResponse:
        """Join, and return the first answer with an assignment."""
        answer = self.beat(member_id, 0, *(topics or ("t",)))
        if self.shard.share.due_initializations(GROUP) is not None:
            self.initialize()
            answer = self.beat(member_id, answer.member_epoch)
        return answer

    def act(self, operation: Any, *arguments: Any) -> None:
        """Run an operation of an administrator."""
        self._run(operation, *arguments)


def partitions(answer: ShareGroupHeartbeatResponse) -> list[tuple[bytes, int]] | None:
    if answer.assignment is None:
        return None
    return [(t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions]


T0, T1 = (topic_id("t"), 0), (topic_id("t"), 1)


def test_partitions_are_assigned_when_their_states_exist() -> None:
    s = ShareScenario()
    first = s.beat("a", 0, "t")
    assert partitions(first) == []
    change = s.shard.share.due_initializations(GROUP)
    assert change is not None
    assert change.partitions == [TopicIdPartition(*T0), TopicIdPartition(*T1)]
    assert partitions(s.beat("a", first.member_epoch)) is None
    s.initialize()
    second = s.beat("a", first.member_epoch)
    assert partitions(second) == [T0, T1]
    assert second.member_epoch == first.member_epoch + 1
    assert s.share.state is ShareGroupState.STABLE


def test_a_heartbeat_without_news_writes_nothing_and_has_no_assignment() -> None:
    s = ShareScenario()
    epoch = s.join_share("a").member_epoch
    written = len(s.log)
    answer = s.beat("a", epoch)
    assert answer.assignment is None
    assert answer.member_epoch == epoch
    assert len(s.log) == written


def test_the_next_coordinator_continues_where_the_former_one_stopped() -> None:
    s = ShareScenario()
    epoch = s.beat("a", 0, "t").member_epoch
    s.start()
    s.initialize()
    s.start()
    answer = s.beat("a", epoch)
    assert partitions(answer) == [T0, T1]
    before = s.share.members
    s.start()
    assert s.share.members == before


def test_more_members_than_partitions_share_them() -> None:
    s = ShareScenario()
    for member in "abcde":
        s.join_share(member)
    held = [s.share.targets[member] for member in "abcde"]
    assert all(len(target) == 1 for target in held)
    owners = [index for target in held for ps in target.values() for index in ps]
    assert sorted(owners) in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])


def test_a_new_partition_gets_a_state_before_it_is_assigned() -> None:
    s = ShareScenario()
    epoch = s.join_share("a").member_epoch
    s.topics = topics_image(t=3)
    epoch = s.beat("a", epoch).member_epoch
    assert s.share.members["a"].assigned == {topic_id("t"): frozenset({0, 1})}
    s.initialize()
    answer = s.beat("a", epoch)
    assert partitions(answer) == [T0, T1, (topic_id("t"), 2)]


def test_a_member_that_is_silent_too_long_is_removed() -> None:
    s = ShareScenario()
    s.join_share("a")
    s.advance(45_001)
    assert s.share.state is ShareGroupState.EMPTY
    assert s.refused("a", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_is_gone_and_others_get_its_partitions() -> None:
    s = ShareScenario()
    s.join_share("a")
    s.join_share("b")
    epoch = s.beat("a", s.share.members["a"].epoch).member_epoch
    assert len(s.share.members["a"].assigned[topic_id("t")]) == 1
    assert s.beat("b", -1).member_epoch == -1
    assert partitions(s.beat("a", epoch)) == [T0, T1]


def test_epochs_that_do_not_fit_are_fenced() -> None:
    s = ShareScenario()
    epoch = s.join_share("a").member_epoch
    assert s.refused("a", epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert s.refused("a", epoch - 2 or -5) in (
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.INVALID_REQUEST,
    )
    # The member did not get the answer that moved it.
    assert s.beat("a", epoch - 1).member_epoch == epoch
    assert s.refused("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert partitions(s.beat("a", 0, "t")) == [T0, T1]


def test_a_full_group_takes_no_further_member() -> None:
    s = ShareScenario(max_size=1)
    s.join_share("a")
    assert s.refused("b", 0, "t") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert s.beat("a", 0, "t").error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "topics"), [("", 0, ("t",)), ("a", -2, ("t",)), ("a", 0, ())]
)
def test_malformed_heartbeats_are_refused(member_id: str, epoch: int, topics: tuple[str]) -> None:
    assert ShareScenario().refused(member_id, epoch, *topics) is ErrorCode.INVALID_REQUEST


def test_a_share_group_is_of_its_own_type() -> None:
    s = ShareScenario()
    s.join_share("a")
    joined = s.answers[s.ask_join()]
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    with pytest.raises(ApiError) as error:
        s.shard.groups.check_has_offsets(GROUP)
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    (listed,) = list_groups(s.shard.groups, [], ["Share"])
    assert (listed.group_type, listed.group_state) == ("share", "Stable")
    assert list_groups(s.shard.groups, ["empty"], []) == []


def test_a_group_of_another_type_is_not_a_share_group() -> None:
    s = ShareScenario()
    s.shard.groups.create(GROUP, 0)
    assert s.refused("a", 0, "t") is ErrorCode.GROUP_ID_NOT_FOUND
    described = describe_share_group(s.shard.groups, GROUP)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_description_names_members_and_partitions() -> None:
    s = ShareScenario()
    s.join_share("a")
    described = describe_share_group(s.shard.groups, GROUP)
    (member,) = described.members
    assert described.assignor_name == "simple"
    assert member.subscribed_topic_names == ["t"]
    assert [t.topic_name for t in member.assignment.topic_partitions] == ["t"]


def test_a_reset_needs_a_group_without_members_and_begins_a_new_epoch() -> None:
    s = ShareScenario()
    s.join_share("a")
    states = {topic_id("t"): StateTopic("t", frozenset({0}))}
    with pytest.raises(ApiError) as error:
        s.act(s.shard.share.begin_reset, GROUP, states)
    assert error.value.code is ErrorCode.NON_EMPTY_GROUP
    s.beat("a", -1)
    epoch = s.share.epoch
    s.act(s.shard.share.begin_reset, GROUP, states)
    assert s.share.epoch == epoch + 1
    assert s.shard.share.due_initializations(GROUP) is None


def test_a_reset_creates_a_group_that_does_not_exist() -> None:
    s = ShareScenario()
    states = {topic_id("t"): StateTopic("t", frozenset({0}))}
    s.act(s.shard.share.begin_reset, GROUP, states)
    s.initialize()
    assert s.share.state is ShareGroupState.EMPTY
    assert s.share.initialized_partitions() == [TopicIdPartition(*T0)]


def test_a_deleted_group_leaves_tombstones_of_all_its_records() -> None:
    s = ShareScenario()
    s.join_share("a")
    s.beat("a", -1)
    s.act(s.shard.share.begin_deletion, GROUP, None)
    assert s.share.state_partitions.deleting == {topic_id("t"): "t"}
    s.act(s.shard.share.delete_group, GROUP)
    assert GROUP not in s.shard.groups.share
    last: dict[tuple[ShareRecordKind, str], ShareGroupRecord] = {}
    for record in s.log:
        if isinstance(record, ShareGroupRecord):
            last[record.kind, record.item] = record
    assert all(record.value is None for record in last.values())


def test_a_topic_whose_states_are_being_deleted_is_not_assigned() -> None:
    s = ShareScenario()
    s.join_share("a")
    s.beat("a", -1)
    s.act(s.shard.share.begin_deletion, GROUP, [topic_id("t")])
    assert partitions(s.beat("a", 0, "t")) == []
    assert s.shard.share.due_initializations(GROUP) is None
    s.act(s.shard.share.deleted, GROUP, [topic_id("t")])
    epoch = s.beat("a", s.share.members["a"].epoch).member_epoch
    s.initialize()
    assert partitions(s.beat("a", epoch)) == [T0, T1]


def test_a_deleted_topic_is_forgotten() -> None:
    s = ShareScenario(t=1, u=1)
    epoch = s.join_share("a", "t", "u").member_epoch
    s.topics = topics_image(u=1)
    s.act(s.shard.share.forget_topics, [topic_id("t")])
    assert list(s.share.state_partitions.initialized) == [topic_id("u")]
    assert partitions(s.beat("a", epoch)) == [(topic_id("u"), 0)]
    s.act(s.shard.share.forget_missing_topics, {})
    assert not s.share.state_partitions.initialized


# ---------------------------------------------------------------- the assignor

A, B = b"a" * 16, b"b" * 16


def test_load_is_even_and_stays_where_it_was() -> None:
    readers = dict.fromkeys("xyz", frozenset({A, B}))
    topics = {A: range(4), B: range(5)}
    first = assign(readers, topics, {})
    assert sorted(sum(map(len, held.values())) for held in first.values()) == [3, 3, 3]
    assert assign(readers, topics, first) == first
    more = assign({**readers, "w": frozenset({A, B})}, topics, first)
    assert sorted(sum(map(len, held.values())) for held in more.values()) == [2, 2, 2, 3]


def test_idle_members_share_what_they_may_read_and_keep_it() -> None:
    readers = {"x": frozenset({A}), "y": frozenset({A}), "z": frozenset({B}), "w": frozenset({A})}
    first = assign(readers, {A: range(1), B: range(1)}, {})
    assert first == {m: {t: frozenset({0}) for t in topics} for m, topics in readers.items()}
    assert assign(readers, {A: range(1), B: range(1)}, first) == first


def test_a_member_without_existing_topics_gets_nothing() -> None:
    assert assign({"x": frozenset(), "y": frozenset({B})}, {A: range(3)}, {}) == {"x": {}, "y": {}}
