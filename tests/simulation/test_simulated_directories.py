"""Directories that die, run full, turn read-only, return in other shapes, and are cordoned."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from verification.simulation.mutant import applied
from verification.simulation.mutants import MUTANTS
from verification.simulation.run import SimulationOutcome, simulate
from verification.simulation.scenario import (
    FaultRates,
    Scenario,
    Workload,
    draw_disks,
    draw_rebuilding,
    draw_vanishing,
)

SEEDS = 60
# The seed that finds this mutant; the seeds behind it follow.
FIRST = {
    "files of damaged replicas rebuilt": 86,
    "missing logs created empty": 6,
    "lost checkpoints taken for a proof": 8,
}
# A retirement that a stop breaks off; a move asked for while the replica is offline; the end of the
# faults between an empty disk and its return online; a heartbeat to a coordinator that loads.
FAILED_ONCE = (210088, 210095, 210204, 210253)
Run = Callable[[int], SimulationOutcome]


def full(seeds: Iterable[int]) -> list[Any]:
    return [pytest.param(seed, marks=pytest.mark.full) for seed in seeds]


def only(seed: int, chances: FaultRates, deeds: Workload, fault_s: float) -> Scenario:
    """Return a scenario with these faults and no others."""
    return replace(draw_disks(seed), chances=chances, deeds=deeds, fault_s=fault_s)


def isolated_failure(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(), Workload(isolated_failure=True), fault_s=1.0))


def cordoned(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(), Workload(cordons=True), fault_s=8.0))


def dead(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(fail=0.5), Workload(), fault_s=8.0))


def stale(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(stale=0.5), Workload(), fault_s=8.0))


def recovered(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(recovered=0.5), Workload(), fault_s=8.0))


def added(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(added=0.5), Workload(), fault_s=8.0))


def cut_swap(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(cut_swap=0.4), Workload(), fault_s=8.0))


def moves_amid_changes(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(moves_amid_changes=0.6), Workload(), fault_s=8.0))


def rebuilt(seed: int) -> SimulationOutcome:
    return simulate(only(seed, FaultRates(rebuilt=1.0, kill=0.1), Workload(), fault_s=8.0))


def audited(seed: int) -> SimulationOutcome:
    return simulate(
        only(seed, FaultRates(audited=0.5, kill=0.1), Workload(compacts=True), fault_s=8.0)
    )


def rebuilding(seed: int) -> SimulationOutcome:
    return simulate(draw_rebuilding(seed))


def vanishing(seed: int) -> SimulationOutcome:
    return simulate(draw_vanishing(seed))


RUNS = (
    isolated_failure,
    cordoned,
    dead,
    stale,
    recovered,
    added,
    cut_swap,
    moves_amid_changes,
    rebuilt,
    audited,
    rebuilding,
    vanishing,
)


@pytest.mark.parametrize("seed", [1, 2, *full(range(3, 11))])
def test_a_cluster_survives_its_directories(seed: int) -> None:
    outcome = simulate(draw_disks(seed))
    assert outcome.violation is None, outcome.report


@pytest.mark.full
@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_a_cluster_that_has_failed_once_does_not_fail_again(seed: int) -> None:
    outcome = simulate(draw_disks(seed))
    assert outcome.violation is None, outcome.report


@pytest.mark.parametrize("seed", [1, *full(range(2, 5))])
@pytest.mark.parametrize("run", RUNS)
def test_no_fault_alone_breaks_a_promise(run: Run, seed: int) -> None:
    outcome = run(seed)
    assert outcome.violation is None, outcome.report


@pytest.mark.full
@pytest.mark.parametrize(
    ("run", "name"),
    [
        (isolated_failure, "failed directories not reported"),
        (isolated_failure, "followers kept in the ISR after a failure"),
        (isolated_failure, "failure of a directory takes the broker out"),
        (isolated_failure, "failure of a directory ends the others"),
        (isolated_failure, "directories not reported"),
        (cordoned, "cordons ignored by brokers"),
        (cordoned, "cordons ignored by the controller"),
        (dead, "replica created beside an offline directory"),
        (cut_swap, "whole copy of a cut swap removed"),
        (moves_amid_changes, "beginning moves not counted"),
        (rebuilt, "rebuilt before leaving the ISR"),
        (audited, "files of damaged replicas rebuilt"),
        (rebuilding, "fetches for former logs counted"),
        (vanishing, "missing logs created empty"),
        (vanishing, "lost checkpoints taken for a proof"),
    ],
)
def test_a_mutant_is_caught(run: Run, name: str) -> None:
    with applied(MUTANTS[name]):
        first = FIRST.get(name, 1)
        assert any(run(seed).violation is not None for seed in range(first, first + SEEDS))
