"""The periodic tasks of the active controller, and their schedule."""

from collections.abc import Mapping
from enum import Enum

from spindle.controller.broker_sessions import CHECKS_PER_SESSION
from spindle.controller.decision import ControllerSettings


class Task(Enum):
    """A periodic task of the active controller."""

    FENCE_STALE_BROKERS = "fence stale brokers"
    NO_OP_RECORD = "write a no-op record"
    ELECT_PREFERRED = "elect preferred leaders"
    ELECT_UNCLEAN = "elect leaders uncleanly"
    EXPIRE_TOKENS = "remove expired delegation tokens"
    ELECT_WAITING = "elect leaders that a returned broker makes possible"
    """This task runs on demand only."""


def intervals_ms(settings: ControllerSettings) -> dict[Task, int]:
    """Return the interval of each task that is switched on, in ms."""
    intervals = {
        Task.FENCE_STALE_BROKERS: max(1, settings.broker_session_timeout_ms // CHECKS_PER_SESSION),
        Task.ELECT_UNCLEAN: settings.unclean_leader_election_interval_ms,
    }
    if settings.max_idle_interval_ms > 0:
        intervals[Task.NO_OP_RECORD] = settings.max_idle_interval_ms
    if settings.auto_leader_rebalance_enable:
        intervals[Task.ELECT_PREFERRED] = settings.leader_imbalance_check_interval_ms
    if settings.delegation_tokens is not None:
        intervals[Task.EXPIRE_TOKENS] = settings.delegation_tokens.expiry_check_interval_ms
    return intervals


class Schedule:
    """The time at which each task is due next."""

    def __init__(self, intervals: Mapping[Task, int], now_ms: int) -> None:
        self._intervals = dict(intervals)
        self._due_ms = {task: now_ms + interval for task, interval in intervals.items()}

    def next_due_ms(self) -> int:
        """Return the time at which the next task is due."""
        return min(self._due_ms.values())

    def take_due(self, now_ms: int) -> list[Task]:
        """Return the tasks that are due; each is scheduled one interval from now, if it has one."""
        due = [task for task, at_ms in self._due_ms.items() if at_ms <= now_ms]
        for task in due:
            if task in self._intervals:
                self._due_ms[task] = now_ms + self._intervals[task]
            else:
                del self._due_ms[task]
        return due

    def run_by(self, task: Task, at_ms: int) -> None:
        """Make the task due no later than at that time."""
        self._due_ms[task] = min(at_ms, self._due_ms.get(task, at_ms))
