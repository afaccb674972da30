"""Moves of an execution that begin one by one, its throttle, and its waits, without a cluster."""

import time
from pathlib import Path
from typing import cast

import pytest

from spindle.cli.execution import executor as executor_module
from spindle.cli.execution.active_moves import ActiveMoves
from spindle.cli.execution.execution_file import ExecutionFile
from spindle.cli.execution.executor import RoundExecutor
from spindle.cli.execution.planning import DeletionWait
from spindle.cli.execution.progress_events import ProgressEvent, Remarks
from spindle.cli.execution.running_plan import PlanUnderWay
from spindle.cli.execution.throttle_backoff import ThrottleBackoff, lagging_partitions
from spindle.cli.execution.topic_throttles import entries_of
from spindle.cli.plan.snapshot import ClusterSnapshot
from spindle.cli.tools.reassignment_moves import ReplicaPlaces
from spindle.cli.tools.reassignment_plan import Plan, Replica, plan_json
from spindle.client.admin.partitions import Reassignment
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import ClusterView, PartitionView, TopicView
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.planner.goals import drain
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.plan import PlacementPlan

MIB = 2**20
LIMITS = PlanLimits(parallel_moves=1)
IDLE = ActiveMoves({}, {}, {}, {})
FIRST, SECOND = (TopicPartition("t", number) for number in range(2))


def two_moves() -> PlacementPlan:
    """Return the drain of a directory with two replicas, into another one of the broker."""
    directories = [
        DirectoryModel(1, "/a", 100 * MIB, 30 * MIB),
        DirectoryModel(1, "/b", 100 * MIB, 0),
    ]
    partitions = [
        PartitionModel(FIRST, (0,), (20 * MIB,), leader=1),
        PartitionModel(SECOND, (0,), (10 * MIB,), leader=1),
    ]
    return drain(ClusterModel([BrokerModel(1)], directories, partitions), [0], LIMITS)


def shown(path: str, usable: int, *partitions: TopicPartition, future: bool = False) -> LogDirView:
    replicas = {partition: ReplicaOnDisk(10 * MIB, 0, future) for partition in partitions}
    return LogDirView(path, ErrorCode.NONE, 100 * MIB, usable, False, replicas)


def test_a_move_ends_when_the_replica_is_in_its_directory_and_the_next_one_begins() -> None:
    under_way = PlanUnderWay(two_moves(), LIMITS, 0.95)
    before = {1: [shown("/a", 70 * MIB, FIRST, SECOND), shown("/b", 100 * MIB)]}
    (move,) = under_way.due(Plan({}), IDLE, before)
    assert under_way.partition(move) == FIRST
    under_way.note_begun()
    copying = ActiveMoves({}, {Replica(1, FIRST): 1}, {}, {})
    assert under_way.ended(copying, before) == {}
    after = {1: [shown("/a", 70 * MIB, SECOND), shown("/b", 80 * MIB, FIRST)]}
    assert under_way.ended(IDLE, after) == {move: True}
    (move,) = under_way.due(Plan({}), IDLE, after)
    assert under_way.partition(move) == SECOND


def test_a_move_that_never_appears_is_given_up_and_not_taken_for_done() -> None:
    under_way = PlanUnderWay(two_moves(), LIMITS, 0.95)
    here = {1: [shown("/a", 70 * MIB, FIRST, SECOND), shown("/b", 100 * MIB)]}
    (move,) = under_way.due(Plan({}), IDLE, here)
    under_way.note_begun()
    looks = [under_way.ended(IDLE, here) for _ in range(3)]
    assert looks == [{}, {}, {move: False}]


def test_no_move_begins_without_real_room_or_after_a_directory_has_gone() -> None:
    under_way = PlanUnderWay(two_moves(), LIMITS, 0.95)
    full = {1: [shown("/a", 70 * MIB, FIRST, SECOND), shown("/b", 20 * MIB)]}
    assert under_way.due(Plan({}), IDLE, full) == []
    assert under_way.sees_same_cluster({}, [1])
    assert under_way.sees_same_cluster({}, [1])
    assert not under_way.sees_same_cluster({1: ["/a"]}, [1])
    roomy = {1: [shown("/a", 70 * MIB, FIRST, SECOND), shown("/b", 100 * MIB)]}
    assert under_way.due(Plan({}), IDLE, roomy) == []


