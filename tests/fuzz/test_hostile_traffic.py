"""A node under hostile input for a few seconds; SPINDLE_FUZZ_SECONDS makes it longer."""

import asyncio
import os
from collections.abc import Callable

import pytest

from spindle.testing.fuzz.run import FuzzPlan, run
from spindle.testing.fuzz.target import TargetNode

SECONDS = float(os.environ.get("SPINDLE_FUZZ_SECONDS", "20"))
SEED = int(os.environ.get("SPINDLE_FUZZ_SEED", "2026"))


@pytest.mark.timeout(SECONDS + 120)
def test_hostile_input_harms_nobody(start_node: Callable[..., TargetNode]) -> None:
    node = start_node()
    outcome = asyncio.run(run(FuzzPlan(node.host, node.port, SEED, SECONDS, attackers=6), node))
    assert outcome.finding is None, f"seed {SEED}: {outcome.finding}"
    assert outcome.cases > 100
    assert outcome.answers > 20
    assert len(outcome.latencies_ms) > 50


@pytest.mark.timeout(SECONDS + 120)
def test_hostile_input_to_a_controller_ends_nothing(start_node: Callable[..., TargetNode]) -> None:
    node = start_node()
    plan = FuzzPlan(node.host, node.controller_port, SEED, SECONDS / 3, is_controller=True)
    outcome = asyncio.run(run(plan, node))
    assert outcome.finding is None, f"seed {SEED}: {outcome.finding}"
    assert outcome.cases > 100
