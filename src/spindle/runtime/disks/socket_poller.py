"""The sockets that jobs of a directory's thread wait for, while the thread does other jobs.

A response to a fast client then needs no detour over the event loop for each piece, and a slow
client delays no other job. All waits of a thread are in one epoll set, together with an event
descriptor that signals new jobs.
"""

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from spindle.disks.executor import Unfinished

MAX_WAIT_S: Final = 0.03
"""A job may wait for its socket for so long in all; the event loop then waits for the client. The
memory that a fetch was granted is held as long, so this is short."""

Resumed = tuple[int, Callable[[], object], tuple[()]]
"""A job that goes on: its number, a function of its `Unfinished`, and no arguments."""


class SocketPoller:
    """Jobs that wait, by the descriptors of their sockets. For the thread alone, but for the bell.

    Attributes:
        by_descriptor: number of the job and what it waits with.
        current: what the job that runs now goes on with; None for a new job. The thread resets it.
        is_asleep: the thread waits, and has to be woken for a new job.
    """

    __slots__ = ("_bell", "_poll", "by_descriptor", "current", "is_asleep")

    def __init__(self) -> None:
        self.by_descriptor: dict[int, tuple[int, Unfinished]] = {}
        self.current: Unfinished | None = None
        self.is_asleep = False
        self._poll: select.epoll | None = None
        self._bell = -1

    def add(self, number: int, work: Unfinished) -> None:
        """Let a job wait until its socket has room, now and whenever it returns `work` again."""
        self.by_descriptor[work.descriptor] = number, work
        try:
            self._opened().register(work.descriptor, select.EPOLLOUT)
            work.until_s = time.monotonic() + MAX_WAIT_S
        except OSError:
            work.until_s = 0.0  # no descriptor is left: the job is broken off at once

    def _opened(self) -> select.epoll:
        if self._poll is None:
            poll, bell = select.epoll(), -1
            try:
                bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                poll.register(bell, select.EPOLLIN)
            except OSError:
                poll.close()
                if bell >= 0:
                    os.close(bell)
                raise
            self._poll, self._bell = poll, bell
        return self._poll

    def wake(self) -> None:
        """Wake the thread for a new job. For the event loop, if the thread is asleep."""
        self.is_asleep = False
        os.eventfd_write(self._bell, 1)

    def ready(self, has_no_job: Callable[[], bool]) -> Iterator[Resumed]:
        """Yield the jobs that go on now; while there is no other job, wait for one."""
        if self._poll is not None:
            yield from self._with_room(self._poll, has_no_job)
        yield from self._late(time.monotonic())

    def _with_room(self, poll: select.epoll, has_no_job: Callable[[], bool]) -> Iterator[Resumed]:
        # The flag comes first: whoever adds a job after the question sees it, and rings.
        self.is_asleep = True
        longest_s = 0.0
        if has_no_job():
            until_s = min(work.until_s for _, work in self.by_descriptor.values())
            longest_s = max(until_s - time.monotonic(), 0.0)
        events = poll.poll(longest_s)
        self.is_asleep = False
        for descriptor, _ in events:
            if descriptor == self._bell:
                os.eventfd_read(descriptor)
            else:
                number, work = self.by_descriptor[descriptor]
                self.current = work
                yield number, work.go_on, ()

    def end(self, work: Unfinished, *, has_failed: bool) -> None:
        """Take a job out that waits no longer, and close what it waited with."""
        self.by_descriptor.pop(work.descriptor, None)
        # A socket that stayed in the set would be reported by the connection's own descriptor.
        if self._poll is not None:
            with suppress(OSError):  # it is not there if it could not be added
                self._poll.unregister(work.descriptor)
        work.close(has_failed=has_failed)

    def _late(self, now_s: float) -> Iterator[Resumed]:
        late = [
            wait_entry
            for wait_entry in self.by_descriptor.values()
            if wait_entry[1].until_s <= now_s
        ]
        for number, work in late:
            self.current = work
            yield number, work.break_off, ()

    def break_all_off(self) -> Iterator[Resumed]:
        """Yield all jobs, which do not wait any longer."""
        return self._late(float("inf"))

    def drop_all(self) -> None:
        """Free what waits, because the thread ends."""
        for _, work in list(self.by_descriptor.values()):
            self.end(work, has_failed=True)

    def close(self) -> None:
        """Close the set, after the thread has ended: the event loop could still ring before."""
        if self._poll is not None:
            self._poll.close()
            os.close(self._bell)
            self._poll = None
