"""The files that undo the rounds of generated plans, replayed with deleted replicas counted."""

from generated_clusters import small_cluster

from spindle.cli.tools.reassignment_plan import parse_plan
from spindle.operations.plan_files import rollback_texts
from spindle.planner.goals import balance
from spindle.planner.limits import PlanLimits
from spindle.planner.plan import PlacementPlan

LIMITS = PlanLimits()


def waits_of_way_back(plan: PlacementPlan) -> int:
    """Check that each step of a way back has room; return how many of them wait."""
    directories = plan.cluster.directories
    delays = [directory.deletion_delay_ms for directory in directories]
    kept = [directory.kept_bytes for directory in directories]
    deleted = [
        directory.deleted_bytes if delay else 0
        for directory, delay in zip(directories, delays, strict=True)
    ]
    # A directory that was too full at first gets as full as it was, and no fuller.
    peaks = [int(LIMITS.max_fill * directory.capacity_bytes) for directory in directories]
    for planned_round in plan.rounds:
        for move in planned_round.moves:
            kept[move.target] += move.size_bytes
        peaks = list(map(max, peaks, kept))
        for move in planned_round.moves:
            kept[move.source] -= move.size_bytes
            deleted[move.source] += move.size_bytes if delays[move.source] else 0
    waits = 0
    texts = rollback_texts(plan, LIMITS.max_fill)
    for planned_round, text in zip(reversed(plan.rounds), reversed(texts), strict=True):
        wait_ms = parse_plan(text).wait_ms
        waits += wait_ms > 0
        deleted = [size if delays[n] > wait_ms else 0 for n, size in enumerate(deleted)]
        for move in planned_round.moves:
            kept[move.source] += move.size_bytes
        for move in planned_round.moves:
            assert kept[move.source] + deleted[move.source] <= peaks[move.source]
        for move in planned_round.moves:
            kept[move.target] -= move.size_bytes
            deleted[move.target] += move.size_bytes if delays[move.target] else 0
    assert kept == [directory.kept_bytes for directory in directories]
    return waits


def test_each_step_of_a_way_back_has_room_and_ends_at_the_beginning() -> None:
    plans = [balance(small_cluster(seed), LIMITS) for seed in range(150)]
    assert sum(map(waits_of_way_back, plans)) > 10
