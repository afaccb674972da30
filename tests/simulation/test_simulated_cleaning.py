"""Compacted logs with gaps between segments, through kills, power failures and lost checkpoints.

The brokers load their logs before they know the topics. `python -m spindle.testing.simulation
--cleaning` runs more of these clusters.
"""

import pytest

from spindle.testing.simulation.pool import run_seed
from spindle.testing.simulation.scenario import draw_cleaning

FIRST = {
    "gaps not verified": 78,
    "segments behind gaps deleted": 8,
    "segments behind gaps deleted, without recovery points": 8,
}
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


@pytest.mark.parametrize("name", FIRST)
def test_a_load_that_trusts_or_deletes_what_is_behind_a_gap_is_caught(name: str) -> None:
    seeds = range(FIRST[name], FIRST[name] + SEEDS)
    assert any(run_seed(seed, name, draw_cleaning).violation is not None for seed in seeds)
