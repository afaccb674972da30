"""Cut the work of an audit on Spark into groups, one for each task, within the throttle."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

_TASKS_FOR_EACH_CORE: Final = 4
_MIN_BYTES: Final = 32 << 20
_MAX_BYTES: Final = 1 << 30
_MAX_UNITS: Final = 1000
_ROUND_S: Final = 60


class Unit(Protocol):
    """The smallest piece of work: a segment, or a range of offsets."""

    @property
    def root(self) -> Path:
        """The log directory, to which the throttle applies."""

    @property
    def size_bytes(self) -> int:
        """The approximate bytes to read."""


UnitT = TypeVar("UnitT", bound=Unit)


def grouped(units: Sequence[UnitT], cores: int) -> list[list[UnitT]]:
    """Return some groups for each core, each of one log directory, the largest first."""
    total_bytes = sum(unit.size_bytes for unit in units)
    task_count = max(cores * _TASKS_FOR_EACH_CORE, 1)
    target = min(max(total_bytes // task_count, _MIN_BYTES), _MAX_BYTES)
    groups: list[list[UnitT]] = []
    open_groups: dict[Path, tuple[list[UnitT], int]] = {}
    for unit in units:
        group, size_bytes = open_groups.get(unit.root, ([], 0))
        is_full = size_bytes + unit.size_bytes > target or len(group) >= _MAX_UNITS
        if not group or is_full:
            group, size_bytes = [], 0
            groups.append(group)
        group.append(unit)
        open_groups[unit.root] = group, size_bytes + unit.size_bytes
    return sorted(groups, key=lambda group: -sum(unit.size_bytes for unit in group))


@dataclass(frozen=True, slots=True)
class TaskRound(Generic[UnitT]):
    """Tasks that may run at the same time.

    Attributes:
        groups: the units of each task, all of one log directory.
        bytes_per_second: the limit of one task, by log directory; empty for no limit.
    """

    groups: list[list[UnitT]]
    bytes_per_second: dict[Path, int]


def rounds(
    units: Sequence[UnitT], cores: int, bytes_per_second: int | None
) -> Iterator[TaskRound[UnitT]]:
    """Return the tasks of an audit, in rounds that are run one after the other.

    Without a limit there is one round. With a limit, a round has few tasks for each log directory,
    so that each gets its share of the limit whatever the number of executors, and directories are
    read concurrently. A task takes about a minute, the maximum loss if it fails.

    Args:
        cores: the expected number of concurrent tasks.
        bytes_per_second: the limit for each log directory, None for none.
    """
    if bytes_per_second is None:
        if units:
            yield TaskRound(grouped(units, cores), {})
        return
    left: dict[Path, deque[UnitT]] = {}
    for unit in units:
        left.setdefault(unit.root, deque()).append(unit)
    width = max(cores // max(len(left), 1), 1)
    share = max(bytes_per_second // width, 1)
    limits = dict.fromkeys(left, share)
    while any(left.values()):
        yield TaskRound(
            [
                _taken(item, share * _ROUND_S)
                for item in left.values()
                for _ in range(width)
                if item
            ],
            limits,
        )


def _taken(left: deque[UnitT], size_bytes: int) -> list[UnitT]:
    """Remove and return units up to the size, at least one."""
    taken: list[UnitT] = []
    while left and size_bytes > 0 and len(taken) < _MAX_UNITS:
        taken.append(left.popleft())
        size_bytes -= taken[-1].size_bytes
    return taken


def cores_of(context: "SparkContext") -> int:
    """Return the present number of cores of the executors."""
    return max(context.defaultParallelism, 1)
