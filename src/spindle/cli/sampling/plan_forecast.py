"""Looks ahead with a history: the cluster that comes, and when its directories are full."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from spindle.cli.durations import DurationMs, span_text
from spindle.cli.plan.snapshot import ClusterSnapshot
from spindle.cli.sampling.forecasts import HISTORY, history_remarks
from spindle.cli.sampling.history_folder import RecordedHistory, read_history
from spindle.common.ids import TopicPartition
from spindle.planner.forecast_plan import ForecastPlan, cluster_ahead, plan_ahead
from spindle.planner.growth import DirectoryGrowth, directory_growths, partition_rates
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan
from spindle.planner.time_to_full import TimeToFull, max_horizon_s, time_to_full, unknown

_MS: Final = 1000
_NO_GROWTH: Final = DirectoryGrowth(0, 0.0, None, None, None)


def _with_history(ctx: click.Context, parameter: click.Parameter, horizon_ms: int) -> int:
    """Return the horizon.

    Raises:
        click.UsageError: it was given without a history.
    """
    is_given = ctx.get_parameter_source("horizon_ms") is ParameterSource.COMMANDLINE
    if is_given and ctx.params.get("history") is None:
        raise click.UsageError("--horizon needs a history: give --history")
    return horizon_ms


_HORIZON: Final = click.option(
    "--horizon",
    "horizon_ms",
    type=DurationMs(),
    default="7d",
    show_default=True,
    metavar="DURATION",
    callback=_with_history,
    help="With --history: how far ahead limits must hold; for a plan, after its end.",
)


def ahead_options(body: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--history` and `--horizon` to a command: `history` and `horizon_ms`."""
    return HISTORY(_HORIZON(body))


class LookAhead:
    """Forecasts and plans from the history of a cluster.

    Args:
        horizon_ms: how far ahead limits must hold.
        capacity_bytes: of each directory, which then holds its replicas only; None to believe the
            brokers.
    """

    def __init__(
        self, history: RecordedHistory, horizon_ms: int, capacity_bytes: int | None
    ) -> None:
        self.horizon_ms = horizon_ms
        self._history = history
        self._holds_replicas_only = capacity_bytes is not None
        self._rates = partition_rates(history.samples)
        self._growths = directory_growths(history.samples)

    def grown(self, model: ClusterModel, ahead_s: float) -> ClusterModel:
        """Return a cluster as it will be after some seconds."""
        growths = {} if self._holds_replicas_only else self._growths
        return cluster_ahead(model, self._rates, growths, ahead_s)

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
        return plan_ahead(
            model, lambda ahead_s: self.grown(model, ahead_s), make, self.horizon_ms / _MS
        )

    def remarks(self) -> list[str]:
        """Return what a reader should know about the history and the horizon."""
        samples = self._history.samples
        sight = max_horizon_s((samples[-1].time_ms - samples[0].time_ms) / _MS)
        remarks = history_remarks(self._history)
        if self.horizon_ms / _MS > sight:
            horizon = span_text(self.horizon_ms / _MS)
            remarks.append(
                f"the horizon of {horizon} is farther than the history allows to look, which is "
                f"{span_text(sight)}: the sizes there are uncertain"
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
class PlanOutlook:
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


def look_ahead(
    folder: Path | None,
    horizon_ms: int,
    snapshot: ClusterSnapshot,
    capacity_bytes: int | None,
) -> LookAhead | None:
    """Return what the history in a folder says; None without a folder.

    Raises:
        CommandFailed: there is no history of the cluster.
    """
    if folder is None:
        return None
    return LookAhead(read_history(folder, snapshot.cluster_id or ""), horizon_ms, capacity_bytes)


def plan_with(
    ahead: LookAhead | None,
    model: ClusterModel,
    make: Callable[[ClusterModel], PlacementPlan],
) -> tuple[PlacementPlan, PlanOutlook | None]:
    """Return a plan, and with a history the forecast after it (else None).

    Raises:
        Infeasible: a replica has no other place.
        ValueError: the cluster cannot reach the goal, for example because it fills too fast.
    """
    if ahead is None:
        return make(model), None
    plans = ahead.plan(model, make)
    plan = plans.current
    outlook = PlanOutlook(
        ahead.horizon_ms,
        plans.forecast.used_bytes,
        ahead.times_to_full(plan, is_after=False),
        ahead.times_to_full(plan, is_after=True),
    )
    return plan, outlook
