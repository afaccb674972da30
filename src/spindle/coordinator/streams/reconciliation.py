"""The next step of a member to its target assignment (KIP-1071).

A member first gives up the tasks that it is to lose, then gets those that nobody holds any more. A
task with state is never twice in one process.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from spindle.coordinator.streams.member import (
    NO_TASKS,
    StreamsMember,
    StreamsMemberState,
    TaskId,
    Tasks,
    TaskSet,
    ids_of,
)


class TaskHolders:
    """The tasks that members hold: those they may run, and those they have not given up yet."""

    def __init__(self, members: Iterable[StreamsMember]) -> None:
        self._active: dict[TaskId, str] = {}
        self._copies: set[tuple[str, TaskId]] = set()
        for member in members:
            for tasks in (member.assigned, member.revoking):
                for task in ids_of(tasks.active):
                    self._active[task] = member.process_id
                for kind in (tasks.standby, tasks.warmup):
                    self._copies.update((member.process_id, task) for task in ids_of(kind))

    def may_activate(self, task: TaskId, process_id: str) -> bool:
        """Return True if nobody runs the task, and the process has no copy of its state."""
        return task not in self._active and (process_id, task) not in self._copies

    def may_copy(self, task: TaskId, process_id: str) -> bool:
        """Return True if the process neither runs the task nor has a copy of its state."""
        return self._active.get(task) != process_id and (process_id, task) not in self._copies


def reconcile(
    member: StreamsMember,
    target: TaskSet,
    target_epoch: int,
    owned: TaskSet | None,
    holders: TaskHolders,
) -> StreamsMember:
    """Return the member after its next step, or the same one if it has to wait.

    Args:
        owned: the tasks that the member says it has; None if it does not say it.
    """
    if member.state is StreamsMemberState.STABLE and member.epoch == target_epoch:
        return member
    epoch = member.epoch
    if member.state is StreamsMemberState.UNREVOKED_TASKS:
        if owned is None or owned.overlaps(member.revoking):
            return member
        epoch += 1
    return _next(member, epoch, target, target_epoch, owned, holders)


def _next(
    member: StreamsMember,
    epoch: int,
    target: TaskSet,
    target_epoch: int,
    owned: TaskSet | None,
    holders: TaskHolders,
) -> StreamsMember:
    old = member.assigned
    kept = TaskSet(
        _common(old.active, target.active),
        _common(old.standby, target.standby),
        _common(old.warmup, target.warmup),
    )
    lost = TaskSet(
        _without(old.active, kept.active),
        _without(old.standby, kept.standby),
        _without(old.warmup, kept.warmup),
    )
    since = member.active_since
    if lost and (owned is None or owned.overlaps(lost)):
        return replace(
            member,
            state=StreamsMemberState.UNREVOKED_TASKS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=lost,
            active_since={t: since.get(t, epoch) for t in ids_of(old.active)},
        )
    process_id = member.process_id
    new = TaskSet(
        _allowed(_without(target.active, kept.active), process_id, holders.may_activate),
        _allowed(_without(target.standby, kept.standby), process_id, holders.may_copy),
        _allowed(_without(target.warmup, kept.warmup), process_id, holders.may_copy),
    )
    assigned = TaskSet(
        _joined(kept.active, new.active),
        _joined(kept.standby, new.standby),
        _joined(kept.warmup, new.warmup),
    )
    is_complete = target.is_subset_of(assigned)
    return replace(
        member,
        state=StreamsMemberState.STABLE if is_complete else StreamsMemberState.UNRELEASED_TASKS,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=NO_TASKS,
        active_since={
            task: since[task] if task in since and _has(kept.active, task) else target_epoch
            for task in ids_of(assigned.active)
        },
    )


def _has(tasks: Tasks, task: TaskId) -> bool:
    return task.partition in tasks.get(task.subtopology_id, ())


def _common(tasks: Tasks, others: Tasks) -> Tasks:
    common = {s: partitions & others.get(s, frozenset()) for s, partitions in tasks.items()}
    return {s: partitions for s, partitions in common.items() if partitions}


def _without(tasks: Tasks, others: Tasks) -> Tasks:
    left = {s: partitions - others.get(s, frozenset()) for s, partitions in tasks.items()}
    return {s: partitions for s, partitions in left.items() if partitions}


def _joined(tasks: Tasks, others: Tasks) -> Tasks:
    return {s: tasks.get(s, frozenset()) | others.get(s, frozenset()) for s in {**tasks, **others}}


def _allowed(tasks: Tasks, process_id: str, may_have: Callable[[TaskId, str], bool]) -> Tasks:
    allowed = {
        s: frozenset(p for p in partitions if may_have(TaskId(s, p), process_id))
        for s, partitions in tasks.items()
    }
    return {s: partitions for s, partitions in allowed.items() if partitions}
