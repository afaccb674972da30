"""Workers of a share group in clusters that fail: nothing is lost, nothing comes again when done.

`python -m verification.simulation --shares` runs more of these clusters.
"""

import pytest

from verification.simulation.pool import run_seed
from verification.simulation.recorded_seeds import RECORDED_SEEDS
from verification.simulation.scenario import draw_shares
from verification.simulation.share_mutants import SHARE_MUTANTS

SEEDS = 40


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_workers_get_every_record_until_it_is_done(seed: int) -> None:
    """In seed 5, the clock of a broker ran so that a fetch set its timer again and again."""
    outcome = run_seed(seed, draw=draw_shares)
    assert outcome.violation is None, outcome.report


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6, 46))
def test_workers_get_every_record_in_more_clusters(seed: int) -> None:
    outcome = run_seed(seed, draw=draw_shares)
    assert outcome.violation is None, outcome.report


@pytest.mark.full
@pytest.mark.parametrize("name", SHARE_MUTANTS)
def test_a_mutant_of_share_groups_is_caught(name: str) -> None:
    first = RECORDED_SEEDS[name].seed
    seeds = range(first, first + SEEDS)
    assert any(run_seed(seed, name, draw_shares).violation is not None for seed in seeds)
