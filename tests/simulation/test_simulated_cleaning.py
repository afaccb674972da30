"""Compacted logs with gaps between segments, through kills, power failures and lost checkpoints.

The brokers load their logs before they know the topics. `python -m verification.simulation
--cleaning` runs more of these clusters.
"""

from collections.abc import Callable

import pytest

from verification.simulation.pool import run_seed
from verification.simulation.recorded_seeds import RECORDED_SEEDS
from verification.simulation.scenario import Scenario, draw, draw_cleaning, draw_disks

SEEDS = 60


@pytest.mark.parametrize("seed", range(1, 6))
def test_no_key_loses_its_newest_value(seed: int) -> None:
    outcome = run_seed(seed, draw=draw_cleaning)
    assert outcome.violation is None, outcome.report


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6, 46))
def test_no_key_loses_its_newest_value_in_more_clusters(seed: int) -> None:
    outcome = run_seed(seed, draw=draw_cleaning)
    assert outcome.violation is None, outcome.report


@pytest.mark.parametrize("name", [name for name in RECORDED_SEEDS if "gaps" in name])
def test_a_load_that_trusts_or_deletes_what_is_behind_a_gap_is_caught(name: str) -> None:
    first = RECORDED_SEEDS[name].seed
    seeds = range(first, first + SEEDS)
    assert any(run_seed(seed, name, draw_cleaning).violation is not None for seed in seeds)


@pytest.mark.parametrize("drawn", [draw, draw_disks, draw_cleaning])
def test_no_cluster_without_eligible_leader_replicas_loses_unsynced_records(
    drawn: Callable[[int], Scenario],
) -> None:
    """There, as in Kafka, the only member of an ISR leads without what it lost (KIP-966)."""
    scenarios = [drawn(seed) for seed in (*range(1, 100), 220169)]
    assert any(scenario.release for scenario in scenarios) or drawn is draw_disks
    assert not [s.seed for s in scenarios if s.chances.is_lossy and s.release]
