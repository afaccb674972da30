"""A node under hostile input for seconds, or for most of a minute; `make fuzz` takes longer."""

import os
from collections.abc import Callable

import pytest

from verification.fuzz.run import FuzzPlan, run
from verification.fuzz.target import TargetNode

SECONDS = [5.0, pytest.param(45.0, marks=pytest.mark.full)]
SEED = int(os.environ.get("SPINDLE_FUZZ_SEED", "2026"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seconds", SECONDS)
async def test_hostile_input_harms_nobody(
    start_node: Callable[..., TargetNode], seconds: float
) -> None:
    node = start_node()
    plan = FuzzPlan(
        node.host, node.port, SEED, seconds, attackers=6, min_cases=120, min_canary_requests=60
    )
    outcome = await run(plan, node)
    assert outcome.finding is None, f"seed {SEED}: {outcome.finding}"
    assert outcome.cases > 100
    assert outcome.answers > 20
    assert len(outcome.latencies_ms) > 50


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seconds", SECONDS)
async def test_hostile_input_to_a_controller_ends_nothing(
    start_node: Callable[..., TargetNode], seconds: float
) -> None:
    node = start_node()
    plan = FuzzPlan(
        node.host, node.controller_port, SEED, seconds / 3, is_controller=True, min_cases=120
    )
    outcome = await run(plan, node)
    assert outcome.finding is None, f"seed {SEED}: {outcome.finding}"
    assert outcome.cases > 100
