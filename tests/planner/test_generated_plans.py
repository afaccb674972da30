"""Plans for generated clusters, checked at every step by a verifier of its own.

SPINDLE_PLANS sets the number of clusters (`make plans`).
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from generated_clusters import GIB, small_cluster
from replayed_plans import Replay, verify

from spindle.common.ids import TopicPartition
from spindle.planner.goals import balance, decommission, drain, what_if
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.plan import (
    BindingLimit,
    Infeasible,
    PlacementPlan,
    PlannedMove,
    PlannedRound,
)
from spindle.planner.what_if import ClusterChanges

CLUSTERS = int(os.environ.get("SPINDLE_PLANS", "300"))
BLOCKS = 4
ROUNDING = 1e-9


def limits_of(seed: int) -> PlanLimits:
    """Return limits that differ between clusters."""
    random = Random(-seed)
    return PlanLimits(
        spread=random.choice((0.05, 0.1, 0.0)),
        max_fill=random.choice((0.95, 0.8, 1.0)),
        parallel_moves=random.choice((1, 2, 5)),
        keeps_racks=random.random() < 0.8,
    )


def seeds(block: int) -> range:
    return range(block, CLUSTERS, BLOCKS)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_balanced_cluster_kept_every_rule_and_is_no_worse(block: int) -> None:
    for seed in seeds(block):
        cluster, limits = small_cluster(seed), limits_of(seed)
        before = Replay(cluster, limits, frozenset()).spread()
        plan = balance(cluster, limits)
        verify(plan, limits)
        assert plan.spread <= max(before, limits.spread) + ROUNDING, seed
        assert plan.lower_bound_bytes <= plan.moved_bytes, seed
        is_shown_as_wanted = round(100 * plan.spread, 1) <= round(100 * limits.spread, 1)
        assert bool(plan.remarks) or is_shown_as_wanted, seed
        if before <= limits.spread:
            assert not plan.rounds, seed


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_drained_cluster_kept_every_rule_and_has_empty_directories(block: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in seeds(block):
        cluster, limits = small_cluster(seed), limits_of(seed)
        plans: tuple[Callable[[], PlacementPlan], ...] = (
            partial(drain, cluster, [0], limits),
            partial(decommission, cluster, cluster.brokers[-1].broker_id, limits),
            partial(what_if, cluster, grown_and_shrunk(cluster.brokers[0].broker_id), limits),
        )
        for make in plans:
            try:
                plan = make()
            except Infeasible as error:
                outcomes[error.limit] += 1
                continue
            verify(plan, limits)
            assert plan.lower_bound_bytes <= plan.moved_bytes, seed
            outcomes["planned"] += 1
    assert outcomes["planned"] > 50
    assert outcomes[BindingLimit.CAPACITY] > 0
    assert outcomes[BindingLimit.REPLICATION] > 0


def grown_and_shrunk(broker_id: int) -> ClusterChanges:
    return ClusterChanges(
        added_brokers=[BrokerModel(90), BrokerModel(91, "r1")],
        added_directories=[
            DirectoryModel(90, "/a", 200 * GIB, 0),
            DirectoryModel(91, "/a", 300 * GIB, GIB),
            DirectoryModel(91, "/b", 100 * GIB, 0, is_cordoned=True),
        ],
        removed_brokers=[broker_id],
    )


def test_the_same_cluster_has_the_same_plan() -> None:
    for seed in range(20):
        limits = limits_of(seed)
        assert balance(small_cluster(seed), limits) == balance(small_cluster(seed), limits)


def crowded_plan(limits: PlanLimits) -> PlacementPlan:
    """Return a plan with several rounds, whose first one has two moves out of one directory."""
    plans = (balance(small_cluster(seed), limits) for seed in range(50))
    return next(
        plan
        for plan in plans
        if len(plan.rounds) > 1
        and len({move.source for move in plan.rounds[0].moves}) < len(plan.rounds[0].moves)
    )


def hasty() -> PlacementPlan:
    """Return a plan without the time in which the replicas of its first round are deleted."""
    directories = [DirectoryModel(1, path, 10 * GIB, 8 * GIB) for path in ("/a", "/b")]
    directories.append(DirectoryModel(1, "/c", 100 * GIB, 0))
    partitions = [
        PartitionModel(TopicPartition("t", number), (number,), (8 * GIB,)) for number in range(2)
    ]
    cluster = ClusterModel([BrokerModel(1)], directories, partitions)
    moves = ((0, 0, 2), (1, 1, 0))
    rounds = [PlannedRound([PlannedMove(n, 0, a, b, 8 * GIB)], 163_840) for n, a, b in moves]
    used = [8 * GIB, 0, 8 * GIB]
    plan = PlacementPlan(cluster, (), rounds, used, 0, 0.8, 0.8, ())
    assert not is_refused(with_wait(plan, 60_000), PlanLimits())
    return with_wait(plan, 59_999)


def with_wait(plan: PlacementPlan, wait_ms: int) -> PlacementPlan:
    first, second = plan.rounds
    return replace(plan, rounds=[first, replace(second, wait_ms=wait_ms)])


def is_refused(plan: PlacementPlan, limits: PlanLimits) -> bool:
    try:
        verify(plan, limits)
    except AssertionError:
        return True
    return False


def test_the_verifier_finds_a_broken_plan() -> None:
    limits = PlanLimits(parallel_moves=2)
    plan = crowded_plan(limits)
    assert not is_refused(plan, limits)
    first, *others = plan.rounds
    cluster, target = plan.cluster, first.moves[0].target
    full = [
        replace(directory, capacity_bytes=directory.used_bytes) for directory in cluster.directories
    ]
    sealed, dead = list(cluster.directories), list(cluster.directories)
    sealed[target] = replace(cluster.directories[target], is_cordoned=True)
    dead[target] = replace(cluster.directories[target], is_online=False)
    broken = {
        "a round is missing": (replace(plan, rounds=others), limits),
        "a round is there twice": (replace(plan, rounds=[first, *plan.rounds]), limits),
        "there is no room": (replace(plan, cluster=replace(cluster, directories=full)), limits),
        "it is cordoned": (replace(plan, cluster=replace(cluster, directories=sealed)), limits),
        "it is offline": (replace(plan, cluster=replace(cluster, directories=dead)), limits),
        "it is emptied": (replace(plan, leaving=[target]), limits),
        "too short": (replace(plan, rounds=[replace(first, duration_ms=1), *others]), limits),
        "it begins before replicas are deleted": (hasty(), PlanLimits()),
        "too many at once": (plan, replace(limits, parallel_moves=1)),
        "a smaller throttle": (plan, replace(limits, throttle_bytes_per_second=2**20)),
        "an order without a leader": (replace(plan, preferred={0: 99}), limits),
        "other fills": (replace(plan, used_bytes=[*plan.used_bytes[:-1], -1]), limits),
    }
    unnoticed = [name for name, (wrong, its) in broken.items() if not is_refused(wrong, its)]
    assert not unnoticed
