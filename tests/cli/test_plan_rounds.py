"""Rounds on a cluster whose brokers hear of the end of a move later than the controller."""

from pathlib import Path

import pytest

from spindle.common.ids import TopicPartition
from spindle.operations.execution import plan_rounds
from spindle.operations.execution.execution_file import ExecutionFile
from spindle.operations.execution.executor import RoundExecutor
from spindle.planner.goals import drain
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel
from spindle.planner.plan import BindingLimit, Infeasible, PlacementPlan


class IdleExecutor(RoundExecutor):
    """Has nothing to throttle and nothing to wait for."""

    def __init__(self, begun_round: str) -> None:
        self.file = ExecutionFile(Path("drain.json"), "id", "drain 1:/d", round=begun_round)

    def throttle(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def sleep(self, _seconds: float) -> None:
        pass


def looks_at_stale_replicas(begun_round: str, stale_looks: int) -> int:
    """Return the number of looks until there is a plan.

    Raises:
        Infeasible: there was none.
    """
    cluster = ClusterModel([BrokerModel(1)], [DirectoryModel(1, "/d", 10, 0)], [])
    looks = 0

    def make_plan() -> PlacementPlan:
        nonlocal looks
        looks += 1
        if looks <= stale_looks:
            raise Infeasible(BindingLimit.OFFLINE, TopicPartition("t", 0), "reason", "remedy")
        return drain(cluster, [0], PlanLimits())

    plan_rounds.run_rounds(
        IdleExecutor(begun_round),
        make_plan,
        before_round=lambda _: None,
        distance=lambda _: 0,
        stays="stays",
    )
    return looks


def test_old_replicas_right_after_a_round_do_not_end_a_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_rounds, "PAUSE_S", 0)
    assert looks_at_stale_replicas('{"version":1}', 3) == 4
    with pytest.raises(Infeasible):
        looks_at_stale_replicas('{"version":1}', 100)


def test_a_drain_that_has_moved_nothing_is_refused_at_once() -> None:
    with pytest.raises(Infeasible):
        looks_at_stale_replicas("", 1)
