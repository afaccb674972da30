"""Cut the work of an audit on Spark into groups, one for each task, and share the throttle."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

_TASKS_FOR_EACH_CORE: Final = 4
_LEAST_BYTES: Final = 32 << 20
_MOST_BYTES: Final = 1 << 30
_MOST_UNITS: Final = 1000


class Unit(Protocol):
    """A piece of work that is not cut further: a segment, or a range of offsets."""

    @property
    def root(self) -> Path:
        """The log directory, by which the throttle counts."""

    @property
    def size_bytes(self) -> int:
        """The bytes that are about to be read."""


UnitT = TypeVar("UnitT", bound=Unit)


def grouped(units: Sequence[UnitT], cores: int) -> list[list[UnitT]]:
    """Return some groups for each core, each of one log directory, the largest first."""
    total_bytes = sum(unit.size_bytes for unit in units)
    task_count = max(cores * _TASKS_FOR_EACH_CORE, 1)
    target = min(max(total_bytes // task_count, _LEAST_BYTES), _MOST_BYTES)
    groups: list[list[UnitT]] = []
    open_groups: dict[Path, tuple[list[UnitT], int]] = {}
    for unit in units:
        group, size_bytes = open_groups.get(unit.root, ([], 0))
        is_full = size_bytes + unit.size_bytes > target or len(group) >= _MOST_UNITS
        if not group or is_full:
            group, size_bytes = [], 0
            groups.append(group)
        group.append(unit)
        open_groups[unit.root] = group, size_bytes + unit.size_bytes
    return sorted(groups, key=lambda group: -sum(unit.size_bytes for unit in group))


def shares(
    groups: Sequence[Sequence[Unit]], tasks_at_once: int | None, bytes_per_second: int | None
) -> dict[Path, int]:
    """Return what one task may read of each log directory, in bytes per second; {} for no limit.

    Args:
        tasks_at_once: how many tasks may read the same directory at the same time; None if it is
            not known, so that all of them may.
    """
    if bytes_per_second is None:
        return {}
    counts: dict[Path, int] = {}
    for group in groups:
        counts[group[0].root] = counts.get(group[0].root, 0) + 1
    if tasks_at_once is not None:
        counts = {root: min(count, tasks_at_once) for root, count in counts.items()}
    return {root: max(bytes_per_second // count, 1) for root, count in counts.items()}


def cores_of(context: "SparkContext") -> int:
    """Return the cores that the executors have now."""
    return max(context.defaultParallelism, 1)


def tasks_at_once(context: "SparkContext") -> int | None:
    """Return how many tasks may run at the same time; None if executors may be added.

    With dynamic allocation, Spark starts more executors for the very job that is to be held back.
    """
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return None
    return cores_of(context)
