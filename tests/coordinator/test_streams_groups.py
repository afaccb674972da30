"""Streams groups (KIP-1071): joining, internal topics, tasks, leaving, static members, offsets."""

from typing import Any

import pytest
from consumer_group_scenario import topics_image
from group_scenario import GROUP, Scenario

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.config import GroupCoordinatorConfig, StreamsGroupConfig
from spindle.coordinator.consumer.subscriptions import TopicsView
from spindle.coordinator.coordinator_result import Client, GroupRequest
from spindle.coordinator.descriptions import list_groups
from spindle.coordinator.streams.descriptions import describe_streams_group
from spindle.coordinator.streams.heartbeat import check_streams_request
from spindle.coordinator.streams.member import StreamsMemberState
from spindle.coordinator.streams.streams_group import StreamsGroup, StreamsGroupState
from spindle.coordinator.streams.topology import StreamsStatus
from spindle.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

CLIENT = Client("client", "/127.0.0.1", 1)
_Topology = StreamsGroupHeartbeatRequest.Topology
_Subtopology = _Topology.Subtopology
Tasks = dict[str, list[int]]
ALL_TOPICS = {"words": 2, "log": 2}


def subtopology(
    name: str, *sources: str, log: str = "", reads: str = "", writes: str = ""
) -> _Subtopology:
    """Return a subtopology with at most one changelog and one repartition topic each way."""

    def infos(topic: str) -> list[_Subtopology.TopicInfo]:
        return [_Subtopology.TopicInfo(name=topic)] if topic else []

    return _Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        state_changelog_topics=infos(log),
        repartition_sink_topics=[writes] if writes else [],
        repartition_source_topics=infos(reads),
    )


COUNTING = _Topology(epoch=0, subtopologies=[subtopology("0", "words", log="log")])


