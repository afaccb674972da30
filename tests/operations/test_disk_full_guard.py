"""Copies into a directory that fills up meanwhile are given up before its disk is full."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from spindle.client.admin.partitions import Reassignment
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import ClusterView
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.operations.events import ProgressEvent
from spindle.operations.execution import executor as executor_module
from spindle.operations.execution.active_moves import moves_under_way
from spindle.operations.execution.disk_full_guard import overfilling
from spindle.operations.execution.execution_file import ExecutionFile
from spindle.operations.execution.executor import RoundExecutor
from spindle.operations.reassignment import Plan, Replica, plan_json
from spindle.planner.limits import PlanLimits

PARTITION = TopicPartition("t", 0)
TOTAL = 1000
INSIDE = Plan({PARTITION: (1,)}, {Replica(1, PARTITION): "/target"})
BETWEEN = Plan({PARTITION: (3,)}, {Replica(3, PARTITION): "/target"})
TO_BROKER_3 = {PARTITION: Reassignment((3, 1), (3,), (1,))}


def directory(
    path: str, usable: int, size_bytes: int | None = None, *, is_future: bool = False
) -> LogDirView:
    held = {} if size_bytes is None else {PARTITION: ReplicaOnDisk(size_bytes, 0, is_future)}
    return LogDirView(path, ErrorCode.NONE, TOTAL, usable, False, held)


def found_inside(usable: int, copied: int, fill: float) -> dict[Replica, str]:
    """Look at a copy of 100 bytes between two directories of broker 1."""
    target = directory("/target", usable, copied, is_future=True)
    described = {1: [directory("/source", 500, 100), target]}
    return overfilling(INSIDE, moves_under_way({}, described), described, fill)


def found_between(usable: int, copied: int | None, fill: float) -> dict[Replica, str]:
    """Look at a copy of 100 bytes from broker 1 to broker 3."""
    described = {1: [directory("/source", 500, 100)], 3: [directory("/target", usable, copied)]}
    return overfilling(BETWEEN, moves_under_way(TO_BROKER_3, described), described, fill)


def test_copies_continue_while_their_directory_has_room_for_the_rest() -> None:
    for fill, usable in ((0.9, 160), (0.9, 500), (1.0, 90), (0.9, -1)):
        assert found_inside(usable, 10, fill) == {}
        assert found_between(usable, 10, fill) == {}
    # Indexes, and records that came meanwhile: a plan that fills up to the limit is not given up.
    assert found_inside(usable=95, copied=90, fill=0.9) == {}
    assert found_inside(usable=10, copied=100, fill=0.9) == {}


def test_copies_into_a_directory_without_room_for_the_rest_are_given_up() -> None:
    (reason,) = found_inside(usable=135, copied=10, fill=0.9).values()
    assert reason == (
        "directory /target of broker 1 has only 135 B left, and 90 B are still to be copied"
    )
    assert list(found_between(usable=149, copied=None, fill=0.9)) == [Replica(3, PARTITION)]
    assert found_between(usable=89, copied=10, fill=1.0)
    (reason,) = found_between(usable=79, copied=95, fill=0.9).values()
    assert reason == (
        "directory /target of broker 3 has filled up to 92.1%, and the highest fill is 90.0%"
    )


def test_the_moves_of_others_are_not_given_up() -> None:
    described = {1: [directory("/source", 500, 100)], 3: [directory("/target", 0, 1)]}
    now = moves_under_way(TO_BROKER_3, described)
    assert overfilling(Plan({}), now, described, 0.9) == {}
    assert overfilling(Plan({PARTITION: (4,)}), now, described, 0.9) == {}


class FillingCluster:
    """Shows one copy into a directory that fills up, until it is cancelled.

    Attributes:
        is_cordoned: the source is cordoned, so its broker does not end the copy.
    """

    def __init__(self, *, is_inside: bool, is_cordoned: bool = False) -> None:
        self.is_inside = is_inside
        self.is_cordoned = is_cordoned
        self.is_moving = True
        self.looks = 0

    def metadata(self, topics: object = None) -> ClusterView:
        return ClusterView()

    def reassigned(self, *_: object) -> dict[TopicPartition, Reassignment]:
        return {} if self.is_inside or not self.is_moving else TO_BROKER_3

    def describe_log_dirs(self) -> dict[int, list[LogDirView]]:
        self.looks += 1
        dead = LogDirView("/other", ErrorCode.KAFKA_STORAGE_ERROR, 0, 0, False, {})
        others = [dead] if self.looks > 1 else []
        copied = 10 if self.is_moving else None
        target = directory("/target", 500 if self.looks == 1 else 20, copied, is_future=True)
        source = directory("/source", 500, 100)
        if self.is_inside:
            return {1: [source, target, *others]}
        return {1: [source], 3: [directory("/target", 20, copied), *others]}

    def cancel(
        self, _: object, partitions: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, None]:
        assert partitions == {PARTITION: None}
        self.is_moving = False
        return {PARTITION: None}

    def move_back(
        self, _: object, broker: int, directories: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, ApiError | None]:
        assert (broker, directories) == (1, {PARTITION: "/source"})
        self.is_moving = self.is_cordoned
        error = ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "cordoned")
        return {PARTITION: error if self.is_cordoned else None}


def wait_for(
    cluster: FillingCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> list[ProgressEvent]:
    """Wait for the end of a round, and return what is told."""
    monkeypatch.setattr(executor_module, "PAUSE_S", 0)
    monkeypatch.setattr(executor_module, "list_reassignments", cluster.reassigned)
    monkeypatch.setattr(executor_module, "alter_reassignments", cluster.cancel)
    monkeypatch.setattr(executor_module, "move_replicas", cluster.move_back)
    told: list[ProgressEvent] = []
    text = plan_json(plan.replicas, plan.directories)
    file = ExecutionFile(Path("drain.json"), "id", "drain", round=text)
    client = cast("WireClient", cluster)
    RoundExecutor(client, file, PlanLimits(), told.append, highest_fill=0.9, **settings).wait()
    return told


@pytest.mark.parametrize("is_inside", [True, False], ids=["inside", "between"])
def test_an_execution_cancels_its_copies_into_a_directory_that_fills_up(
    monkeypatch: pytest.MonkeyPatch, is_inside: bool
) -> None:
    cluster = FillingCluster(is_inside=is_inside)
    told = wait_for(cluster, INSIDE if is_inside else BETWEEN, monkeypatch)
    assert not cluster.is_moving
    assert [event.event for event in told if event.event != "wentOffline"] == ["moving", "givenUp"]


def test_a_copy_out_of_a_cordoned_directory_is_cancelled_while_the_cordon_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def uncordoned(stop: Any) -> None:
        cluster.is_cordoned = False
        stop()
        cluster.is_cordoned = True

    cluster = FillingCluster(is_inside=True, is_cordoned=True)
    told = wait_for(cluster, INSIDE, monkeypatch, while_uncordoned=uncordoned)
    assert (cluster.is_moving, cluster.is_cordoned) == (False, True)
    assert [event.event for event in told] == ["moving", "wentOffline", "givenUp"]


def test_a_directory_that_fails_during_an_execution_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = wait_for(FillingCluster(is_inside=True), INSIDE, monkeypatch)
    (text,) = (event.text for event in told if event.event == "wentOffline")
    assert text == "directory 1:/other has failed, or its broker has taken it offline"
