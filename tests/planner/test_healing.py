"""Full, filling and failed directories are relieved, with few bytes and without a way back."""

from dataclasses import replace
from random import Random

import pytest
from generated_clusters import GIB, small_cluster

from spindle.common.ids import TopicPartition
from spindle.planner.forecast.forecast_plan import forecast_cluster
from spindle.planner.forecast.growth import DirectoryGrowth, PartitionRates
from spindle.planner.forecast.trend import Trend
from spindle.planner.healing import HealingLimits, heal
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.plan import PlacementPlan

HEALING = HealingLimits()
LIMITS = PlanLimits()
DAY_S = 86_400.0


def cluster(*sizes: tuple[int, ...], is_online: bool = True, rate: int = 0) -> ClusterModel:
    """Return a broker for each tuple, with a directory of 100 GiB and partitions of these sizes."""
    directories = [
        DirectoryModel(n, "/d", 100 * GIB, sum(size) * GIB, is_online=is_online or n > 0)
        for n, size in enumerate(sizes)
    ]
    flat = [(place, size) for place, sizes_there in enumerate(sizes) for size in sizes_there]
    partitions = [
        PartitionModel(TopicPartition("t", n), (place,), (size * GIB,), rate, place)
        for n, (place, size) in enumerate(flat)
    ]
    return ClusterModel([BrokerModel(n) for n in range(len(sizes))], directories, partitions)


def healed(found: ClusterModel, *failed: int) -> PlacementPlan:
    return heal(found, found, failed, HEALING, LIMITS)


def moves(plan: PlacementPlan) -> list[tuple[int, int, int]]:
    """Return the partition, the source and the target of each move."""
    return [
        (m.partition, m.source, m.target)
        for planned_round in plan.rounds
        for m in planned_round.moves
    ]


def test_a_full_directory_gives_as_much_as_it_must() -> None:
    plan = healed(cluster((50, 30, 10), (20,)))
    assert moves(plan) == [(2, 0, 1)]
    assert not plan.remarks


def test_a_cluster_within_limits_is_left_alone() -> None:
    assert not healed(cluster((84,), (10,))).rounds


def test_a_directory_without_a_way_out_is_named() -> None:
    plan = healed(cluster((90,), (70,)))
    assert not plan.rounds
    (remark,) = plan.remarks
    assert remark.startswith("0:/d stays at 90.0%, above 85%: no replica of it fits")


def test_growth_until_the_horizon_counts_and_the_sizes_stay_those_of_today() -> None:
    today = cluster((40, 20), (20,))
    rates = {TopicPartition("t", 0): PartitionRates(Trend(5 * GIB / DAY_S, 0, 0), 0.0)}
    ahead = forecast_cluster(today, rates, {}, 7 * DAY_S)
    assert ahead.directories[0].used_bytes // GIB in (94, 95)
    plan = heal(today, ahead, (), HEALING, LIMITS)
    assert moves(plan) == [(1, 0, 1)]
    assert plan.moved_bytes == 20 * GIB
    assert plan.used_bytes == (40 * GIB, 40 * GIB)
    assert not healed(today).rounds


def test_other_files_that_grow_count_as_well() -> None:
    today = cluster((40, 20), (20,))
    growth = Trend(5 * GIB / DAY_S, 0, 0)
    growths = {(0, "/d"): DirectoryGrowth(9, 3600.0, None, growth, growth)}
    ahead = forecast_cluster(today, {}, growths, 7 * DAY_S)
    assert heal(today, ahead, (), HEALING, LIMITS).rounds


def test_a_partition_that_grows_faster_than_the_throttle_is_named() -> None:
    today = cluster((15, 75), (0,))
    rates = {TopicPartition("t", 0): PartitionRates(None, 60.0 * 2**20)}
    plan = heal(today, forecast_cluster(today, rates, {}, DAY_S), (), HEALING, LIMITS)
    assert not plan.rounds
    assert plan.remarks == (
        "t-0 does not move: 60.0 MiB/s are produced, and the throttle is 50.0 MiB/s",
    )
    assert healed(today).rounds


def test_a_failed_directory_is_emptied_as_far_as_replicas_can_be_copied() -> None:
    cluster_model = cluster((10, 10), (20,), (0,), is_online=False)
    with_copy = replace(
        cluster_model.partitions[0], directories=(0, 1), size_bytes=(10 * GIB, 10 * GIB), leader=1
    )
    alone = replace(cluster_model.partitions[1], leader=-1)
    cluster_model = replace(
        cluster_model, partitions=[with_copy, alone, *cluster_model.partitions[2:]]
    )
    plan = healed(cluster_model, 0)
    assert moves(plan) == [(0, 0, 2)]
    (remark,) = plan.remarks
    assert remark.startswith("1 replica of 0:/d, such as t-1, cannot be made elsewhere")
    assert not healed(cluster_model).rounds


def test_a_second_look_finds_nothing_to_do_in_generated_clusters() -> None:
    moved = 0
    for seed in range(150):
        cluster_model = small_cluster(seed)
        random = Random(seed)
        healing = HealingLimits(random.choice((0.6, 0.85)), 0.6)
        plan = heal(cluster_model, cluster_model, (), healing, LIMITS)
        moved += bool(plan.rounds)
        again = replayed(cluster_model, plan)
        assert [directory.kept_bytes for directory in again.directories] == list(plan.used_bytes)
        for number, directory in enumerate(again.directories):
            if directory.used_bytes > cluster_model.directories[number].used_bytes:
                assert directory.fill <= 0.6, seed
        if not plan.remarks:
            assert not heal(again, again, (), healing, LIMITS).rounds, seed
    assert moved > 20


def replayed(found: ClusterModel, plan: PlacementPlan) -> ClusterModel:
    """Return the cluster after a plan."""
    partitions = list(found.partitions)
    used = [directory.used_bytes for directory in found.directories]
    for planned_round in plan.rounds:
        for move in planned_round.moves:
            places = list(partitions[move.partition].directories)
            places[move.slot] = move.target
            partitions[move.partition] = replace(
                partitions[move.partition], directories=tuple(places)
            )
            used[move.source] -= move.size_bytes
            used[move.target] += move.size_bytes
    directories = [
        replace(directory, used_bytes=use)
        for directory, use in zip(found.directories, used, strict=True)
    ]
    return ClusterModel(found.brokers, directories, partitions)


@pytest.mark.parametrize("wrong", [(0.8, 0.9), (1.2, 0.8), (0.5, 0.0)])
def test_limits_that_contradict_each_other_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="the second share must be above 0%"):
        HealingLimits(*wrong)
