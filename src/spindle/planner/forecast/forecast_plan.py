"""Forecast the sizes of a cluster from its history, and make plans for the forecast.

Plan against forecast sizes, then report current sizes. Forecasts never shrink a replica, so a plan
that fits the forecast fits now.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.planner.forecast.growth import DirectoryGrowth, PartitionRates
from spindle.planner.forecast.trend import Trend
from spindle.planner.layout import Layout
from spindle.planner.model import ClusterModel, PartitionModel
from spindle.planner.plan import PlacementPlan

_MS: Final = 1000
_MAX_PLANS: Final = 8
_RESERVE: Final = 1.2
"""Safety factor on the plan's duration when it is recomputed."""


@dataclass(frozen=True, slots=True)
class ForecastPlan:
    """A plan whose limits hold until some time after its end.

    Attributes:
        current: the plan with the sizes that replicas have now.
        forecast: the same moves with the sizes that replicas will have at that time.
        horizon_s: from now to that time.
    """

    current: PlacementPlan
    forecast: PlacementPlan
    horizon_s: float


def plan_for_forecast(
    cluster: ClusterModel,
    grown: Callable[[float], ClusterModel],
    make: Callable[[ClusterModel], PlacementPlan],
    horizon_s: float,
) -> ForecastPlan:
    """Return a plan whose limits hold from now until some seconds after its end.

    If a plan takes longer than assumed, another is made for a later time.

    Args:
        grown: returns the cluster with the sizes forecast for a time in seconds from now.
        make: makes a plan for a cluster.

    Raises:
        Infeasible: a replica has no other place.
        ValueError: the cluster fills faster than any plan for it ends.
    """
    seconds = horizon_s
    for _ in range(_MAX_PLANS):
        forecast = make(grown(seconds))
        duration_s = forecast.duration_ms / _MS
        if horizon_s + duration_s <= seconds:
            return ForecastPlan(with_current_sizes(forecast, cluster), forecast, seconds)
        seconds = horizon_s + _RESERVE * duration_s
    raise ValueError(
        f"partitions grow so fast that the plan gets longer each time it is made, "
        f"{duration_s:.0f} s at last: raise the throttle"
    )


def with_current_sizes(forecast: PlacementPlan, cluster: ClusterModel) -> PlacementPlan:
    """Return a plan for the forecast cluster, with the current sizes of the replicas.

    Keep the forecast durations (upper bounds). The lower bound counts only directories that are
    being emptied.

    Args:
        cluster: the current cluster, without the changes that the plan assumes.
    """
    imagined = forecast.cluster.directories[len(cluster.directories) :]
    directories = [*cluster.directories, *imagined]
    now = ClusterModel(forecast.cluster.brokers, directories, cluster.partitions)
    layout = Layout(now, forecast.leaving)
    spread_before, bound = layout.spread(), sum(layout.replica_bytes[i] for i in layout.leaving)
    rounds = []
    for planned_round in forecast.rounds:
        moves = []
        for move in planned_round.moves:
            size = cluster.partitions[move.partition].size_bytes[move.slot]
            moves.append(replace(move, size_bytes=size))
            layout.move(layout.first[move.partition] + move.slot, move.target)
        rounds.append(replace(planned_round, moves=tuple(moves)))
    return replace(
        forecast,
        cluster=now,
        rounds=tuple(rounds),
        used_bytes=tuple(layout.used),
        lower_bound_bytes=bound,
        spread_before=spread_before,
        spread=layout.spread(),
    )


def forecast_cluster(
    cluster: ClusterModel,
    rates: Mapping[TopicPartition, PartitionRates],
    growths: Mapping[tuple[int, str], DirectoryGrowth],
    seconds: float,
) -> ClusterModel:
    """Return the cluster with forecast sizes.

    No size shrinks. Partitions and directories without a known growth keep their size. The produced
    bytes of partitions become the rates with which copies must keep up.

        Args:
            growths: by broker id and path.
    """
    used = [directory.used_bytes for directory in cluster.directories]
    for number, directory in enumerate(cluster.directories):
        growth = growths.get((directory.broker_id, directory.path))
        if growth is not None:
            used[number] += _more(growth.other_files, seconds)
    partitions: list[PartitionModel] = []
    for model in cluster.partitions:
        found_rates = rates.get(model.name, PartitionRates(None, 0.0))
        more = _more(found_rates.growth, seconds)
        for place in model.directories:
            used[place] += more
        partitions.append(
            replace(
                model,
                size_bytes=tuple(size + more for size in model.size_bytes),
                write_bytes_per_second=round(found_rates.produced_bytes_per_second),
            )
        )
    directories = [
        replace(directory, used_bytes=use)
        for directory, use in zip(cluster.directories, used, strict=True)
    ]
    return ClusterModel(cluster.brokers, directories, partitions)


def _more(growth: Trend | None, seconds: float) -> int:
    return round(max(0.0, growth.slope) * seconds) if growth is not None else 0
