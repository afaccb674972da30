"""The active controller of a simulated cluster: how it begins, and that its tasks go on."""

from collections.abc import Sequence
from typing import Any

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.activation import activation_records
from spindle.runtime.controller import driver
from verification.simulation.mutant import applied
from verification.simulation.mutants import MUTANTS
from verification.simulation.run import simulate
from verification.simulation.scenario import FaultRates, NodePlan, Scenario, Workload, draw


@pytest.mark.parametrize("controllers", [1, 3])
def test_a_leader_that_cannot_become_active_resigns(
    controllers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter(range(3))
    original = activation_records

    def fail_at_first(*args: Any, **options: Any) -> Any:
        if next(failures, None) is not None:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "records that cannot be")
        return original(*args, **options)

    monkeypatch.setattr(driver, "activation_records", fail_at_first)
    plans: Sequence[NodePlan] = [
        *(NodePlan(i, ("controller",)) for i in range(1, controllers + 1)),
        *(NodePlan(i, ("broker",)) for i in range(11, 14)),
    ]
    scenario = Scenario(
        5, tuple(plans), is_dynamic=True, chances=FaultRates(), properties=draw(1).properties
    )
    outcome = simulate(scenario)
    assert outcome.violation is None, outcome.report
    assert next(failures, None) is None
    assert sum("could not become active" in line for line in outcome.history) == 3


def test_periodic_tasks_that_end_are_found() -> None:
    plans = (NodePlan(1, ("controller",)), *(NodePlan(i, ("broker",)) for i in (2, 3, 4)))

    def violation(seed: int) -> str | None:
        scenario = Scenario(
            seed,
            plans,
            is_dynamic=True,
            chances=FaultRates(kill=0.15),
            properties=draw(1).properties,
            fault_s=20.0,
            deeds=Workload(unclean=True),
        )
        return simulate(scenario).violation

    with applied(MUTANTS["periodic tasks end"]):
        assert any("has not fenced broker" in (violation(seed) or "") for seed in range(1, 21))
