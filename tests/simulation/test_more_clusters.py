"""More of them, in a file of their own, which another worker may take."""

import pytest

from spindle.testing.simulation.run import simulate
from spindle.testing.simulation.scenario import draw


@pytest.mark.parametrize("seed", [*range(101, 170), 20049])
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    """In 20049 a topic is made again while its predecessor's logs are put aside."""
    outcome = simulate(draw(seed))
    assert outcome.violation is None, outcome.report
