"""The plans of an execution, each made for the present cluster."""

import time
from collections.abc import Callable
from typing import Final

from spindle.client.blocking.client import WireClient
from spindle.operations.cancellation import Sleep
from spindle.operations.deletions import OwnDeletions
from spindle.operations.errors import OperationFailed
from spindle.operations.events import OnProgress, Remarks, WaitsForUnexplainedSpace
from spindle.operations.plan_settings import PlanSettings, read_cluster
from spindle.operations.snapshot import ClusterSnapshot
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan

_MS: Final = 1000


class DeletionWait:
    """Waits once, for the deletion delay, for deletions that brokers do not report.

    Kafka's brokers report the used bytes of a directory, but not how many belong to deleted
    replicas. A plan that counts these bytes moves too much.
    """

    def __init__(self, report: OnProgress, sleep: Sleep = time.sleep) -> None:
        self._report = report
        self._sleep = sleep
        self._has_waited = False

    def wait_once(self, snapshot: ClusterSnapshot, plan: PlacementPlan) -> bool:
        """Wait if a plan may be wrong because of deletions; return True if the cluster must be read
        again."""
        if self._has_waited or not plan.rounds or not snapshot.unexplained:
            return False
        self._has_waited = True
        delay_ms = max(directory.deletion_delay_ms for directory in snapshot.unexplained)
        names = [str(directory) for directory in snapshot.unexplained]
        self._report(WaitsForUnexplainedSpace(names, delay_ms))
        self._sleep(delay_ms / _MS)
        return True


def plan_now(
    client: WireClient,
    settings: PlanSettings,
    make: Callable[[ClusterModel], PlacementPlan],
    own: OwnDeletions,
    deletion_wait: DeletionWait | None = None,
    remarks: Remarks | None = None,
) -> PlacementPlan:
    """Read the cluster, and return a plan for it.

    Args:
        make: makes a plan for the cluster of today, or of a later day.
        own: the replicas that this execution moved away.
        deletion_wait: waits before the first plan; None for no wait.
        remarks: reports what is unknown about the cluster.

    Raises:
        Infeasible: a replica has no other place.
        OperationFailed: partitions grow too fast, or there is no history of the cluster.
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    while True:
        snapshot, forecast = read_cluster(client, settings, own)
        try:
            if forecast is None:
                plan = make(snapshot.model)
            else:
                plan = forecast.plan(snapshot.model, make).current
        except ValueError as error:
            raise OperationFailed(str(error)) from None
        if remarks is not None:
            remarks.report(snapshot.silent)
        if deletion_wait is None or not deletion_wait.wait_once(snapshot, plan):
            return plan
