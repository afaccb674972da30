"""The settings of every plan, and the cluster for a plan: present and forecast sizes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spindle.client.blocking.client import WireClient
from spindle.operations.deletions import OwnDeletions
from spindle.operations.forecasts import ClusterForecast
from spindle.operations.history_folder import read_history
from spindle.operations.snapshot import ClusterSnapshot, read_snapshot
from spindle.planner.limits import PlanLimits

DEFAULT_HORIZON_MS: Final = 7 * 86_400_000


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The settings of a plan.

    Attributes:
        limits: spread and highest fill of directories, the throttle, the number of parallel moves.
        capacity_bytes: of each directory, which then holds only replicas; None for the brokers'
            reports.
        history: the folder of `history.record`, for forecasts; None to use only the present sizes.
        horizon_ms: with a history, how long after the end of a plan its limits must hold.
    """

    limits: PlanLimits = field(default_factory=PlanLimits)
    capacity_bytes: int | None = None
    history: Path | None = None
    horizon_ms: int = DEFAULT_HORIZON_MS

    @property
    def highest_fill(self) -> float:
        """The maximum used share of a file system during copies.

        With an assumed capacity, the fill of file systems is unknown, so copies may use all of it.
        """
        return 1.0 if self.capacity_bytes is not None else self.limits.max_fill


def read_cluster(
    client: WireClient, settings: PlanSettings, own: OwnDeletions | None = None
) -> tuple[ClusterSnapshot, ClusterForecast | None]:
    """Return a cluster as it is, and its forecast if the settings name a history.

    Args:
        own: the replicas that this execution moved away.

    Raises:
        ReplicasMoving: replicas are moving, so a plan would soon be wrong.
        OperationFailed: the responses contradict each other, the replicas of a directory do not fit
            into the capacity, or there is no history of the cluster.
        ApiError, ClientError: the cluster could not be asked.
    """
    snapshot = read_snapshot(client, settings.capacity_bytes, own=own)
    if settings.history is None:
        return snapshot, None
    history = read_history(settings.history, snapshot.cluster_id or "")
    return snapshot, ClusterForecast(history, settings.horizon_ms, settings.capacity_bytes)
