"""Whole clusters, by seed: no fault breaks a promise to a client."""

import gc
from dataclasses import replace
from types import CoroutineType

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


def test_a_run_leaves_no_coroutines_behind() -> None:
    """A finalizer of one would print that it was never awaited when the process ends."""
    simulate(replace(draw(6), fault_s=1.0))
    left = [x for x in gc.get_objects() if isinstance(x, CoroutineType)]
    assert [x.__qualname__ for x in left if "/spindle/" in x.cr_code.co_filename] == []
