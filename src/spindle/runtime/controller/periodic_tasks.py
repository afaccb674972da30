"""Runs the periodic tasks of the active controller; a task that fails does not stop the others.

A task with more to do than fits into one decision continues when that decision is committed:
requests of brokers are answered in between, and the log does not run ahead of its commits.
"""

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from spindle.common.errors import ApiError
from spindle.controller.broker_heartbeat import fence_stale_broker
from spindle.controller.broker_sessions import BrokerHeartbeatManager
from spindle.controller.decision import ControllerContext, Decision
from spindle.controller.delegation_tokens import remove_expired_tokens
from spindle.controller.elections import balance_leaders, elect_uncleanly, elect_waiting
from spindle.controller.periodic import Schedule, Task, intervals_ms
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.metadata_records import NoOpRecord
from spindle.protocol.sentinels import NO_OFFSET
from spindle.runtime.controller.controller_counters import ControllerHistory

logger = logging.getLogger(__name__)

_RETRY_MS: Final = 1000
"""Pause before a failed task is tried again, if it is not due earlier."""


class PeriodicTasks:
    """The schedule of one active controller, from `begin` to `end`.

    Args:
        image: returns the speculative image.
        execute: appends the records of a decision; returns the offset to wait for.
        committed_offset: returns the offset up to which everything is committed (inclusive).
        clock: milliseconds of a monotonic clock.
        wall_clock: milliseconds since the epoch.
    """

    def __init__(
        self,
        context: ControllerContext,
        heartbeats: BrokerHeartbeatManager,
        image: Callable[[], MetadataImage],
        execute: Callable[[Decision[Any]], int],
        committed_offset: Callable[[], int],
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
        history: ControllerHistory,
    ) -> None:
        self._context = context
        self._heartbeats = heartbeats
        self._image = image
        self._execute = execute
        self._committed_offset = committed_offset
        self._awaited_offset = NO_OFFSET
        self._clock = clock
        self._wall_clock = wall_clock
        self._history = history
        self._schedule: Schedule | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, now_ms: int) -> None:
        """Start the schedule of a controller that has just become active."""
        self._schedule = Schedule(intervals_ms(self._context.settings), now_ms)
        # The predecessor may have stopped between two batches of elections.
        self._schedule.run_by(Task.ELECT_WAITING, now_ms)
        self._set_timer()

    def end(self) -> None:
        """Run nothing more until the next `begin`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule = None
        self._awaited_offset = NO_OFFSET

    def committed(self) -> None:
        """Continue with a task that waits for the commit of its last decision."""
        if self._awaited_offset != NO_OFFSET and not self._is_waiting():
            self._awaited_offset = NO_OFFSET
            self._set_timer()

    def _is_waiting(self) -> bool:
        return self._committed_offset() < self._awaited_offset

    def elect_waiting_now(self) -> None:
        """Schedule the elections that did not fit into a decision, to run shortly."""
        if self._schedule is not None:
            self._schedule.run_by(Task.ELECT_WAITING, self._clock())
            self._set_timer()

    @property
    def next_due_ms(self) -> int | None:
        """The time at which `run_due` has a task to run.

        None while another node is active, and while a task waits for the commit of a decision.
        """
        if self._schedule is None or self._is_waiting():
            return None
        return self._schedule.next_due_ms()

    def _set_timer(self) -> None:
        due_ms = self.next_due_ms
        if due_ms is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(1, due_ms - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self.run_due()
        self._set_timer()

    def run_due(self) -> None:
        """Run the tasks that are due; a task that fails delays neither the others nor its next run.

        The timer calls this; a test with its own clock may call it, too.
        """
        if self._schedule is None or self._is_waiting():
            return
        now_ms = self._clock()
        for task in self._schedule.take_due(now_ms):
            self._history.operations_started += 1
            began_s = perf_counter()
            try:
                self._run(task, now_ms)
            except ApiError as error:
                self._failed(task, now_ms)
                logger.warning("Controller %d: could not %s: %s", self._node_id, task.value, error)
            except Exception:
                # The other tasks must run in any case: without them no broker is ever fenced.
                self._failed(task, now_ms)
                self._history.errors += 1
                logger.exception("Controller %d: failed to %s", self._node_id, task.value)
            finally:
                self._history.operations.observe(perf_counter() - began_s)

    def _failed(self, task: Task, now_ms: int) -> None:
        if self._schedule is not None:
            self._schedule.run_by(task, now_ms + _RETRY_MS)

    def _run(self, task: Task, now_ms: int) -> None:
        if self._schedule is None:
            return
        if task is Task.NO_OP_RECORD:
            self._execute(Decision(None, [NoOpRecord()]))
            return
        if task is Task.EXPIRE_TOKENS:
            self._expire_tokens()
            return
        if task is Task.FENCE_STALE_BROKERS:
            decision = fence_stale_broker(self._image(), self._heartbeats, now_ms, self._context)
        else:
            decision = _ELECTIONS[task](self._image(), self._context.settings)
        last_offset = self._execute(decision)
        if task is Task.FENCE_STALE_BROKERS:
            self._fenced(decision.response)
        if decision.response and self._schedule is not None:
            self._schedule.run_by(task, now_ms)
            self._awaited_offset = last_offset

    def _expire_tokens(self) -> None:
        decision = remove_expired_tokens(self._image(), self._wall_clock())
        self._execute(decision)
        if decision.response:
            logger.info(
                "Controller %d removes %d expired delegation tokens",
                self._node_id,
                decision.response,
            )

    def _fenced(self, has_expired: bool) -> None:
        self._history.heartbeats_timed_out += has_expired
        expiry_ms = self._heartbeats.next_expiry_ms()
        if expiry_ms is not None and self._schedule is not None:
            self._schedule.run_by(Task.FENCE_STALE_BROKERS, expiry_ms)

    @property
    def _node_id(self) -> int:
        return self._context.settings.node_id


_ELECTIONS: Final = {
    Task.ELECT_PREFERRED: balance_leaders,
    Task.ELECT_WAITING: elect_waiting,
    Task.ELECT_UNCLEAN: elect_uncleanly,
}
