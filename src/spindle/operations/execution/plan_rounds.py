"""Repeats planning and moving until there is nothing left to move."""

from collections.abc import Callable
from math import inf
from typing import Final

from spindle.operations.errors import OperationFailed, ReplicasMoving
from spindle.operations.execution.executor import PAUSE_S, RoundExecutor
from spindle.planner.plan import Infeasible, PlacementPlan

_MAX_VAIN_ROUNDS: Final = 5
_MAX_REFUSALS: Final = 20
"""Consecutive planning failures tolerated after a round."""


def run_rounds(
    executor: RoundExecutor,
    make_plan: Callable[[], PlacementPlan],
    *,
    before_round: Callable[[PlacementPlan], None],
    distance: Callable[[PlacementPlan], float],
    stays: str,
) -> PlacementPlan:
    """Execute one plan after the other, and return the plan without rounds.

    Every plan is made for the present cluster. If no plan is possible, the throttles are removed.

    Args:
        before_round: called with each plan that has rounds.
        distance: the distance from the goal before a plan; 0 is the goal.
        stays: the error if rounds do not bring the goal closer.

    Raises:
        Infeasible: a plan is not possible.
        OperationFailed: rounds do not bring the goal closer, or the cluster refused a move.
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    executor.throttle()
    executor.wait()
    vain_rounds, closest = 0, inf
    while (plan := _planned(executor, make_plan)).rounds:
        before_round(plan)
        now = distance(plan)
        vain_rounds = 0 if now < closest else vain_rounds + 1
        closest = min(closest, now)
        if vain_rounds == _MAX_VAIN_ROUNDS:
            executor.pause()
            raise OperationFailed("\n".join([stays, *executor.refused]))
        executor.run(plan)
        # The cause of a failed plan is often temporary: a stopped broker comes back.
        executor.sleep(PAUSE_S * 2**vain_rounds)
        executor.wait()
    return plan


def _planned(executor: RoundExecutor, make_plan: Callable[[], PlacementPlan]) -> PlacementPlan:
    """Wait for other reassignments to finish, then plan.

    The controller may know the end of a move before the broker that reports the replicas. With the
    old replicas there may be no plan, so planning is retried for a while after a round.
    """
    refusals_left = _MAX_REFUSALS if executor.file.round else 0
    while True:
        try:
            return make_plan()
        except ReplicasMoving:
            executor.sleep(PAUSE_S)
            executor.wait()
        except (Infeasible, OperationFailed):
            if refusals_left == 0:
                executor.pause()
                raise
            refusals_left -= 1
            executor.sleep(PAUSE_S)
