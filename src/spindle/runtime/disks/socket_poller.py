"""The sockets that jobs of a directory's thread wait for, while the thread does other jobs.

So a client that reads its response quickly costs no detour over the event loop for each piece, and
a client that reads nothing blocks no other. All waits of a thread are in one epoll set, together
with an eventfd that signals new jobs.
"""

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from spindle.disks.executor import Unfinished

MAX_WAIT_S: Final = 0.03
"""Maximum total time that a job waits for its socket; afterwards the event loop waits for the
client. This is short, because the job keeps the memory that its fetch was granted."""

Resumed = tuple[int, Callable[[], object], tuple[()]]
"""A job that resumes: its number, a method of its `Unfinished`, and no arguments."""


class SocketPoller:
    """Jobs that wait, by the descriptors of their sockets. Only `wake` may be called elsewhere.

    Attributes:
        by_descriptor: number and `Unfinished` of the job.
        current: the `Unfinished` that the running job resumes; None for a new job. The thread
            resets it.
        is_asleep: the thread waits and must be woken for a new job.
    """

    __slots__ = ("_bell", "_poll", "by_descriptor", "current", "is_asleep")

    def __init__(self) -> None:
        self.by_descriptor: dict[int, tuple[int, Unfinished]] = {}
        self.current: Unfinished | None = None
        self.is_asleep = False
        self._poll: select.epoll | None = None
        self._bell = -1

    def add(self, number: int, work: Unfinished) -> None:
        """Let a job wait until its socket is writable, now and whenever it returns `work` again."""
        self.by_descriptor[work.descriptor] = number, work
        try:
            self._opened().register(work.descriptor, select.EPOLLOUT)
            work.until_s = time.monotonic() + MAX_WAIT_S
        except OSError:
            work.until_s = 0.0  # no descriptor is left: the job is cancelled at once

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
        """Wake the thread for a new job. Called on the event loop if the thread is asleep."""
        self.is_asleep = False
        os.eventfd_write(self._bell, 1)

    def ready(self, has_no_job: Callable[[], bool]) -> Iterator[Resumed]:
        """Yield the jobs that resume now; while there is no other job, wait for one."""
        if self._poll is not None:
            yield from self._with_room(self._poll, has_no_job)
        yield from self._late(time.monotonic())

    def _with_room(self, poll: select.epoll, has_no_job: Callable[[], bool]) -> Iterator[Resumed]:
        # Set the flag first: a job that is added after the check then wakes the thread.
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
                yield number, work.resume, ()

    def end(self, work: Unfinished, *, has_failed: bool) -> None:
        """Remove a job that no longer waits, and close its descriptor."""
        self.by_descriptor.pop(work.descriptor, None)
        # If the socket stayed in the set, the connection's own descriptor would report it.
        if self._poll is not None:
            with suppress(OSError):  # it is missing if it could not be added
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
            yield number, work.cancel_wait, ()

    def cancel_all_waits(self) -> Iterator[Resumed]:
        """Cancel all waits; yield their jobs."""
        return self._late(float("inf"))

    def drop_all(self) -> None:
        """Free all waiting jobs, because the thread ends."""
        for _, work in list(self.by_descriptor.values()):
            self.end(work, has_failed=True)

    def close(self) -> None:
        """Close the set. Call it after the thread has ended: the event loop may wake it before."""
        if self._poll is not None:
            self._poll.close()
            os.close(self._bell)
            self._poll = None
