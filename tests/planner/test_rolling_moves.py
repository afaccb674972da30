"""Moves that begin when their limits allow it, carried out on generated clusters step by step."""

from collections.abc import Iterator
from fractions import Fraction
from random import Random

from generated_clusters import GIB, small_cluster
from simulated_moves import SimulatedMoves

from spindle.common.ids import TopicPartition
from spindle.planner.goals import balance, drain
from spindle.planner.limits import PlanLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel, PartitionModel
from spindle.planner.plan import Infeasible, PlacementPlan
from spindle.planner.rolling import RollingMoves

CLUSTERS = 150


def carried_out(plan: PlacementPlan, limits: PlanLimits) -> SimulatedMoves:
    """Carry out all moves of a plan, and return the cluster after them."""
    rolling, state = RollingMoves(plan, limits), SimulatedMoves(plan.cluster, limits)
    while rolling.waiting or rolling.under_way:
        for move in rolling.begin(state.rooms()):
            state.start(move)
        assert state.left_bytes or state.deleted, "moves wait for nothing"
        for move in state.pass_time():
            rolling.end(move, has_moved=True)
    return state


def generated_plans() -> Iterator[tuple[PlacementPlan, PlanLimits]]:
    for seed in range(CLUSTERS):
        random = Random(-seed)
        limits = PlanLimits(
            spread=random.choice((0.05, 0.0)),
            max_fill=random.choice((0.95, 0.8, 1.0)),
            parallel_moves=random.choice((1, 2, 5)),
        )
        cluster = small_cluster(seed)
        yield balance(cluster, limits), limits
        try:
            yield drain(cluster, [0], limits), limits
        except Infeasible:
            continue


def test_every_move_of_a_plan_ends_and_no_step_breaks_a_limit() -> None:
    count, rolling_ms, rounds_ms = 0, Fraction(0), 0
    for plan, limits in generated_plans():
        state = carried_out(plan, limits)
        assert state.places == plan.places()
        if len(plan.rounds) > 1:
            count += 1
            rolling_ms += state.time_ms
            rounds_ms += plan.duration_ms
    assert count > 30
    assert rolling_ms < rounds_ms


def one_broker(*sizes_gib: int, parallel: int) -> tuple[PlacementPlan, PlanLimits]:
    """Return a drain of a directory into two others."""
    partitions = [
        PartitionModel(TopicPartition("t", n), (0,), (size * GIB,), leader=1)
        for n, size in enumerate(sizes_gib)
    ]
    directories = [
        DirectoryModel(1, path, 100 * GIB, used * GIB)
        for path, used in (("/a", sum(sizes_gib)), ("/b", 0), ("/c", 0))
    ]
    limits = PlanLimits(parallel_moves=parallel)
    return drain(ClusterModel([BrokerModel(1)], directories, partitions), [0], limits), limits


def test_a_move_does_not_wait_for_the_slowest_of_a_round() -> None:
    plan, limits = one_broker(40, 1, 1, 1, 1, parallel=2)
    rolling = RollingMoves(plan, limits)
    rooms = SimulatedMoves(plan.cluster, limits).rooms()
    large, small = rolling.begin(rooms)
    assert (large.size_bytes, small.size_bytes) == (40 * GIB, GIB)
    assert rolling.begin(rooms) == []
    rolling.end(small, has_moved=True)
    assert len(rolling.begin(rooms)) == 1


def test_a_small_move_does_not_take_the_room_of_a_large_one_before_it() -> None:
    plan, limits = one_broker(40, 1, parallel=5)
    first, second = (move for planned_round in plan.rounds for move in planned_round.moves)
    rolling = RollingMoves(plan, limits)
    assert rolling.begin({first.target: 10 * GIB, second.target: 10 * GIB}) == (
        [second] if first.target != second.target else []
    )
    assert first in rolling.waiting


def test_the_later_moves_of_a_partition_are_dropped_with_one_that_failed() -> None:
    plan, limits = one_broker(40, 1, parallel=5)
    rolling = RollingMoves(plan, limits)
    rooms = SimulatedMoves(plan.cluster, limits).rooms()
    for move in rolling.begin(rooms):
        rolling.end(move, has_moved=False)
    assert list(rolling.left()) == []


def test_a_replica_that_has_grown_needs_more_room() -> None:
    plan, limits = one_broker(40, parallel=5)
    rolling = RollingMoves(plan, limits)
    rooms = {1: 50 * GIB, 2: 50 * GIB}
    assert rolling.begin(rooms, lambda _: 60 * GIB) == []
    assert len(rolling.begin(rooms, lambda _: 45 * GIB)) == 1
