"""The port between the event loop and a log directory's I/O thread.

`runtime.disks` implements it over threads, the simulation in virtual time. Types tie the arguments
to the function and the callback to its result, so that mypy checks what crosses over.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, TypeVarTuple

from spindle.common.errors import LogDirectoryFailed
from spindle.disks.io_counts import DirectoryIo

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Callback: TypeAlias = Callable[[T | None, BaseException | None], None]
"""Called on the event loop with (result, None) or (None, error)."""


class ThreadLoad(NamedTuple):
    """The load of a directory's I/O thread.

    Attributes:
        queue_length: functions that wait for the thread.
        busy_ns: the time that the thread has spent in functions since the start, including the
            function that runs now.
        hang_ms: how long a thread of the directory has waited for its disk; 0 unless it hangs.
    """

    queue_length: int
    busy_ns: int
    hang_ms: int


class Unfinished:
    """The result of a function that has to wait for a socket: other functions run meanwhile.

    When the socket has room, the directory's thread calls `resume`; if that takes too long, it
    calls `cancel_wait`. The callback gets what they return. In the end the thread calls `close`.
    Only the directory's thread uses it.

    Attributes:
        descriptor: of the socket.
        until_s: when the wait is broken off, by the thread's own clock; 0 if it cannot wait.
    """

    __slots__ = ("descriptor", "until_s")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.until_s = 0.0

    def resume(self) -> object:
        """Write to the socket; return the result, or this object to wait again."""
        raise NotImplementedError

    def cancel_wait(self) -> object:
        """Return the result as it is."""
        raise NotImplementedError

    def close(self, *, has_failed: bool) -> None:
        """Return the socket, and release the files if there is no result. It raises nothing."""
        raise NotImplementedError


class DirectoryExecutor(Protocol):
    """Runs functions that use the files of one log directory.

    `call`, `submit`, `submit_nowait` and `note` run them on the directory's I/O thread, in the
    order of submission. `submit_beside` runs a function on a thread of its own, at the same time.

    Every function is guarded: an `OSError` takes the directory offline, and so does a function that
    hangs on its disk. The caller then gets `LogDirectoryFailed`, and so does every later one,
    without its function being run. Other errors go to the caller alone, also `CorruptLog`: the
    caller knows whether the bytes belong to the directory or to one partition.

    Attributes:
        path: the directory.
        failure: why the directory is offline; None while it is online.
        io: the operations on the directory's files.
    """

    path: str
    failure: LogDirectoryFailed | None
    io: DirectoryIo

    def load(self) -> ThreadLoad:
        """Return the present load. Call it on the event loop."""
        ...

    def call(
        self,
        callback: Callback[T] | None,
        function: Callable[[*Ts], T | Unfinished],
        *args: *Ts,
    ) -> None:
        """Run `function(*args)`, then `callback` on the event loop.

        Only a function of `call` may return something `Unfinished`.
        """
        ...

    def submit(self, function: Callable[[*Ts], T], *args: *Ts) -> Awaitable[T]:
        """Return the result of `function(*args)`, to be awaited on the event loop."""
        ...

    def submit_nowait(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Run `function(*args)` without waiting for it; an unexpected error is logged."""
        ...

    def note(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Run `function(*args)` before the next function that is submitted.

        The thread is not woken for it: use it for updates that only later work needs. If a function
        is noted several times, only the last call is run.
        """
        ...

    def submit_beside(self, function: Callable[[*Ts], T], *args: *Ts) -> Awaitable[T]:
        """Run `function(*args)` on a thread of its own; return its result, to be awaited.

        It is for long work, such as flushing a gigabyte, during which the directory continues to
        serve. The function must cope with files that the directory's thread renames or removes
        meanwhile.
        """
        ...

    def fail(self, cause: BaseException | str) -> LogDirectoryFailed:
        """Take the directory offline. May be called from any thread; the first cause stays."""
        ...

    def wait_at_most(self, hang_limit_s: float) -> None:
        """Lower the time after which a function that hangs takes the directory offline."""
        ...

    def run_after_failure(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Run a function that closes files, although the directory has failed.

        The disk can then be unmounted and repaired. Errors of the function are ignored. It waits
        for a function that hangs on the disk.
        """
        ...

    def hangs(self) -> bool:
        """Return True if an abandoned function still waits for its disk, and may continue."""
        ...

    def stop(self, timeout_s: float) -> bool:
        """Finish what was submitted and end; False if that takes longer."""
        ...
