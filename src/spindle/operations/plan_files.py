"""Writes a plan as files for `kafka-reassign-partitions`: rounds, leaders, and a rollback."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.operations.directories import UNREADABLE
from spindle.operations.errors import OperationFailed
from spindle.operations.reassignment import Replica, plan_json
from spindle.planner.leaders import preferred_orders
from spindle.planner.plan import PlacementPlan, PlannedRound

LEADERS: Final = "leaders.json"


def round_file_name(number: int) -> str:
    """Return the name of the file of a round; the first one has number 1."""
    return f"round-{number:04d}.json"


def rollback_file_name(number: int) -> str:
    """Return the name of the file that undoes a round."""
    return f"rollback-{number:04d}.json"


def write_files(plan: PlacementPlan, folder: Path, max_fill: float) -> list[Path]:
    """Write the files into a new or empty folder, and return their paths.

    Args:
        max_fill: no directory is filled above this share of its capacity.

    Raises:
        OperationFailed: the folder has files already.
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise OperationFailed(
            f"{folder} has files already; name a new folder, so that none is lost"
        )
    texts = {round_file_name(n): text for n, text in enumerate(round_texts(plan), start=1)}
    if plan.preferred:
        texts[LEADERS] = plan_json(preferred_orders(plan), {})
        places = dict(enumerate(plan.places()))
        texts[f"rollback-{LEADERS}"] = _text(plan, places, {n: [] for n in plan.preferred}, 0)
    for number, text in enumerate(rollback_texts(plan, max_fill), start=1):
        texts[rollback_file_name(number)] = text
    for name, text in texts.items():
        (folder / name).write_text(text + "\n", encoding="utf-8")
    return [folder / name for name in texts]


def round_texts(plan: PlacementPlan) -> list[str]:
    """Return the text of each round: all replicas of the partitions that it changes."""
    places = {
        number: list(partition.directories)
        for number, partition in enumerate(plan.cluster.partitions)
    }
    texts = []
    for planned_round in plan.rounds:
        for move in planned_round.moves:
            places[move.partition][move.slot] = move.target
        slots = {move.partition: [move.slot] for move in planned_round.moves}
        texts.append(_text(plan, places, slots, planned_round.wait_ms))
    return texts


def rollback_texts(plan: PlacementPlan, max_fill: float) -> list[str]:
    """Return, for each round, the text of a file that undoes it.

    They are executed from the last round to the first one. A replica that had space on the way
    there has space on the way back, after deleted replicas are removed.

    Args:
        max_fill: a file waits for deletions if a directory would otherwise exceed this share.
    """
    places = dict(enumerate(plan.places()))
    spaces = _Spaces(plan)
    texts = []
    for planned_round in reversed(plan.rounds):
        for move in planned_round.moves:
            places[move.partition][move.slot] = move.source
        slots = {move.partition: [move.slot] for move in planned_round.moves}
        texts.append(_text(plan, places, slots, spaces.undo(planned_round, max_fill)))
    return texts[::-1]


class _Spaces:
    """The space of directories after all rounds, including deleted replicas of the rounds."""

    def __init__(self, plan: PlacementPlan) -> None:
        self._directories = plan.cluster.directories
        self._kept = list(plan.used_bytes)
        self._deleted = [directory.deleted_bytes for directory in plan.cluster.directories]
        for planned in plan.rounds:
            for move in planned.moves:
                self._deleted[move.source] += move.size_bytes

    def undo(self, planned: PlannedRound, max_fill: float) -> int:
        """Undo a round; return the wait for deletions before it, in ms."""
        arriving = Counter[int]()
        for move in planned.moves:
            arriving[move.source] += move.size_bytes
        short = [
            number
            for number, size_bytes in arriving.items()
            if self._kept[number] + self._deleted[number] + size_bytes
            > max_fill * self._directories[number].capacity_bytes
            and self._deleted[number]
        ]
        wait_ms = max(
            (self._directories[directory].deletion_delay_ms for directory in short), default=0
        )
        for number in short:
            self._deleted[number] = 0
        for move in planned.moves:
            self._kept[move.source] += move.size_bytes
            self._kept[move.target] -= move.size_bytes
            self._deleted[move.target] += move.size_bytes
        return wait_ms


def _text(
    plan: PlacementPlan,
    places: Mapping[int, Sequence[int]],
    changed: Mapping[int, list[int]],
    wait_ms: int,
) -> str:
    """Return the text of a file. Replicas that do not move get the directory `any`.

    Args:
        places: the directories of the replicas of each partition.
        changed: the positions of the replicas that move, by partition.
        wait_ms: how long to wait before the moves.
    """
    replicas: dict[TopicPartition, Sequence[int]] = {}
    directories: dict[Replica, str] = {}
    for number, slots in changed.items():
        name = plan.cluster.partitions[number].name
        log_directories = [plan.cluster.directories[place] for place in places[number]]
        replicas[name] = [directory.broker_id for directory in log_directories]
        for slot in slots:
            if log_directories[slot].path != UNREADABLE:
                directories[Replica(log_directories[slot].broker_id, name)] = log_directories[
                    slot
                ].path
    return plan_json(replicas, directories, wait_ms)
