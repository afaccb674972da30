"""A member of a streams group, and sets of tasks (KIP-1071)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
"""The epoch of a static member that will return."""

Tasks: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions of tasks by the id of their subtopology."""


class TaskId(NamedTuple):
    """A task: one partition of a subtopology."""

    subtopology_id: str
    partition: int


class StreamsMemberState(IntEnum):
    """The progress of a member towards its target, by the number in its record."""

    STABLE = 0
    UNREVOKED_TASKS = 1
    UNRELEASED_TASKS = 2


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of a member by their kind."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(map(bool, (self.active, self.standby, self.warmup)))

    def overlaps(self, other: "TaskSet") -> bool:
        """Return True if a task is in both, as the same kind."""
        return any(
            not partitions.isdisjoint(theirs.get(subtopology_id, frozenset()))
            for ours, theirs in self._pairs(other)
            for subtopology_id, partitions in ours.items()
        )

    def is_subset_of(self, other: "TaskSet") -> bool:
        """Return True if the other set has all these tasks, as the same kinds."""
        return all(
            partitions <= theirs.get(subtopology_id, frozenset())
            for ours, theirs in self._pairs(other)
            for subtopology_id, partitions in ours.items()
        )

    def _pairs(self, other: "TaskSet") -> tuple[tuple[Tasks, Tasks], ...]:
        return (
            (self.active, other.active),
            (self.standby, other.standby),
            (self.warmup, other.warmup),
        )


NO_TASKS: Final = TaskSet()


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member, which is one thread of an application.

    Attributes:
        topology_epoch: version of the topology that it runs; -1 before it has sent one.
        process_id: id of its process: tasks with state are not twice in a process.
        endpoint: host and port for interactive queries.
        assigned: the tasks that it may run now.
        revoking: the tasks that it has to give up first.
        active_since: for each active task, the epoch in which the member got it.
    """

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: StreamsMemberState = StreamsMemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: TaskSet = NO_TASKS
    revoking: TaskSet = NO_TASKS
    active_since: Mapping[TaskId, int] = field(default_factory=dict)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return True if the member has its whole target of this epoch."""
        return self.state is StreamsMemberState.STABLE and self.epoch == assignment_epoch


def ids_of(tasks: Tasks) -> Iterator[TaskId]:
    """Yield the ids of tasks."""
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield TaskId(subtopology_id, partition)
