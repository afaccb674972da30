"""The lower bound against all placements of tiny clusters, and plans of the size of a real one."""

from itertools import product
from random import Random

import pytest
from generated_clusters import GIB
from replayed_plans import verify

from benchmarks.planner import HEAVY_TAILED, SMALL, Shape, skewed_cluster
from spindle.common.ids import TopicPartition
from spindle.planner.goals import balance, drain, what_if
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.what_if import ClusterChanges

FIVE_POINTS = 0.05


def tiny_cluster(seed: int) -> ClusterModel:
    """Return two brokers with two directories each, and five replicas."""
    random = Random(seed)
    sizes = [random.randint(1, 20) * GIB for _ in range(5)]
    places = [random.choice((0, 0, 0, 1, 2, 3)) for _ in sizes]
    used = [sum(s for s, p in zip(sizes, places, strict=True) if p == d) for d in range(4)]
    capacities = [max(used[d] * 2, random.randint(40, 80) * GIB) for d in range(4)]
    return ClusterModel(
        [BrokerModel(0), BrokerModel(1)],
        [DirectoryModel(d // 2, f"/d{d}", capacities[d], used[d]) for d in range(4)],
        [
            PartitionModel(TopicPartition("t", number), (place,), (size,), leader=place // 2)
            for number, (size, place) in enumerate(zip(sizes, places, strict=True))
        ],
    )


def cheapest_bytes(cluster: ClusterModel, spread: float) -> int | None:
    """Return the fewest bytes of all placements with a spread, None if no placement has it."""
    costs = []
    for places in product(range(4), repeat=len(cluster.partitions)):
        used = [0] * 4
        cost = 0
        for partition, place in zip(cluster.partitions, places, strict=True):
            (size,) = partition.size_bytes
            used[place] += size
            cost += size if place != partition.directories[0] else 0
        fills = [u / d.capacity_bytes for u, d in zip(used, cluster.directories, strict=True)]
        if max(fills) - min(fills) <= spread:
            costs.append(cost)
    return min(costs, default=None)


def test_no_placement_of_all_costs_less_than_the_lower_bound() -> None:
    limits = PlanLimits(spread=0.2)
    reached = 0
    for seed in range(40):
        cluster = tiny_cluster(seed)
        plan = balance(cluster, limits)
        best = cheapest_bytes(cluster, max(plan.spread, limits.spread))
        assert best is not None
        assert plan.lower_bound_bytes <= best <= plan.moved_bytes, seed
        reached += plan.spread <= limits.spread
    assert reached > 10


@pytest.mark.parametrize("shape", SMALL, ids=lambda shape: shape.name)
def test_thirty_skewed_directories_are_balanced_near_the_lower_bound(shape: Shape) -> None:
    cluster = skewed_cluster(shape, seed=4)
    limits = PlanLimits()
    plan = balance(cluster, limits)
    verify(plan, limits)
    assert plan.spread <= FIVE_POINTS
    assert plan.lower_bound_bytes <= plan.moved_bytes <= 1.05 * plan.lower_bound_bytes
    assert not plan.remarks


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_few_partitions_with_most_of_the_bytes_are_balanced_as_well(seed: int) -> None:
    limits = PlanLimits()
    plan = balance(skewed_cluster(HEAVY_TAILED, seed), limits)
    verify(plan, limits)
    assert plan.spread <= FIVE_POINTS
    assert plan.lower_bound_bytes <= plan.moved_bytes <= 1.1 * plan.lower_bound_bytes


def test_a_drain_moves_every_byte_once() -> None:
    cluster = skewed_cluster(SMALL[1], seed=9)
    limits = PlanLimits()
    plan = drain(cluster, [3, 4], limits)
    verify(plan, limits)
    assert plan.moved_bytes == plan.lower_bound_bytes


def test_a_directory_that_is_much_larger_than_the_others_takes_what_its_broker_can_have() -> None:
    """Three brokers, two replicas: a broker can have half of all bytes, and no more."""
    random = Random(1)
    used, partitions = [0] * 6, []
    for number in range(120):
        brokers, size = random.sample(range(3), 2), random.randint(1, 20) * GIB
        places = tuple(2 * broker + random.randrange(2) for broker in brokers)
        for place in places:
            used[place] += size
        name = TopicPartition("t", number)
        partitions.append(PartitionModel(name, places, (size, size), leader=brokers[0]))
    capacity = 2 * max(used)
    cluster = ClusterModel(
        [BrokerModel(broker) for broker in range(3)],
        [DirectoryModel(d // 2, f"/d{d}", capacity, used[d]) for d in range(6)],
        partitions,
    )
    huge = DirectoryModel(0, "/huge", 40 * capacity, 0)
    plan = what_if(cluster, ClusterChanges(added_directories=[huge]), PlanLimits())
    verify(plan, PlanLimits())
    assert plan.moved_bytes <= 1.1 * plan.lower_bound_bytes
    (remark,) = [remark for remark in plan.remarks if "points apart" in remark]
    assert "a broker has each partition at most once" in remark
