"""The `sticky` assignor of streams groups: tasks stay where they were, and the load is even.

Active tasks go to their former member, then to one that has a copy of the state, then to the member
with the least load. Standby tasks go to other processes than the active one. A quota keeps a member
from having more tasks than its share.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spindle.coordinator.streams.member import TaskId, TaskSet, ids_of

STICKY: Final = "sticky"


class AssignorMember(NamedTuple):
    """The process of a member, and the tasks of its last target."""

    process_id: str
    before: TaskSet


class AssignorTopology(NamedTuple):
    """The number of tasks by subtopology, and the subtopologies with state."""

    task_counts: Mapping[str, int]
    stateful: frozenset[str]


def assign(
    members: Mapping[str, AssignorMember], topology: AssignorTopology, standby_count: int
) -> dict[str, TaskSet]:
    """Return the tasks of each member.

    Args:
        standby_count: standby tasks for each task with state; fewer if there are not enough
            processes.
    """
    if not members:
        return {}
    work = _Assignment(members)
    tasks = [
        TaskId(s, index) for s, count in topology.task_counts.items() for index in range(count)
    ]
    work.assign_active(sorted(tasks, key=lambda task: (task.partition, task.subtopology_id)))
    if standby_count:
        stateful = [task for task in tasks if task.subtopology_id in topology.stateful]
        work.assign_standby(stateful, standby_count)
    return {
        member_id: TaskSet(_by_subtopology(work.active[member_id]), _by_subtopology(standby))
        for member_id, standby in work.standby.items()
    }


class _Assignment:
    """The tasks that members have got so far."""

    def __init__(self, members: Mapping[str, AssignorMember]) -> None:
        self._members = dict(sorted(members.items()))
        self.active: dict[str, list[TaskId]] = {member_id: [] for member_id in self._members}
        self.standby: dict[str, list[TaskId]] = {member_id: [] for member_id in self._members}
        self._holders: dict[TaskId, set[str]] = {}
        self._sizes: dict[str, int] = dict.fromkeys(self._members, 0)
        self._threads: dict[str, list[str]] = {}
        self._former: dict[TaskId, str] = {}
        self._copies: dict[TaskId, list[str]] = {}
        for member_id, member in self._members.items():
            self._threads.setdefault(member.process_id, []).append(member_id)
            for task in ids_of(member.before.active):
                self._former[task] = member_id
            for tasks in (member.before.standby, member.before.warmup):
                for task in ids_of(tasks):
                    self._copies.setdefault(task, []).append(member_id)

    def assign_active(self, tasks: Iterable[TaskId]) -> None:
        left = list(tasks)
        quota = -(-len(left) // len(self._members))
        for find in (self._former_member, self._member_with_copy):
            unplaced = []
            for task in left:
                member_id = find(task)
                if member_id is not None and self._sizes[member_id] < quota:
                    self._give(self.active, task, member_id)
                else:
                    unplaced.append(task)
            left = unplaced
        for task in sorted(left):
            self._give(self.active, task, self._least_loaded(self._threads))

    def assign_standby(self, tasks: Iterable[TaskId], count: int) -> None:
        ordered = sorted(tasks, key=lambda task: (task.partition, task.subtopology_id))
        total = sum(self._sizes.values()) + count * len(ordered)
        quota = -(-total // len(self._members))
        for task in ordered:
            for _ in range(count):
                free = [p for p in self._threads if p not in self._holders.get(task, ())]
                if not free:
                    break
                former = self._former.get(task)
                wanted = [former] if former is not None else []
                wanted += self._copies.get(task, [])
                sticky = next(
                    (
                        member_id
                        for member_id in wanted
                        if self._members[member_id].process_id in free
                        and self._sizes[member_id] < quota
                    ),
                    None,
                )
                self._give(self.standby, task, sticky or self._least_loaded(free))

    def _give(self, kind: dict[str, list[TaskId]], task: TaskId, member_id: str) -> None:
        kind[member_id].append(task)
        self._sizes[member_id] += 1
        self._holders.setdefault(task, set()).add(self._members[member_id].process_id)

    def _former_member(self, task: TaskId) -> str | None:
        return self._former.get(task)

    def _member_with_copy(self, task: TaskId) -> str | None:
        return min(self._copies.get(task, ()), key=self._sizes.__getitem__, default=None)

    def _least_loaded(self, processes: Iterable[str]) -> str:
        """Return the member with the fewest tasks of the process with the least load."""

        def load(process_id: str) -> float:
            threads = self._threads[process_id]
            return sum(self._sizes[member_id] for member_id in threads) / len(threads)

        process_id = min(processes, key=load)
        return min(self._threads[process_id], key=self._sizes.__getitem__)


def _by_subtopology(tasks: Iterable[TaskId]) -> dict[str, frozenset[int]]:
    by_id: dict[str, set[int]] = {}
    for task in tasks:
        by_id.setdefault(task.subtopology_id, set()).add(task.partition)
    return {subtopology_id: frozenset(by_id[subtopology_id]) for subtopology_id in sorted(by_id)}
