"""Writes a plan as files for `kafka-reassign-partitions`: rounds, leaders, and a rollback."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spindle.cli.failure import CommandFailed
from spindle.cli.plan.snapshot import UNREADABLE
from spindle.cli.tools.reassignment_plan import Replica, plan_json
from spindle.common.ids import TopicPartition
from spindle.planner.leaders import preferred_orders
from spindle.planner.plan import PlacementPlan

LEADERS: Final = "leaders.json"
ROLLBACK: Final = "rollback.json"


def round_file_name(number: int) -> str:
    """Return the name of the file of a round; the first one has number 1."""
    return f"round-{number:04d}.json"


def write_files(plan: PlacementPlan, folder: Path) -> list[Path]:
    """Write the files into a new or empty folder, and return their paths.

    Raises:
        CommandFailed: the folder has files already.
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CommandFailed(f"{folder} has files already; name a new folder, so that none is lost")
    texts = {round_file_name(n): text for n, text in enumerate(round_texts(plan), start=1)}
    if plan.preferred:
        texts[LEADERS] = plan_json(preferred_orders(plan), {})
    texts[ROLLBACK] = rollback_text(plan)
    for name, text in texts.items():
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return [folder / name for name in texts]


def round_texts(plan: PlacementPlan) -> list[str]:
    """Return the text of each round: all replicas of the partitions that it changes."""
    places = {number: list(each.directories) for number, each in enumerate(plan.cluster.partitions)}
    texts = []
    for each in plan.rounds:
        changed: dict[int, list[int]] = {}
        for move in each.moves:
            places[move.partition][move.slot] = move.target
            changed.setdefault(move.partition, []).append(move.slot)
        texts.append(
            _text(plan, {number: (places[number], slots) for number, slots in changed.items()})
        )
    return texts


def rollback_text(plan: PlacementPlan) -> str:
    """Return the text that brings the replicas of all rounds back to where they were.

    Partitions of which only the order changes get their order back.
    """
    changed: dict[int, list[int]] = {number: [] for number in plan.preferred}
    for each in plan.rounds:
        for move in each.moves:
            changed.setdefault(move.partition, []).append(move.slot)
    before = plan.cluster.partitions
    return _text(
        plan, {number: (before[number].directories, slots) for number, slots in changed.items()}
    )


def _text(plan: PlacementPlan, changed: dict[int, tuple[Sequence[int], list[int]]]) -> str:
    """Return a file's text. Replicas that do not move may be in any directory."""
    replicas: dict[TopicPartition, Sequence[int]] = {}
    directories: dict[Replica, str] = {}
    for number, (places, slots) in changed.items():
        name = plan.cluster.partitions[number].name
        found = [plan.cluster.directories[place] for place in places]
        replicas[name] = [each.broker_id for each in found]
        for slot in slots:
            if found[slot].path != UNREADABLE:
                directories[Replica(found[slot].broker_id, name)] = found[slot].path
    return plan_json(replicas, directories)
