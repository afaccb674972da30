"""An asyncio event loop in virtual time: no sockets, no threads, no waiting, one seed.

When nothing is ready, time jumps to the next timer. Callbacks run in asyncio's order; seeds differ
in the times that disks and messages take. After each callback, `after_event` is called with the
life to which the callback belonged.
"""

import asyncio
import socket
import warnings
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappop, heappush
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import Any, Final

from verification.simulation.clock import START_S
from verification.simulation.incarnation import LIFE, THE_WORLD, Life
from verification.simulation.network import Network, SimulatedSocket

_MAX_EVENTS_AT_ONCE: Final = 20_000
_FIRST_DESCRIPTOR: Final = 1_000_000_000
"""Above those of real files, so that system calls refuse it."""


class Deadlock(AssertionError):
    """No callback is ready and no timer is set, so nothing can happen any more."""


class Livelock(Deadlock):
    """Callbacks follow each other without time passing."""


class TimeLimitReached(Exception):
    """The time limit of the test runner, in real time, has ended the run: it is not judged."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of all hosts together.

    Attributes:
        now_s: true time.
        event_count: callbacks run so far.
        is_interrupted: whether the run has to end before the next callback.
        thread_delay_s: returns the time that work on a thread takes.
    """

    def __init__(
        self,
        thread_delay_s: Callable[[], float] = lambda: 0.0,
        after_event: Callable[[Life], None] = lambda life: None,
    ) -> None:
        super().__init__()
        self.now_s = START_S
        self.event_count = 0
        self.is_interrupted = False
        self._events_at_once = 0
        self.thread_delay_s = thread_delay_s
        self.after_event = after_event
        self.network: Network
        self._ready: Any
        self._scheduled: list[asyncio.TimerHandle]
        self._last_descriptor = _FIRST_DESCRIPTOR
        self._readers: dict[int, tuple[Callable[..., None], tuple[Any, ...], Context]] = {}
        self.set_task_factory(_new_task)

    # -- time

    def time(self) -> float:
        """Return the time by the clock of the host that runs now."""
        return LIFE.get().clock.local_s(self.now_s)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        life = LIFE.get() if context is None else context.get(LIFE, THE_WORLD)
        true_s = max(life.clock.true_s(when), self.now_s)
        timer = asyncio.TimerHandle(true_s, callback, args, self, context)
        heappush(self._scheduled, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled timer in the heap until its time."""

    def _run_once(self) -> None:
        if self.is_interrupted:
            raise TimeLimitReached(f"after {self.event_count:,} callbacks: the run is not judged")
        ready, scheduled = self._ready, self._scheduled
        if not ready:
            while scheduled and scheduled[0].cancelled():
                heappop(scheduled)
            if not scheduled:
                raise Deadlock("no callback is ready and no timer is set")
            if scheduled[0].when() > self.now_s:
                self._events_at_once = 0
            self.now_s = scheduled[0].when()
            while scheduled and scheduled[0].when() <= self.now_s:
                ready.append(heappop(scheduled))
        handle = ready.popleft()
        if handle.cancelled():
            return
        life = handle._context.get(LIFE, THE_WORLD)
        if life.is_over:
            _discard(handle)
            return
        handle._run()
        self.event_count += 1
        self._events_at_once += 1
        if self._events_at_once > _MAX_EVENTS_AT_ONCE:
            raise Livelock(f"{_MAX_EVENTS_AT_ONCE} callbacks while no time passed")
        self.after_event(life)

    def end(self) -> None:
        """Close the loop: callbacks that finalizers schedule from now on are dropped."""
        for handle in self._ready:
            _discard(handle)
        self._ready.clear()
        self._scheduled.clear()
        self.set_exception_handler(lambda loop, context: None)
        self.close()

    def _check_closed(self) -> None:
        """Do nothing; see `end`."""

    def _write_to_self(self) -> None:
        """Do nothing, because no other thread has to wake this one."""

    # -- threads

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """Run the function on this thread, a little later."""
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - handed to whoever waits for it
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.thread_delay_s(), run)
        return future

    # -- descriptors

    def new_descriptor(self) -> int:
        """Return a number that no other descriptor has."""
        self._last_descriptor += 1
        return self._last_descriptor

    def add_reader(  # type: ignore[override]  # the types of its arguments are not compared
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        self._readers[fd] = callback, args, copy_context()

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def readable(self, descriptor: int, delay_s: float) -> None:
        """Call the reader of a descriptor after some time, if it still has one then."""
        known = self._readers.get(descriptor)
        if known is not None:
            context = known[2]
            life = context.get(LIFE, THE_WORLD)
            when = life.clock.local_s(self.now_s) + delay_s
            self.call_at(when, self._call_reader, descriptor, context=context)

    def _call_reader(self, descriptor: int) -> None:
        known = self._readers.get(descriptor)
        if known is not None:
            callback, args, _ = known
            callback(*args)

    # -- the network

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], *, sock: SimulatedSocket, **_: Any
    ) -> SimulatedSocket:
        sock.serve(protocol_factory)
        return sock

    def _process_events(self, event_list: Any) -> None:
        """Do nothing, because there is no selector."""


def _discard(handle: asyncio.Handle) -> None:
    """Close the coroutine of a task that was not started: else Python prints a warning about it."""
    task = getattr(getattr(handle, "_callback", None), "__self__", None)
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    if isinstance(coroutine, CoroutineType) and getcoroutinestate(coroutine) == CORO_CREATED:
        with warnings.catch_warnings():
            # Its arguments may be coroutines, too.
            warnings.simplefilter("ignore", RuntimeWarning)
            coroutine.close()


def _new_task(loop: Any, coro: Any, context: Context | None = None) -> asyncio.Task[Any]:
    task = asyncio.Task(coro, loop=loop, context=context)
    # Tasks of a crashed host never finish, which is no error.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task
