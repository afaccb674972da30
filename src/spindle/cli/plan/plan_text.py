"""A plan as text for people: a summary, the fill of each directory, and the rounds."""

from collections.abc import Iterator, Sequence
from typing import Final

from spindle.cli.disks.screen import duration_text
from spindle.cli.table import table_lines
from spindle.common.sizes import size_text
from spindle.planner.limits import PlanLimits
from spindle.planner.model import ClusterModel
from spindle.planner.plan import PlacementPlan, PlannedRound

_BAR: Final = 20
_MOST_ROUNDS: Final = 20
_MS: Final = 1000


def plan_lines(goal: str, plan: PlacementPlan, limits: PlanLimits) -> list[str]:
    """Return the lines about a plan.

    Args:
        goal: a few words for the first line.
    """
    return [
        *_summary(goal, plan, limits),
        *(f"note        {remark}" for remark in plan.remarks),
        "",
        *_directory_table(plan),
        *(["", *_round_table(plan.rounds)] if plan.rounds else []),
    ]


def _summary(goal: str, plan: PlacementPlan, limits: PlanLimits) -> Iterator[str]:
    yield f"goal        {goal}"
    if not plan.rounds:
        yield "moves       none"
    else:
        count = sum(len(each.moves) for each in plan.rounds)
        moves, rounds = _counted(count, "move"), _counted(len(plan.rounds), "round")
        yield f"moves       {moves} in {rounds}, {size_text(plan.moved_bytes)}"
        yield (
            f"duration    at least {duration_text(plan.duration_ms / _MS)} at "
            f"{size_text(limits.throttle_bytes_per_second)}/s for each broker"
        )
    yield f"lower bound {size_text(plan.lower_bound_bytes)}{_above_bound(plan)}"
    before, after = 100 * spread_before(plan), 100 * plan.spread
    yield f"spread      {before:.1f} points before, {after:.1f} after"


def _above_bound(plan: PlacementPlan) -> str:
    if not plan.lower_bound_bytes:
        return ""
    above = plan.moved_bytes / plan.lower_bound_bytes - 1
    return f" (no plan moves less; this one moves {100 * above:.1f} % more)"


def spread_before(plan: PlacementPlan) -> float:
    """Return the highest less the lowest fill before the plan, as `PlacementPlan.spread` after."""
    fills = [
        each.fill for each in plan.cluster.directories if each.is_online and each.capacity_bytes
    ]
    return max(fills) - min(fills) if fills else 0.0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _directory_table(plan: PlacementPlan) -> list[str]:
    head = ("BROKER", "DIRECTORY", "CAPACITY", "BEFORE", "AFTER", "CHANGE", "STATE")
    rows = [
        (
            str(each.broker_id),
            each.path,
            size_text(each.capacity_bytes) if each.capacity_bytes else "-",
            bar_text(each.used_bytes, each.capacity_bytes),
            bar_text(after, each.capacity_bytes),
            _change_text(after - each.used_bytes),
            _state_text(plan, number),
        )
        for number, (each, after) in enumerate(
            zip(plan.cluster.directories, plan.used_bytes, strict=True)
        )
    ]
    return table_lines(head, rows)


def bar_text(used_bytes: int, capacity_bytes: int) -> str:
    """Return a bar of blocks and the percentage; `-` for a directory of unknown size."""
    if not capacity_bytes:
        return "-"
    fill = used_bytes / capacity_bytes
    filled = min(_BAR, round(_BAR * fill))
    return "█" * filled + "░" * (_BAR - filled) + f" {100 * fill:5.1f} %"


def _change_text(change_bytes: int) -> str:
    if not change_bytes:
        return ""
    return f"{'+' if change_bytes > 0 else '-'}{size_text(abs(change_bytes))}"


def _state_text(plan: PlacementPlan, number: int) -> str:
    each = plan.cluster.directories[number]
    words = {
        "emptied": number in plan.leaving,
        "cordoned": each.is_cordoned,
        "offline": not each.is_online,
    }
    return ", ".join(word for word, is_so in words.items() if is_so)


def _round_table(rounds: Sequence[PlannedRound]) -> list[str]:
    head = ("ROUND", "MOVES", "BYTES", "AT LEAST")
    rows = [
        (
            str(number),
            str(len(each.moves)),
            size_text(sum(move.size_bytes for move in each.moves)),
            duration_text(each.duration_ms / _MS),
        )
        for number, each in enumerate(rounds, start=1)
    ]
    lines = table_lines(head, rows)
    if len(lines) <= _MOST_ROUNDS + 1:
        return lines
    return [*lines[: _MOST_ROUNDS + 1], f"... and {len(rounds) - _MOST_ROUNDS} more rounds"]


def directory_names(cluster: ClusterModel) -> str:
    """Return the directories of a cluster as an error message lists them."""
    return ", ".join(map(str, cluster.directories)) or "none"
