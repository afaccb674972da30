"""Whole clusters, by seed: no fault breaks a promise to a client."""

import pytest

from verification.simulation.run import simulate
from verification.simulation.scenario import draw


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    outcome = simulate(draw(seed))
    assert outcome.violation is None, outcome.report


def test_a_seed_repeats_its_run() -> None:
    first, second = (simulate(draw(11)) for _ in range(2))
    assert first == second
    assert first.acknowledged > 20
    assert len(first.history) > 50
