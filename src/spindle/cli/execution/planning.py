"""The plans of an execution, each made for the cluster as it is at that moment."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spindle.cli.durations import span_text
from spindle.cli.execution.disk_full_guard import highest_fill
from spindle.cli.execution.execution_file import ExecutionFile
from spindle.cli.execution.executor import RoundExecutor, WhileUncordoned, without_cordons
from spindle.cli.execution.progress_events import ProgressEvent, Remarks, Reporter
from spindle.cli.failure import CommandFailed
from spindle.cli.plan.deletions import OwnDeletions
from spindle.cli.plan.snapshot import ClusterSnapshot, read_snapshot
from spindle.cli.sampling.plan_forecast import look_ahead
from spindle.client.blocking.client import WireClient
from spindle.common.text import join_first
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan

_MAX_NAMED: Final = 3
_MS: Final = 1000


class DeletionWait:
    """Waits once for deletions that brokers do not report, for as long as files are kept.

    Kafka's brokers report how much of a directory is used, but not how much of it belongs to
    replicas that were just deleted. A plan that counts these bytes moves too much.
    """

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._has_waited = False

    def wait_once(self, snapshot: ClusterSnapshot, plan: PlacementPlan) -> bool:
        """Wait if a plan may be wrong because of deletions; return True if the cluster must be read
        again."""
        if self._has_waited or not plan.rounds or not snapshot.unexplained:
            return False
        self._has_waited = True
        names = join_first([str(directory) for directory in snapshot.unexplained], _MAX_NAMED)
        delay_ms = max(directory.deletion_delay_ms for directory in snapshot.unexplained)
        text = (
            f"waiting {span_text(delay_ms / _MS)}: {names} "
            f"{'use' if len(snapshot.unexplained) > 1 else 'uses'} space that no replica accounts "
            "for, and brokers of Kafka do not report whether it belongs to deleted replicas"
        )
        facts = {
            "directories": [str(directory) for directory in snapshot.unexplained],
            "waitMs": delay_ms,
        }
        self._report(ProgressEvent("waiting", text, facts))
        time.sleep(delay_ms / _MS)
        return True


@dataclass(frozen=True, slots=True)
class ExecutionPlanning:
    """The options by which an execution plans.

    Attributes:
        limits: of each plan.
        capacity_bytes: of each directory; None to believe the brokers.
        history: the folder of a history; None to look at the present sizes only.
        horizon_ms: how long after its end the limits of each plan must hold.
    """

    limits: PlanLimits
    capacity_bytes: int | None
    history: Path | None
    horizon_ms: int

    def plan(
        self,
        client: WireClient,
        make: Callable[[ClusterModel], PlacementPlan],
        own: OwnDeletions,
        deletion_wait: DeletionWait | None = None,
        remarks: Remarks | None = None,
    ) -> PlacementPlan:
        """Read the cluster, and return a plan for it.

        Args:
            make: makes a plan for the cluster of today, or of a later day.
            own: the replicas that this execution moved away.
            deletion_wait: waits before the first plan; None if it does not have to.
            remarks: reports what is unknown about the cluster.

        Raises:
            Infeasible: a replica has no other place.
            CommandFailed: partitions grow too fast, or there is no history of the cluster.
            ApiError, ClientError: the cluster refused, or could not be asked.
        """
        plan, snapshot = self._plan(client, make, own)
        if remarks is not None:
            remarks.report(snapshot.silent)
        if deletion_wait is not None and deletion_wait.wait_once(snapshot, plan):
            plan, _ = self._plan(client, make, own)
        return plan

    def _plan(
        self,
        client: WireClient,
        make: Callable[[ClusterModel], PlacementPlan],
        own: OwnDeletions,
    ) -> tuple[PlacementPlan, ClusterSnapshot]:
        snapshot = read_snapshot(client, self.capacity_bytes, own=own)
        ahead = look_ahead(self.history, self.horizon_ms, snapshot, self.capacity_bytes)
        try:
            if ahead is None:
                return make(snapshot.model), snapshot
            return ahead.plan(snapshot.model, make).current, snapshot
        except ValueError as error:
            raise CommandFailed(str(error)) from None

    def executor(
        self,
        client: WireClient,
        file: ExecutionFile,
        report: Reporter,
        while_uncordoned: WhileUncordoned = without_cordons,
    ) -> RoundExecutor:
        """Return an executor that keeps the throttle and the highest fill of the plans."""
        return RoundExecutor(
            client,
            file,
            self.limits,
            report,
            highest_fill=highest_fill(self.limits, self.capacity_bytes),
            while_uncordoned=while_uncordoned,
        )
