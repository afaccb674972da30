"""Executes a balance: plan, move one round, and plan again until nothing is left to move."""

from typing import Final

from spindle.cli.execution.deleted_space import deleted_space
from spindle.cli.execution.directory_failures import with_failures
from spindle.cli.execution.execution_file import ExecutionFile
from spindle.cli.execution.leaderships import give_leaderships
from spindle.cli.execution.plan_rounds import run_rounds
from spindle.cli.execution.planning import DeletionWait, ExecutionPlanning
from spindle.cli.execution.progress_events import ProgressEvent, Remarks, Reporter
from spindle.client.blocking.client import WireClient
from spindle.planner.goals import balance
from spindle.planner.leaders import preferred_orders
from spindle.planner.plan import PlacementPlan

GOAL: Final = "balance"


class BalanceRun:
    """One run of a balance.

    Args:
        keeps_leaders: change no preferred leader at the end.
    """

    def __init__(
        self,
        client: WireClient,
        file: ExecutionFile,
        planning: ExecutionPlanning,
        report: Reporter,
        *,
        keeps_leaders: bool,
    ) -> None:
        self._client = client
        self._file = file
        self._planning = planning
        self._report = report
        self._keeps_leaders = keeps_leaders
        self._deletion_wait = DeletionWait(report)
        self._remarks = Remarks(report)
        self._executor = planning.executor(client, file, report)

    def finish(self) -> None:
        """Bring the fills as close together as plans can.

        Raises:
            CommandFailed: rounds do not bring them closer, or partitions grow too fast.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        plan = run_rounds(
            self._executor,
            self._plan,
            before_round=lambda plan: None,
            distance=lambda plan: plan.moved_bytes,
            stays="balancing makes no progress: partitions may grow faster than they move; check "
            "the broker logs; --cancel removes the throttles",
        )
        if not self._keeps_leaders:
            give_leaderships(self._client, preferred_orders(plan), self._report)
        self._undo_throttles("the same command")
        for remark in plan.remarks:
            self._report(ProgressEvent("remark", remark, {"remark": remark}))
        space = deleted_space(plan.cluster.directories, self._executor.deletions)
        if space is not None:
            self._report(space)
        text = f"nothing is left to move: the fills are {100 * plan.spread:.1f} points apart"
        unknown = _unknown(plan)
        if unknown:
            names = ", ".join(map(str, unknown))
            text += f"; the directories of broker {names} are unknown, and not counted"
        end = ProgressEvent("balanced", text, {"spread": plan.spread, "unknownBrokers": unknown})
        self._report(with_failures(end, self._executor.failures.still_offline()))

    def cancel(self) -> None:
        """Stop the moves of this balance, and remove its throttles. Replicas that have moved stay.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self._executor.stop_moves()
        self._undo_throttles("the command with --cancel")
        self._report(ProgressEvent("cancelled", "the balance is cancelled"))

    def _undo_throttles(self, command: str) -> None:
        self._executor.unthrottle()
        self._file.end()
        self._executor.tell_throttles(command)

    def _plan(self) -> PlacementPlan:
        limits = self._planning.limits
        return self._planning.plan(
            self._client,
            lambda model: balance(model, limits),
            self._executor.deletions,
            self._deletion_wait,
            self._remarks,
        )


def _unknown(plan: PlacementPlan) -> list[int]:
    """Return the brokers without a directory that is online and of known size."""
    known = {
        directory.broker_id
        for directory in plan.cluster.directories
        if directory.is_online and directory.capacity_bytes
    }
    return sorted({broker.broker_id for broker in plan.cluster.brokers} - known)
