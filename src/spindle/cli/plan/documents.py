"""A plan as a JSON document for programs and pages. Sizes are in bytes, fills from 0 to 1."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spindle.cli.history.forecast_text import forecast_document
from spindle.cli.option_names import with_option_names
from spindle.operations.directories import directory_names
from spindle.operations.forecasts import PlanForecast
from spindle.operations.snapshot import ClusterSnapshot
from spindle.planner.leaders import leaders_of_plan, preferred_orders
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import Infeasible, PlacementPlan, PlannedMove


def head_document(
    goal: str, limits: PlanLimits, snapshot: ClusterSnapshot, time_ms: int
) -> dict[str, Any]:
    """Return the common head of the documents.

    Args:
        time_ms: when the cluster was read.
    """
    return {
        "goal": goal,
        "timeMs": time_ms,
        "clusterId": snapshot.cluster_id,
        "limits": {
            "spread": limits.spread,
            "maxFill": limits.max_fill,
            "throttleBytesPerSecond": limits.throttle_bytes_per_second,
            "parallelMoves": limits.parallel_moves,
            "keepsRacks": limits.keeps_racks,
        },
        "remarks": [with_option_names(remark) for remark in snapshot.remarks],
    }


def refusal_document(
    head: Mapping[str, Any], model: ClusterModel, error: Infeasible
) -> dict[str, Any]:
    """Return the document of an infeasible goal: the binding limit, and a remedy."""
    return {
        **head,
        "refusal": {
            "topic": error.partition.topic,
            "partition": error.partition.partition,
            "reason": error.reason,
            "limit": error.limit.value,
            "remedy": with_option_names(error.remedy),
        },
        "directories": _directories(
            model, [directory.kept_bytes for directory in model.directories], ()
        ),
    }


def plan_document(
    head: Mapping[str, Any], plan: PlacementPlan, forecast: PlanForecast | None = None
) -> dict[str, Any]:
    """Return the document of a plan; its remarks follow those about the cluster.

    Args:
        forecast: the forecast after the plan, if there is a history.
    """
    names = directory_names(plan.cluster)
    directories = _directories(plan.cluster, plan.used_bytes, plan.leaving)
    if forecast is not None:
        for number, directory in zip(names, directories, strict=True):
            directory["usedBytesAtHorizon"] = forecast.used_bytes[number]
            directory["fullBefore"] = forecast_document(forecast.full_before[number])
            directory["fullAfter"] = forecast_document(forecast.full_after[number])
    return {
        **head,
        "movedBytes": plan.moved_bytes,
        "lowerBoundBytes": plan.lower_bound_bytes,
        "durationMs": plan.duration_ms,
        "spreadBefore": plan.spread_before,
        "spreadAfter": plan.spread,
        "remarks": [*head["remarks"], *plan.remarks],
        "horizonMs": forecast.horizon_ms if forecast is not None else None,
        "directories": directories,
        "leaders": _leaders(plan),
        "preferredLeaders": [
            {"topic": name.topic, "partition": name.partition, "replicas": brokers}
            for name, brokers in preferred_orders(plan).items()
        ],
        "rounds": [
            {
                "waitMs": planned_round.wait_ms,
                "durationMs": planned_round.duration_ms,
                "moves": [_move_document(plan, names, move) for move in planned_round.moves],
            }
            for planned_round in plan.rounds
        ],
    }


def _leaders(plan: PlacementPlan) -> list[dict[str, int]]:
    """Return how many partitions have their first replica on each broker."""
    before, after = leaders_of_plan(plan)
    return [
        {"broker": broker, "before": count, "after": after[broker]}
        for broker, count in before.items()
    ]


def _directories(
    model: ClusterModel, used_bytes: Sequence[int], leaving: Collection[int]
) -> list[dict[str, Any]]:
    gone = frozenset(leaving)
    names = directory_names(model)
    return [
        {
            "broker": directory.broker_id,
            "path": names[number],
            "capacityBytes": directory.capacity_bytes,
            "usedBytesBefore": directory.kept_bytes,
            "deletedBytes": directory.deleted_bytes,
            "usedBytesAfter": after,
            "isEmptied": number in gone,
            "isCordoned": directory.is_cordoned,
            "isOnline": directory.is_online,
        }
        for number, (directory, after) in enumerate(zip(model.directories, used_bytes, strict=True))
        if number in names
    ]


def _move_document(
    plan: PlacementPlan, names: Mapping[int, str], move: PlannedMove
) -> dict[str, Any]:
    name = plan.cluster.partitions[move.partition].name
    source, target = plan.cluster.directories[move.source], plan.cluster.directories[move.target]
    return {
        "topic": name.topic,
        "partition": name.partition,
        "fromBroker": source.broker_id,
        "fromPath": names[move.source],
        "toBroker": target.broker_id,
        "toPath": names[move.target],
        "sizeBytes": move.size_bytes,
    }
