"""Further seeds of `test_whole_clusters`, in their own file so that another worker can run them."""

import pytest

from spindle.testing.simulation.run import simulate
from spindle.testing.simulation.scenario import draw


@pytest.mark.parametrize("seed", range(101, 131))
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    outcome = simulate(draw(seed))
    assert outcome.violation is None, outcome.report
