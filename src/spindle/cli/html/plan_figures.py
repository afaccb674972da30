"""Numbers of a plan's page that are computed from the document."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

_BIN: Final = 5


def fill_of(directory: Mapping[str, Any], used_bytes: int) -> float:
    """Return a use as a share of the capacity; 0 if that is unknown."""
    capacity_bytes = directory["capacityBytes"]
    return used_bytes / capacity_bytes if capacity_bytes else 0.0


def peak_bytes(document: Mapping[str, Any]) -> list[int]:
    """Return the highest number of used bytes of each directory during the plan.

    A copy takes its space from the start of its round, and its source is freed only at the end.
    """
    directories = document["directories"]
    numbers = {
        (directory["broker"], directory["path"]): n for n, directory in enumerate(directories)
    }
    used = [directory["usedBytesBefore"] for directory in directories]
    peaks = list(used)
    for round_ in document.get("rounds", ()):
        for move in round_["moves"]:
            target = numbers[move["toBroker"], move["toPath"]]
            used[target] += move["sizeBytes"]
            peaks[target] = max(peaks[target], used[target])
        for move in round_["moves"]:
            used[numbers[move["fromBroker"], move["fromPath"]]] -= move["sizeBytes"]
    return peaks


def fill_counts(directories: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, int]]:
    """Return (percentage, directories before, directories after) for each step of 5 points of fill.

    The list goes from the emptiest directory to the fullest one.
    """
    known = [directory for directory in directories if directory["capacityBytes"]]
    before, after = (
        Counter(_BIN * int(100 * fill_of(entry, entry[key]) // _BIN) for entry in known)
        for key in ("usedBytesBefore", "usedBytesAfter")
    )
    filled = before.keys() | after.keys()
    if not filled:
        return []
    return [(low, before[low], after[low]) for low in range(min(filled), max(filled) + _BIN, _BIN)]


def largest_flows(rounds: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, int]]:
    """Return (name, moves, bytes) for each pair of brokers, the most bytes first."""
    counts: Counter[tuple[int, int]] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    for entry in rounds:
        for move in entry["moves"]:
            way = move["fromBroker"], move["toBroker"]
            counts[way] += 1
            sizes[way] += move["sizeBytes"]
    return [
        (
            f"inside {here}" if here == there else f"{here} → {there}",
            counts[here, there],
            sizes[here, there],
        )
        for here, there in sorted(sizes, key=lambda way: (-sizes[way], way))
    ]