class StreamsScenario(Scenario):
    """A shard with members of a streams group, each in a process of its own.

    Attributes:
        topics: the topics of the cluster.
    """

    def __init__(self, *, delay_ms: int = 0, standbys: int = 0, **counts: int) -> None:
        self.topics = topics_image(**(counts or ALL_TOPICS))
        streams = StreamsGroupConfig(
            assignment_interval_ms=0,
            initial_rebalance_delay_ms=delay_ms,
            num_standby_replicas=standbys,
        )
        super().__init__(GroupCoordinatorConfig(streams=streams))

    def start(self) -> None:
        super().start()
        self.shard.groups.view = TopicsView(self.topics, 7)

    @property
    def streams(self) -> StreamsGroup:
        return self.shard.groups.streams[GROUP]

    def beat(self, member_id: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        check_streams_request(request)
        self.shard.groups.view = TopicsView(self.topics, 7)
        token = self._ask(
            lambda token, out: self.shard.streams.heartbeat(
                GroupRequest(token, request, out, CLIENT)
            )
        )
        answer = self.answers[token]
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        return answer

    def join_streams(
        self, member_id: str, topology: _Topology = COUNTING, **fields: Any
    ) -> StreamsGroupHeartbeatResponse:
        return self.beat(
            member_id,
            0,
            topology=topology,
            rebalance_timeout_ms=60_000,
            process_id=f"process-{member_id}",
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            **fields,
        )

    def owns(self, member_id: str, epoch: int, **active: list[int]) -> Any:
        """Send a heartbeat with the active tasks that a member has, by subtopology `s<id>`."""
        tasks = [
            StreamsGroupHeartbeatRequest.TaskIds(subtopology_id=name[1:], partitions=partitions)
            for name, partitions in active.items()
        ]
        return self.beat(member_id, epoch, active_tasks=tasks, standby_tasks=[], warmup_tasks=[])

    def refused_join(self, member_id: str) -> ErrorCode:
        with pytest.raises(ApiError) as error:
            self.join_streams(member_id, instance_id="one")
        return error.value.code

    def refused(self, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
        with pytest.raises(ApiError) as error:
            self.beat(member_id, epoch, **fields)
        return error.value.code


def active(answer: StreamsGroupHeartbeatResponse) -> Tasks | None:
    if answer.active_tasks is None:
        return None
    return {tasks.subtopology_id: tasks.partitions for tasks in answer.active_tasks}


def codes(answer: StreamsGroupHeartbeatResponse) -> list[int]:
    return [line.status_code for line in answer.status or ()]


def test_the_first_member_gets_all_tasks() -> None:
    s = StreamsScenario()
    answer = s.join_streams("a")
    assert active(answer) == {"0": [0, 1]}
    assert answer.member_epoch == 2
    assert answer.status == []
    assert s.streams.state is StreamsGroupState.STABLE


def test_a_heartbeat_without_news_writes_nothing_and_has_no_tasks() -> None:
    s = StreamsScenario()
    epoch = s.join_streams("a").member_epoch
    written = len(s.log)
    answer = s.owns("a", epoch, s0=[0, 1])
    assert active(answer) is None
    assert len(s.log) == written


def test_missing_internal_topics_are_named_and_tasks_come_with_them() -> None:
    s = StreamsScenario(words=3)
    topology = _Topology(
        epoch=0,
        subtopologies=[
            subtopology("0", "words", writes="again"),
            subtopology("1", log="log", reads="again"),
        ],
    )
    first = s.join_streams("a", topology)
    assert active(first) == {}
    assert codes(first) == [StreamsStatus.MISSING_INTERNAL_TOPICS]
    assert s.streams.state is StreamsGroupState.NOT_READY
    missing = s.shard.streams.missing_topics(GROUP)
    assert [(topic.name, topic.partitions) for topic in missing] == [("again", 3), ("log", 3)]
    s.topics = topics_image(words=3, again=3, log=3)
    second = s.owns("a", first.member_epoch)
    assert active(second) == {"0": [0, 1, 2], "1": [0, 1, 2]}
    assert second.status == []


def test_a_missing_source_topic_leaves_the_group_without_tasks() -> None:
    s = StreamsScenario(log=2)
    answer = s.join_streams("a")
    assert codes(answer) == [StreamsStatus.MISSING_SOURCE_TOPICS]
    assert s.shard.streams.missing_topics(GROUP) == ()


def test_a_changelog_with_other_partitions_is_an_error() -> None:
    s = StreamsScenario(words=2, log=3)
    answer = s.join_streams("a")
    assert codes(answer) == [StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS]


def test_joined_topics_need_the_same_partitions() -> None:
    s = StreamsScenario(left=2, right=3)
    group = _Subtopology.CopartitionGroup(source_topics=[0, 1])
    both = subtopology("0", "left", "right")
    both.copartition_groups = [group]
    answer = s.join_streams("a", _Topology(epoch=0, subtopologies=[both]))
    assert codes(answer) == [StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS]


def test_a_task_moves_only_after_its_member_has_given_it_up() -> None:
    s = StreamsScenario()
    epoch = s.join_streams("a").member_epoch
    second = s.join_streams("b")
    assert active(second) == {}
    assert s.streams.members["b"].state is StreamsMemberState.UNRELEASED_TASKS
    told = s.owns("a", epoch, s0=[0, 1])
    assert told.member_epoch == epoch
    kept = active(told)
    assert kept == {"0": [0]}
    assert active(s.beat("b", second.member_epoch)) is None
    moved = s.owns("a", epoch, s0=[0])
    assert moved.member_epoch == second.member_epoch
    assert active(s.beat("b", second.member_epoch)) == {"0": [1]}
    assert s.streams.state is StreamsGroupState.STABLE


def test_a_member_that_keeps_its_tasks_too_long_is_removed() -> None:
    s = StreamsScenario()
    epoch = s.join_streams("a").member_epoch
    second = s.join_streams("b").member_epoch
    s.owns("a", epoch, s0=[0, 1])
    for _ in range(7):
        s.advance(10_000)
        second = s.beat("b", second).member_epoch
    assert list(s.streams.members) == ["b"]
    assert set(s.streams.members["b"].active_since) == {("0", 0), ("0", 1)}


def test_a_member_that_leaves_frees_its_tasks() -> None:
    s = StreamsScenario()
    s.join_streams("a")
    second = s.join_streams("b")
    assert s.beat("a", -1).member_epoch == -1
    assert active(s.beat("b", second.member_epoch)) == {"0": [0, 1]}


def test_a_silent_member_is_removed() -> None:
    s = StreamsScenario()
    s.join_streams("a")
    s.advance(45_000)
    assert s.streams.state is StreamsGroupState.EMPTY
    assert s.refused("a", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_next_coordinator_continues_where_the_former_one_stopped() -> None:
    s = StreamsScenario()
    epoch = s.join_streams("a").member_epoch
    s.join_streams("b")
    s.owns("a", epoch, s0=[0, 1])
    before, stored = s.streams.members, s.streams.stored
    s.start()
    assert s.streams.members == before
    assert s.streams.stored == stored
    assert s.owns("a", epoch, s0=[0]).member_epoch > epoch


def test_the_first_assignment_waits_for_more_members() -> None:
    s = StreamsScenario(delay_ms=3_000)
    first = s.join_streams("a")
    assert active(first) == {}
    assert codes(first) == [StreamsStatus.ASSIGNMENT_DELAYED]
    s.join_streams("b")
    s.advance(3_000)
    assert s.streams.assignment_epoch == s.streams.epoch
    assert active(s.beat("a", first.member_epoch)) == {"0": [0]}


def test_standby_tasks_are_in_another_process() -> None:
    s = StreamsScenario(standbys=1)
    first = s.join_streams("a")
    assert first.standby_tasks == []
    s.join_streams("b")
    epoch = s.owns("a", first.member_epoch, s0=[0, 1]).member_epoch
    s.owns("a", epoch, s0=[0])
    targets = s.streams.targets
    assert targets["a"].active == targets["b"].standby
    assert targets["b"].active == targets["a"].standby


def test_a_static_member_that_returns_gets_its_tasks_again() -> None:
    s = StreamsScenario()
    answer = s.join_streams("a", instance_id="one")
    assert s.refused_join("b") is ErrorCode.UNRELEASED_INSTANCE_ID
    s.beat("a", -2, instance_id="one")
    again = s.join_streams("b", instance_id="one")
    assert active(again) == active(answer)
    assert list(s.streams.members) == ["b"]
    assert s.refused("a", answer.member_epoch, instance_id="one") is ErrorCode.FENCED_INSTANCE_ID


def test_another_topology_of_the_same_epoch_is_refused() -> None:
    s = StreamsScenario()
    s.join_streams("a")
    other = _Topology(epoch=0, subtopologies=[subtopology("0", "words")])
    with pytest.raises(ApiError, match="Topology updates are not supported yet") as error:
        s.join_streams("b", other)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_epochs_fence_members() -> None:
    s = StreamsScenario()
    epoch = s.join_streams("a").member_epoch
    assert s.refused("a", epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert s.refused("a", epoch - 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert s.refused("x", epoch) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("epoch", "fields", "reason"),
    [
        (0, {}, "RebalanceTimeoutMs must be provided"),
        (0, {"rebalance_timeout_ms": 1}, "Topology must be non-null"),
        (-2, {}, "InstanceId can't be null"),
        (-3, {}, "MemberEpoch is -3"),
        (1, {"topology": COUNTING}, "Topology can only be provided"),
        (1, {"active_tasks": []}, "If one task-type is non-null"),
        (1, {"rack_id": ""}, "RackId can't be empty"),
    ],
)
def test_contradictory_requests_are_refused(
    epoch: int, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ApiError, match=reason) as error:
        StreamsScenario().beat("a", epoch, **fields)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_offsets_need_the_epoch_in_which_the_task_was_assigned() -> None:
    s = StreamsScenario()
    epoch = s.join_streams("a").member_epoch
    s.join_streams("b")
    s.owns("a", epoch, s0=[0, 1])
    s.owns("a", epoch, s0=[0])
    group = s.streams
    group.check_offset_commit("a", epoch, 9, [TopicPartition("words", 0)])
    for member_epoch, partition in ((epoch, 1), (epoch - 1, 0), (epoch + 9, 0)):
        with pytest.raises(ApiError) as error:
            group.check_offset_commit("a", member_epoch, 9, [TopicPartition("words", partition)])
        assert error.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_an_empty_classic_group_becomes_a_streams_group_and_keeps_its_offsets() -> None:
    s = StreamsScenario()
    s.commit_offsets({("words", 0): 5})
    s.join_streams("a")
    assert s.shard.groups.get(GROUP) is None
    stored = s.offset("words", 0)
    assert stored is not None
    assert stored.offset == 5
    s.start()
    assert s.shard.groups.get(GROUP) is None
    s.beat("a", -1)
    s.ask_join()
    assert GROUP not in s.shard.groups.streams
    assert s.shard.groups.get(GROUP) is not None


def test_a_description_has_the_topology_and_the_tasks() -> None:
    s = StreamsScenario()
    s.join_streams("a", user_endpoint=StreamsGroupHeartbeatRequest.Endpoint(host="h", port=9))
    described = describe_streams_group(s.shard.groups, GROUP)
    assert described.group_state == "Stable"
    assert described.topology is not None
    assert described.topology.subtopologies is not None
    [stored] = described.topology.subtopologies
    assert (stored.source_topics, stored.state_changelog_topics[0].partitions) == (["words"], 2)
    [member] = described.members
    assert member.assignment == member.target_assignment
    assert member.assignment.active_tasks[0].partitions == [0, 1]
    [listed] = list_groups(s.shard.groups, [], ["streams"])
    assert (listed.group_state, listed.protocol_type) == ("Stable", "streams")
