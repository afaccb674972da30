"""The port to a log directory's I/O thread. `runtime.disks` implements it over a thread."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, TypeVarTuple

from spindle.common.errors import LogDirectoryFailed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DirectoryExecutor(Protocol):
    """The I/O thread of one log directory: work runs there in the order of submission."""

    failure: LogDirectoryFailed | None

    def call(
        self,
        callback: Callable[[Any, BaseException | None], None] | None,
        function: Callable[..., Any],
        *args: Any,
    ) -> None:
        """Run there, then call back on the event loop with (result, None) or (None, error)."""
        ...

    def submit(self, function: Callable[[*Ts], T], *args: *Ts) -> Awaitable[T]: ...
    def submit_nowait(self, function: Callable[..., Any], *args: Any) -> None: ...
    def note(self, function: Callable[..., Any], *args: Any) -> None:
        """Run before whatever is submitted next, which is all that needs to know it."""
        ...

    def fail(self, cause: BaseException | str) -> LogDirectoryFailed:
        """Take the directory offline."""
        ...

    def wait_at_most(self, hang_limit_s: float) -> None:
        """From now on a disk that has not answered for so long has failed."""
        ...

    def stop(self, timeout_s: float) -> bool:
        """Finish what was submitted and end; False if that takes longer."""
        ...
