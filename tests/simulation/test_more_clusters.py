"""Further seeds of `test_whole_clusters`."""

import pytest

from verification.simulation.run import simulate
from verification.simulation.scenario import draw


@pytest.mark.full
@pytest.mark.parametrize("seed", [*range(13, 41), *range(101, 131)])
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    outcome = simulate(draw(seed))
    assert outcome.violation is None, outcome.report
