"""Cancelling an operation: it undoes its changes, and the exception reaches the caller."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spindle.operations.events import NotUndone, OnProgress, ProgressEvent, Stopping

Sleep = Callable[[float], object]
"""Waits for a time in seconds, as `time.sleep`; may raise `Cancelled`."""


class Cancelled(Exception):
    """The operation was cancelled with a `Cancellation`, and has undone its changes."""


class Cancellation:
    """Cancels an operation that runs in another thread.

    The operation notices it at its next pause, at most half a second after a request to the cluster
    has ended. In the thread of the operation, Ctrl-C does the same.

    Examples:
        >>> cancellation = Cancellation()
        >>> thread = Thread(target=lambda: drain(client, 2, cancellation=cancellation))
        >>> thread.start()
        >>> cancellation.cancel()
    """

    def __init__(self) -> None:
        self._is_cancelled = threading.Event()

    def cancel(self) -> None:
        """Cancel the operation. It undoes its changes, and raises `Cancelled`."""
        self._is_cancelled.set()

    def sleep(self, seconds: float) -> None:
        """Wait for a time.

        Raises:
            Cancelled: `cancel` was called before or meanwhile.
        """
        if self._is_cancelled.wait(seconds):
            raise Cancelled("the operation was cancelled")


class ProgressReport:
    """Passes the events of an operation on to its caller."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._may_fail = False

    def __call__(self, event: ProgressEvent) -> None:
        try:
            self._on_progress(event)
        except Exception:
            if not self._may_fail:
                raise

    @contextmanager
    def may_fail(self) -> Iterator[None]:
        """Ignore failures in the body: after SIGHUP the terminal that shows events is gone."""
        self._may_fail = True
        try:
            yield
        finally:
            self._may_fail = False


@contextmanager
def undone_if_cancelled(
    undo: Callable[[], None],
    state: Path,
    report: ProgressReport,
    remedy: str,
) -> Iterator[None]:
    """Call a function when the operation is cancelled or the user presses Ctrl-C.

    Args:
        state: the file with the remaining changes if the user presses Ctrl-C a second time.
        remedy: the call that undoes them.

    Raises:
        Cancelled, KeyboardInterrupt: the one that was raised inside.
    """
    try:
        yield
    except (Cancelled, KeyboardInterrupt):
        try:
            with report.may_fail():
                report(Stopping())
                undo()
        except KeyboardInterrupt:
            with report.may_fail():
                report(NotUndone(str(state), remedy))
        raise
