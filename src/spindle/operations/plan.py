"""Plans of moves for a running cluster, as `spindle plan` makes them. Nothing is moved.

Examples:
    >>> from spindle.operations import plan
    >>> cluster_plan = plan.drain(client, 2, "/disk3")
    >>> print(cluster_plan.placement.moved_bytes, len(cluster_plan.placement.rounds))
    >>> plan.write_files(cluster_plan.placement, Path("rounds"), max_fill=0.95)
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spindle.client.blocking.client import WireClient
from spindle.common.text import span_text
from spindle.operations.directories import find_directories
from spindle.operations.errors import OperationFailed
from spindle.operations.forecasts import PlanForecast, plan_with
from spindle.operations.plan_files import write_files
from spindle.operations.plan_settings import PlanSettings, read_cluster
from spindle.operations.snapshot import ClusterSnapshot
from spindle.planner import goals, healing
from spindle.planner.healing import HealingLimits
from spindle.planner.model import BrokerModel, ClusterModel, DirectoryModel
from spindle.planner.plan import Infeasible, PlacementPlan
from spindle.planner.what_if import ClusterChanges

__all__ = [
    "ClusterPlan",
    "HealingLimits",
    "NoPlan",
    "PlanSettings",
    "balance",
    "decommission",
    "drain",
    "heal",
    "what_if",
    "write_files",
]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A plan, and the cluster for which it was made.

    Attributes:
        snapshot: the cluster; its `remarks` name missing data.
        placement: the rounds of moves, and their effect.
        time_ms: when the cluster was read, since 1970.
        forecast: the forecast after the plan; None without a history.
    """

    snapshot: ClusterSnapshot
    placement: PlacementPlan
    time_ms: int
    forecast: PlanForecast | None = None


class NoPlan(OperationFailed):
    """No plan reaches the goal. The text gives the reason.

    Attributes:
        snapshot: the cluster.
        time_ms: when it was read, since 1970.
        infeasible: the binding limit, and a remedy; None for another reason.
    """

    def __init__(self, reason: Infeasible | ValueError, snapshot: ClusterSnapshot, time_ms: int):
        super().__init__(str(reason))
        self.snapshot = snapshot
        self.time_ms = time_ms
        self.infeasible = reason if isinstance(reason, Infeasible) else None


def balance(client: WireClient, settings: PlanSettings | None = None) -> ClusterPlan:
    """Plan the fewest moved bytes after which all directories are about equally full.

    Raises:
        NoPlan: the cluster fills faster than any plan ends.
        OperationFailed: replicas move, or the cluster cannot be understood.
        ApiError, ClientError: the cluster could not be asked.
    """
    settings = settings or PlanSettings()
    return _planned(client, settings, lambda model: goals.balance(model, settings.limits))


def drain(
    client: WireClient,
    broker: int,
    directory: str | None = None,
    settings: PlanSettings | None = None,
) -> ClusterPlan:
    """Plan moves of all replicas out of a broker, or out of one of its log directories.

    Args:
        directory: its path; None for all directories of the broker.

    Raises:
        NoPlan: a replica has no other place.
        OperationFailed: replicas move, there is no such directory, or the cluster cannot be
            understood.
        ApiError, ClientError: the cluster could not be asked.
    """
    settings = settings or PlanSettings()

    def make(model: ClusterModel) -> PlacementPlan:
        return goals.drain(model, find_directories(model, broker, directory), settings.limits)

    return _planned(client, settings, make)


def decommission(
    client: WireClient, broker: int, settings: PlanSettings | None = None
) -> ClusterPlan:
    """Plan moves of all replicas away from a broker, which may be dead already.

    Raises:
        NoPlan: a replica has no other place.
        OperationFailed: replicas move, there is no such broker, or the cluster cannot be
            understood.
        ApiError, ClientError: the cluster could not be asked.
    """
    return drain(client, broker, None, settings)


def heal(
    client: WireClient,
    limits: HealingLimits | None = None,
    settings: PlanSettings | None = None,
) -> ClusterPlan:
    """Plan moves of replicas out of directories that are too full or have failed.

    Args:
        limits: the fill that triggers moves, and the target fill.

    Raises:
        OperationFailed: replicas move, or the cluster cannot be understood.
        ApiError, ClientError: the cluster could not be asked.
    """
    limits, settings = limits or HealingLimits(), settings or PlanSettings()

    def make(model: ClusterModel) -> PlacementPlan:
        directories = enumerate(model.directories)
        failed = [number for number, directory in directories if not directory.is_online]
        return healing.heal(model, model, failed, limits, settings.limits)

    return _planned(client, settings, make)


def what_if(
    client: WireClient,
    *,
    added_brokers: Sequence[BrokerModel] = (),
    added_directories: Sequence[DirectoryModel] = (),
    removed_brokers: Sequence[int] = (),
    removed_directories: Sequence[tuple[int, str | None]] = (),
    settings: PlanSettings | None = None,
) -> ClusterPlan:
    """Plan for a cluster with more or fewer brokers and directories.

    All replicas leave removed brokers and directories, and the others are balanced.

    Args:
        added_brokers: brokers that the cluster does not have yet.
        added_directories: of brokers of the cluster, or of added ones.
        removed_brokers: their ids.
        removed_directories: of each its broker and its path; None for all of the broker.

    Raises:
        NoPlan: a replica has no other place, or the changes do not fit the cluster.
        OperationFailed: replicas move, or the cluster cannot be understood.
        ApiError, ClientError: the cluster could not be asked.
    """
    settings = settings or PlanSettings()

    def make(model: ClusterModel) -> PlacementPlan:
        removed = [
            number for place in removed_directories for number in find_directories(model, *place)
        ]
        changes = ClusterChanges(added_brokers, added_directories, removed_brokers, removed)
        return goals.what_if(model, changes, settings.limits)

    return _planned(client, settings, make)


def _planned(
    client: WireClient, settings: PlanSettings, make: Callable[[ClusterModel], PlacementPlan]
) -> ClusterPlan:
    snapshot, forecast = read_cluster(client, settings)
    if forecast is not None:
        snapshot.remarks += forecast.remarks()
        snapshot.remarks.append(
            f"the limits must hold until {span_text(settings.horizon_ms / 1000)} after the end of "
            "the plan, for the sizes that replicas will have then"
        )
    time_ms = time.time_ns() // 1_000_000
    try:
        placement, later = plan_with(forecast, snapshot.model, make)
    except (Infeasible, ValueError) as error:
        raise NoPlan(error, snapshot, time_ms) from None
    return ClusterPlan(snapshot, placement, time_ms, later)
