"""Forecasts of a cluster from its history: future sizes, and when directories are full."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.common.text import count_noun, span_text
from spindle.operations.directories import DirectoryKey
from spindle.operations.history_folder import RecordedHistory
from spindle.planner.forecast.forecast_plan import ForecastPlan, forecast_cluster, plan_for_forecast
from spindle.planner.forecast.growth import (
    DirectoryGrowth,
    PartitionRates,
    directory_growths,
    partition_rates,
)
from spindle.planner.forecast.time_to_full import TimeToFull, max_horizon_s, time_to_full, unknown
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan

_MS: Final = 1000
_NO_GROWTH: Final = DirectoryGrowth(0, 0.0, None, None, None)


class ClusterForecast:
    """Forecasts and plans from the history of a cluster.

    Args:
        horizon_ms: how far ahead limits must hold.
        capacity_bytes: of each directory, which then holds only replicas; None for the brokers'
            reports.
    """

    def __init__(
        self, history: RecordedHistory, horizon_ms: int = 0, capacity_bytes: int | None = None
    ) -> None:
        self.horizon_ms = horizon_ms
        self._history = history
        self._holds_replicas_only = capacity_bytes is not None
        self._growths = directory_growths(history.samples)

    @cached_property
    def rates(self) -> dict[TopicPartition, PartitionRates]:
        """The growth of a replica, and the produced bytes, of each partition."""
        return partition_rates(self._history.samples)

    def grown(self, model: ClusterModel, seconds: float) -> ClusterModel:
        """Return a cluster as it will be after some seconds."""
        growths = {} if self._holds_replicas_only else self._growths
        return forecast_cluster(model, self.rates, growths, seconds)

    def at_horizon(self, model: ClusterModel) -> ClusterModel:
        """Return a cluster as it will be at the horizon."""
        return self.grown(model, self.horizon_ms / _MS)

    def plan(
        self, model: ClusterModel, make: Callable[[ClusterModel], PlacementPlan]
    ) -> ForecastPlan:
        """Return a plan whose limits hold until the horizon after its end.

        Raises:
            Infeasible: a replica has no other place.
            ValueError: the cluster fills faster than any plan ends.
        """
        return plan_for_forecast(
            model, lambda seconds: self.grown(model, seconds), make, self.horizon_ms / _MS
        )

    def time_to_full(
        self, key: DirectoryKey, free_bytes: int, *, is_online: bool = True
    ) -> TimeToFull:
        """Return the time until a directory of the history is full.

        Args:
            free_bytes: negative if they are unknown.
        """
        if not is_online:
            return unknown("it is offline")
        return time_to_full(free_bytes, self._growths.get(key, _NO_GROWTH))

    def remarks(self) -> list[str]:
        """Return remarks about the history and the horizon."""
        samples = self._history.samples
        sight = max_horizon_s((samples[-1].time_ms - samples[0].time_ms) / _MS)
        remarks = history_remarks(self._history)
        if self.horizon_ms / _MS > sight:
            horizon = span_text(self.horizon_ms / _MS)
            remarks.append(
                f"the horizon of {horizon} is beyond what the history allows, {span_text(sight)}: "
                "the sizes there are uncertain"
            )
        return remarks

    def times_to_full(self, plan: PlacementPlan, *, is_after: bool) -> list[TimeToFull]:
        """Return when each directory is full, without a plan or after it."""
        model = plan.cluster
        places: Sequence[Sequence[int]] = [partition.directories for partition in model.partitions]
        used: Sequence[int] = [directory.kept_bytes for directory in model.directories]
        if is_after:
            places, used = plan.places(), plan.used_bytes
        held: dict[tuple[int, str], list[TopicPartition]] = {
            (directory.broker_id, directory.path): [] for directory in model.directories
        }
        keys = list(held)
        for partition, replica_places in zip(model.partitions, places, strict=True):
            for place in replica_places:
                held[keys[place]].append(partition.name)
        growths = directory_growths(self._history.samples, held)
        return [
            self._time_to_full(model, number, used[number], growths.get(key, _NO_GROWTH))
            for number, key in enumerate(keys)
        ]

    def _time_to_full(
        self, model: ClusterModel, number: int, used_bytes: int, growth: DirectoryGrowth
    ) -> TimeToFull:
        directory = model.directories[number]
        if not directory.is_online:
            return unknown("it is offline")
        is_new = (directory.broker_id, directory.path) not in self._growths
        if self._holds_replicas_only or is_new:
            growth = growth.of_replicas_only()
        free_bytes = (
            max(0, directory.capacity_bytes - used_bytes) if directory.capacity_bytes else -1
        )
        return time_to_full(free_bytes, growth)


@dataclass(frozen=True, slots=True)
class PlanForecast:
    """The times after a plan.

    Attributes:
        horizon_ms: how long after the end of the plan its limits hold.
        used_bytes: of each directory at that time.
        full_before: when each directory is full without the plan.
        full_after: the same after the plan.
    """

    horizon_ms: int
    used_bytes: Sequence[int]
    full_before: Sequence[TimeToFull]
    full_after: Sequence[TimeToFull]


def plan_with(
    forecast: ClusterForecast | None,
    model: ClusterModel,
    make: Callable[[ClusterModel], PlacementPlan],
) -> tuple[PlacementPlan, PlanForecast | None]:
    """Return a plan, and with a history the forecast after it (else None).

    Raises:
        Infeasible: a replica has no other place.
        ValueError: the cluster cannot reach the goal, for example because it fills too fast.
    """
    if forecast is None:
        return make(model), None
    plans = forecast.plan(model, make)
    plan = plans.current
    return plan, PlanForecast(
        forecast.horizon_ms,
        plans.forecast.used_bytes,
        forecast.times_to_full(plan, is_after=False),
        forecast.times_to_full(plan, is_after=True),
    )


def history_remarks(history: RecordedHistory) -> list[str]:
    """Return remarks about the history."""
    first, last = history.samples[0], history.samples[-1]
    span = span_text((last.time_ms - first.time_ms) / 1000)
    remarks = [f"forecasts are from {count_noun(len(history.samples), 'sample')} over {span}"]
    if history.bad_lines:
        lines = count_noun(history.bad_lines, "line")
        remarks.append(f"{lines} of the history are broken, and were passed over")
    if history.future_samples:
        samples = count_noun(history.future_samples, "sample")
        remarks.append(f"passed over {samples} of the history from the future")
    return remarks
