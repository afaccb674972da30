"""Balances: plan, move one round, and plan again until nothing is left to move."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spindle.client.admin.cluster import describe_brokers
from spindle.client.blocking.client import WireClient
from spindle.operations.cancellation import Cancellation, ProgressReport, Sleep, undone_if_cancelled
from spindle.operations.deletions import deleted_space
from spindle.operations.errors import OperationFailed
from spindle.operations.events import (
    Balanced,
    OnProgress,
    Remark,
    Remarks,
    Undone,
    ignore_progress,
)
from spindle.operations.execution.execution_file import ExecutionFile, open_execution_file
from spindle.operations.execution.executor import RoundExecutor
from spindle.operations.execution.leaderships import give_leaderships
from spindle.operations.execution.plan_rounds import run_rounds
from spindle.operations.execution.planning import DeletionWait, plan_now
from spindle.operations.plan_settings import PlanSettings
from spindle.operations.state_files import locked
from spindle.planner import goals
from spindle.planner.leaders import preferred_orders
from spindle.planner.plan import PlacementPlan

GOAL: Final = "balance"
BALANCE_STATE: Final = Path("spindle-balance.json")
"""The default path of the state of a balance."""


@dataclass(frozen=True, slots=True)
class BalanceResult:
    """The end of a balance.

    Attributes:
        spread: the largest difference of fill between two directories, from 0 to 1.
        remarks: why it is larger than wanted; empty if it is not.
        unknown_brokers: brokers without an online directory of known size.
        went_offline: directories that went offline meanwhile, as `BROKER:DIR`.
    """

    spread: float
    remarks: tuple[str, ...]
    unknown_brokers: tuple[int, ...]
    went_offline: tuple[str, ...]


def balance(
    client: WireClient,
    *,
    settings: PlanSettings | None = None,
    keeps_leaders: bool = False,
    state: Path = BALANCE_STATE,
    on_progress: OnProgress = ignore_progress,
    cancellation: Cancellation | None = None,
) -> BalanceResult:
    """Move replicas until all log directories are about equally full.

    After a kill, the same call continues. If it is cancelled, the moves stop; replicas that have
    moved stay where they are.

    Args:
        keeps_leaders: change no preferred leader at the end.
        state: the file that a later call reads to continue or to undo.

    Raises:
        OperationFailed: rounds do not bring the fills closer, or partitions grow too fast.
        ApiError, ClientError: the cluster refused, or could not be asked.
        Cancelled, KeyboardInterrupt: it was cancelled, and has undone its changes.

    Examples:
        >>> limits = PlanLimits(spread=0.1, throttle_bytes_per_second=20 * 2**20)
        >>> balance(client, settings=PlanSettings(limits), on_progress=print)
    """
    cluster_id = describe_brokers(client).cluster_id
    sleep = cancellation.sleep if cancellation is not None else None
    report = ProgressReport(on_progress)
    with locked(state, GOAL):
        file = open_execution_file(state, cluster_id, GOAL)
        run = BalanceRun(
            client,
            file,
            settings or PlanSettings(),
            report,
            keeps_leaders=keeps_leaders,
            sleep=sleep,
        )
        with undone_if_cancelled(run.cancel, state, report, "`cancel_balance`"):
            return run.finish()


def cancel_balance(
    client: WireClient, *, state: Path = BALANCE_STATE, on_progress: OnProgress = ignore_progress
) -> None:
    """Undo a balance that was killed: stop its moves, and remove its throttles.

    Raises:
        OperationFailed: there is no such balance, or it still runs.
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    cluster_id = describe_brokers(client).cluster_id
    with locked(state, GOAL):
        if not state.exists():
            raise OperationFailed(f"there is no balance to cancel: {state} does not exist")
        file = open_execution_file(state, cluster_id, GOAL)
        BalanceRun(client, file, PlanSettings(), on_progress).cancel()


class BalanceRun:
    """One run of a balance.

    Args:
        keeps_leaders: change no preferred leader at the end.
        sleep: waits between two checks; may raise `Cancelled`.
    """

    def __init__(
        self,
        client: WireClient,
        file: ExecutionFile,
        settings: PlanSettings,
        report: OnProgress,
        *,
        keeps_leaders: bool = False,
        sleep: Sleep | None = None,
    ) -> None:
        self._client = client
        self._file = file
        self._settings = settings
        self._report = report
        self._keeps_leaders = keeps_leaders
        self._remarks = Remarks(report)
        self._executor = RoundExecutor(
            client,
            file,
            settings.limits,
            report,
            highest_fill=settings.highest_fill,
            sleep=sleep,
        )
        self._deletion_wait = DeletionWait(report, self._executor.sleep)

    def finish(self) -> BalanceResult:
        """Move rounds until no plan brings the fills closer together.

        Raises:
            OperationFailed: rounds do not bring them closer, or partitions grow too fast.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        plan = run_rounds(
            self._executor,
            self._plan,
            before_round=lambda plan: None,
            distance=lambda plan: plan.moved_bytes,
            stays="balancing makes no progress: partitions may grow faster than they move; check "
            "the broker logs; `cancel_balance` removes the throttles",
        )
        if not self._keeps_leaders:
            give_leaderships(self._client, preferred_orders(plan), self._report)
        self._undo_throttles("the same call")
        for remark in plan.remarks:
            self._report(Remark(remark))
        space = deleted_space(plan.cluster.directories, self._executor.deletions)
        if space is not None:
            self._report(space)
        unknown, failed = _unknown(plan), self._executor.failures.still_offline()
        self._report(Balanced(failed, plan.spread, unknown))
        return BalanceResult(plan.spread, tuple(plan.remarks), tuple(unknown), tuple(failed))

    def cancel(self) -> None:
        """Stop the moves of this balance, and remove its throttles. Replicas that have moved stay.

        Raises:
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        self._executor.stop_moves()
        self._undo_throttles("`cancel_balance`")
        self._report(Undone("the balance"))

    def _undo_throttles(self, command: str) -> None:
        self._executor.unthrottle()
        self._file.end()
        self._executor.report_throttles_left(command)

    def _plan(self) -> PlacementPlan:
        return plan_now(
            self._client,
            self._settings,
            lambda model: goals.balance(model, self._settings.limits),
            self._executor.deletions,
            self._deletion_wait,
            self._remarks,
        )


def _unknown(plan: PlacementPlan) -> list[int]:
    """Return the brokers without an online directory of known size."""
    known = {
        directory.broker_id
        for directory in plan.cluster.directories
        if directory.is_online and directory.capacity_bytes
    }
    return sorted({broker.broker_id for broker in plan.cluster.brokers} - known)