def test_the_wait_for_deleted_replicas_ends_although_retention_always_deletes_something() -> None:
    under_way = PlanUnderWay(two_moves(), LIMITS, 1.0)
    directory = under_way.directory(0)
    assert directory.deletion_delay_ms == 60_000
    assert under_way.may_free_space(directory, 100.0)
    assert under_way.may_free_space(directory, 189.0)
    assert not under_way.may_free_space(directory, 190.0)
    under_way.note_moving()
    assert under_way.may_free_space(directory, 200.0)


def test_the_throttle_halves_while_replicas_are_behind_and_comes_back() -> None:
    backoff = ThrottleBackoff(80 * MIB)
    rates = []
    for lagging in ([FIRST], [FIRST], [FIRST], [FIRST], [], [], [], []):
        backoff.update(lagging)
        rates.append(backoff.bytes_per_second // MIB)
    assert rates == [40, 20, 10, 10, 20, 40, 80, 80]
    step = backoff.update([FIRST, SECOND])
    assert step is not None
    assert step.text == (
        "replicas of 2 partitions are out of sync (t-0, t-1): the throttle falls to 40.0 MiB/s"
    )


def test_only_replicas_that_could_catch_up_are_behind() -> None:
    def view(isr: tuple[int, ...], offline: tuple[int, ...]) -> ClusterView:
        partition = PartitionView(0, 1, 0, (1, 2, 3), isr, offline)
        return ClusterView(topics={"t": TopicView("t", ZERO_UUID, False, {0: partition})})

    adding = {FIRST: Reassignment((1, 2, 3), (3,), ())}
    assert lagging_partitions(view((1, 2), ()), {}) == [FIRST]
    assert lagging_partitions(view((1, 2), (3,)), {}) == []
    assert lagging_partitions(view((1, 2), ()), adding) == []
    assert lagging_partitions(view((1,), ()), adding) == [FIRST]


def test_a_first_plan_waits_once_for_what_brokers_do_not_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    told: list[ProgressEvent] = []
    plan = two_moves()
    snapshot = ClusterSnapshot(plan.cluster, unexplained=[plan.cluster.directories[0]])
    deletion_wait = DeletionWait(told.append)
    assert not deletion_wait.wait_once(ClusterSnapshot(plan.cluster), plan)
    assert [deletion_wait.wait_once(snapshot, plan) for _ in range(2)] == [True, False]
    assert slept == [60.0]
    assert told[0].text.startswith(
        "waiting 60 s: 1:/a uses space that no replica accounts for, and brokers"
    )


def test_a_copy_that_arrives_while_it_is_ended_does_not_move_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replica, sent = Replica(1, FIRST), []
    looks = iter(
        [
            ReplicaPlaces({replica: "/a"}, {replica: "/b"}),
            ReplicaPlaces({replica: "/b"}, {replica: "/a"}),
        ]
    )

    def move(
        _: object, broker: int, wanted: dict[TopicPartition, str]
    ) -> dict[TopicPartition, None]:
        sent.append((broker, wanted))
        return dict.fromkeys(wanted)

    monkeypatch.setattr(executor_module, "places_of", lambda _: next(looks))
    monkeypatch.setattr(executor_module, "move_replicas", move)
    monkeypatch.setattr(executor_module, "list_reassignments", lambda *_: {})
    monkeypatch.setattr(executor_module, "alter_reassignments", lambda *_: {})
    text = plan_json({FIRST: (1,)}, {replica: "/b"})
    file = ExecutionFile(tmp_path / "drain.json", "id", "drain", round=text)
    executor = RoundExecutor(cast("WireClient", None), file, LIMITS, lambda _: None)
    executor.stop_moves()
    assert sent == [(1, {FIRST: "/a"}), (1, {FIRST: "/b"})]


def test_throttled_replicas_of_ended_moves_are_found_by_their_partition() -> None:
    entries = {"t": {"leaders": ["0:1", "10:1"], "followers": ["1:2"]}, "u": {"leaders": ["0:1"]}}
    assert entries_of(entries, [FIRST]) == {"t": {"leaders": ["0:1"]}}
    assert entries_of(entries, [TopicPartition("v", 0)]) == {}


def test_a_remark_is_reported_again_only_after_a_plan_without_it() -> None:
    told: list[ProgressEvent] = []
    remarks = Remarks(told.append)
    for items in (["a", "b"], ["a"], ["a", "b"]):
        remarks.report(items)
    assert [event.text for event in told] == ["a", "b", "b"]
