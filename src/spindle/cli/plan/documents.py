"""A plan as a JSON document for programs. Sizes are in bytes, fills between 0 and 1."""

from collections.abc import Sequence
from typing import Any

from spindle.planner.plan import PlacementPlan, PlannedMove


def plan_document(goal: str, plan: PlacementPlan, remarks: Sequence[str]) -> dict[str, Any]:
    """Return the document of a plan.

    Args:
        remarks: about the cluster; those about the plan follow them.
    """
    return {
        "goal": goal,
        "movedBytes": plan.moved_bytes,
        "lowerBoundBytes": plan.lower_bound_bytes,
        "durationMs": plan.duration_ms,
        "spreadBefore": plan.spread_before,
        "spreadAfter": plan.spread,
        "remarks": [*remarks, *plan.remarks],
        "directories": [
            {
                "broker": each.broker_id,
                "path": each.path,
                "capacityBytes": each.capacity_bytes,
                "usedBytesBefore": each.used_bytes,
                "usedBytesAfter": after,
                "isEmptied": number in plan.leaving,
                "isCordoned": each.is_cordoned,
                "isOnline": each.is_online,
            }
            for number, (each, after) in enumerate(
                zip(plan.cluster.directories, plan.used_bytes, strict=True)
            )
        ],
        "rounds": [
            {
                "durationMs": each.duration_ms,
                "moves": [_move_document(plan, move) for move in each.moves],
            }
            for each in plan.rounds
        ],
    }


def _move_document(plan: PlacementPlan, move: PlannedMove) -> dict[str, Any]:
    name = plan.cluster.partitions[move.partition].name
    source, target = plan.cluster.directories[move.source], plan.cluster.directories[move.target]
    return {
        "topic": name.topic,
        "partition": name.partition,
        "fromBroker": source.broker_id,
        "fromPath": source.path,
        "toBroker": target.broker_id,
        "toPath": target.path,
        "sizeBytes": move.size_bytes,
    }
