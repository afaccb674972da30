"""Disks that hang, and compaction, retention, DeleteRecords and deletions at the same time."""

from dataclasses import replace

import pytest

from verification.simulation.mutant import applied
from verification.simulation.mutants import MUTANTS
from verification.simulation.run import SimulationOutcome, simulate
from verification.simulation.scenario import FaultRates, Workload, draw

SEEDS = 60


def busy_disks(seed: int) -> SimulationOutcome:
    """Run a cluster whose topics are compacted and trimmed, on disks that are slow and hang."""
    scenario = replace(
        draw(seed),
        chances=FaultRates(hang=0.3, slow=0.2),
        deeds=Workload(compacts=True, trims=True),
        disk_s=0.02,
        fault_s=8.0,
        release=None,
    )
    return simulate(scenario)


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 16))]
)
def test_no_directory_is_given_up_but_for_its_disk(seed: int) -> None:
    outcome = busy_disks(seed)
    assert outcome.violation is None, outcome.report


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "compaction not aborted",
        "compaction drops newest records",
        "flush request lost by a roll",
        "hang beside the thread not seen",
        "hang not seen",
    ],
)
def test_a_mutant_is_caught(name: str) -> None:
    with applied(MUTANTS[name]):
        assert any(busy_disks(seed).violation is not None for seed in range(1, SEEDS + 1))
