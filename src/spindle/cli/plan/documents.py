"""A plan as a JSON document for programs and pages. Sizes are in bytes, fills from 0 to 1."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spindle.cli.history.forecasts import forecast_document
from spindle.cli.history.looking_ahead import PlanOutlook
from spindle.cli.plan.place import directory_names
from spindle.cli.plan.snapshot import ClusterSnapshot
from spindle.planner.leaders import leaders_of_plan, preferred_orders
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import Infeasible, PlacementPlan, PlannedMove


def head_document(
    goal: str, limits: PlanLimits, snapshot: ClusterSnapshot, time_ms: int
) -> dict[str, Any]:
    """Return what is known without a plan.

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
        "remarks": list(snapshot.remarks),
    }


def refusal_document(
    head: Mapping[str, Any], model: ClusterModel, error: Infeasible
) -> dict[str, Any]:
    """Return the document of a goal that no plan reaches: the limit that binds, and a remedy."""
    return {
        **head,
        "refusal": {
            "topic": error.partition.topic,
            "partition": error.partition.partition,
            "reason": error.reason,
            "limit": error.limit.value,
            "remedy": error.remedy,
        },
        "directories": _directories(model, [each.kept_bytes for each in model.directories], ()),
    }


def plan_document(
    head: Mapping[str, Any], plan: PlacementPlan, outlook: PlanOutlook | None = None
) -> dict[str, Any]:
    """Return the document of a plan; its remarks follow those about the cluster.

    Args:
        outlook: the times after the plan, if a history is known.
    """
    names = directory_names(plan.cluster)
    directories = _directories(plan.cluster, plan.used_bytes, plan.leaving)
    if outlook is not None:
        for number, each in zip(names, directories, strict=True):
            each["usedBytesAtHorizon"] = outlook.used_bytes[number]
            each["fullBefore"] = forecast_document(outlook.full_before[number])
            each["fullAfter"] = forecast_document(outlook.full_after[number])
    return {
        **head,
        "movedBytes": plan.moved_bytes,
        "lowerBoundBytes": plan.lower_bound_bytes,
        "durationMs": plan.duration_ms,
        "spreadBefore": plan.spread_before,
        "spreadAfter": plan.spread,
        "remarks": [*head["remarks"], *plan.remarks],
        "horizonMs": outlook.horizon_ms if outlook is not None else None,
        "directories": directories,
        "leaders": _leaders(plan),
        "preferredLeaders": [
            {"topic": name.topic, "partition": name.partition, "replicas": brokers}
            for name, brokers in preferred_orders(plan).items()
        ],
        "rounds": [
            {
                "waitMs": each.wait_ms,
                "durationMs": each.duration_ms,
                "moves": [_move_document(plan, names, move) for move in each.moves],
            }
            for each in plan.rounds
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
            "broker": each.broker_id,
            "path": names[number],
            "capacityBytes": each.capacity_bytes,
            "usedBytesBefore": each.kept_bytes,
            "deletedBytes": each.deleted_bytes,
            "usedBytesAfter": after,
            "isEmptied": number in gone,
            "isCordoned": each.is_cordoned,
            "isOnline": each.is_online,
        }
        for number, (each, after) in enumerate(zip(model.directories, used_bytes, strict=True))
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
