"""Plans hold until a horizon after their end, for clusters that grow."""

from collections.abc import Callable
from functools import partial

import pytest

from spindle.common.ids import TopicPartition
from spindle.planner.forecast.forecast_plan import forecast_cluster, plan_for_forecast
from spindle.planner.forecast.growth import PartitionRates
from spindle.planner.forecast.trend import Trend
from spindle.planner.goals import balance, drain, what_if
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.plan import BindingLimit, Infeasible, PlacementPlan
from spindle.planner.what_if import ClusterChanges

GIB = 2**30
DAY_S = 86_400.0
LIMITS = PlanLimits()


def cluster(*sizes: tuple[int, ...]) -> ClusterModel:
    """Return a broker for each tuple, with a directory of 100 GiB and partitions of these sizes."""
    directories = [DirectoryModel(n, "/d", 100 * GIB, sum(s) * GIB) for n, s in enumerate(sizes)]
    flat = [(place, size) for place, sizes_there in enumerate(sizes) for size in sizes_there]
    partitions = [
        PartitionModel(TopicPartition("t", n), (place,), (size * GIB,), 0, place)
        for n, (place, size) in enumerate(flat)
    ]
    return ClusterModel([BrokerModel(n) for n in range(len(sizes))], directories, partitions)


def growing(
    found: ClusterModel, gib_per_day: dict[int, float], produced: float = 0.0
) -> Callable[[float], ClusterModel]:
    """Return the cluster by the seconds ahead; rates are by partition."""
    rates = {
        TopicPartition("t", n): PartitionRates(Trend(value * GIB / DAY_S, 0, 0), produced)
        for n, value in gib_per_day.items()
    }
    return partial(forecast_cluster, found, rates, {})


def emptied(found: ClusterModel) -> PlacementPlan:
    """Return the plan that empties the first directory."""
    return drain(found, [0], LIMITS)


def targets(plan: PlacementPlan) -> list[int]:
    return [move.target for planned_round in plan.rounds for move in planned_round.moves]


def test_a_replica_goes_where_it_has_room_at_the_horizon() -> None:
    """Directory 1 is emptier now and fuller in a week."""
    cluster_model = cluster((20,), (30,), (40,))
    grown = growing(cluster_model, {1: 8.0})
    assert targets(emptied(cluster_model)) == [1]
    plan = plan_for_forecast(cluster_model, grown, emptied, 7 * DAY_S)
    assert targets(plan.current) == [2]
    assert plan.current.moved_bytes == plan.current.lower_bound_bytes == 20 * GIB
    assert plan.current.used_bytes == (0, 30 * GIB, 60 * GIB)
    assert plan.forecast.used_bytes[1] // GIB == 86
    assert plan.horizon_s >= 7 * DAY_S + plan.current.duration_ms / 1000


def test_room_that_growth_takes_is_no_room() -> None:
    cluster_model = cluster((20,), (60,))
    with pytest.raises(Infeasible) as refused:
        plan_for_forecast(cluster_model, growing(cluster_model, {1: 5.0}), emptied, 7 * DAY_S)
    assert refused.value.limit is BindingLimit.CAPACITY
    assert targets(
        plan_for_forecast(cluster_model, growing(cluster_model, {1: 5.0}), emptied, DAY_S).current
    ) == [1]


def test_a_partition_that_is_produced_faster_than_its_copy_is_named() -> None:
    cluster_model = cluster((20,), (10,))
    grown = growing(cluster_model, {0: 0.0}, produced=60.0 * 2**20)
    with pytest.raises(Infeasible, match=r"t-0 cannot move: it grows by 60\.0 MiB/s") as refused:
        plan_for_forecast(cluster_model, grown, emptied, DAY_S)
    assert refused.value.limit is BindingLimit.THROTTLE
    skewed = cluster((60, 10), (10,))
    grown = growing(skewed, {0: 0.0, 1: 0.0, 2: 0.0}, produced=60.0 * 2**20)
    plan = plan_for_forecast(skewed, grown, lambda each: balance(each, LIMITS), DAY_S).current
    assert not plan.rounds
    assert plan.remarks[0] == (
        "t-1 does not move: 60.0 MiB/s are produced, and the throttle is 50.0 MiB/s"
    )


def test_an_imagined_directory_is_in_the_plan_of_today() -> None:
    cluster_model = cluster((40, 20), (10,))
    changes = ClusterChanges([BrokerModel(7)], [DirectoryModel(7, "/new", 100 * GIB, 0)])
    plan = plan_for_forecast(
        cluster_model,
        growing(cluster_model, {0: 1.0}),
        lambda each: what_if(each, changes, LIMITS),
        DAY_S,
    ).current
    assert str(plan.cluster.directories[2]) == "7:/new"
    assert plan.cluster.partitions == cluster_model.partitions
    assert sum(plan.used_bytes) == 70 * GIB
    assert 2 in targets(plan)


def test_a_plan_that_never_catches_up_with_growth_is_refused() -> None:
    """Each second of the plan makes it longer than a second."""
    huge = DirectoryModel(1, "/d", 2**70, 0)
    small = cluster((20,), (0,))
    cluster_model = ClusterModel(small.brokers, [small.directories[0], huge], small.partitions)
    with pytest.raises(ValueError, match="raise the throttle"):
        plan_for_forecast(cluster_model, growing(cluster_model, {0: 10_000.0}), emptied, DAY_S)
