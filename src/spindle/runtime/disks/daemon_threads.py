"""Work beside the event loop that may never come to its end: a thread of its own for each.

A pool would keep the process alive until the last of its threads is done, and a few that hang on
their disks would stop everybody else who needs the pool.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """An executor whose work the end of the process does not wait for."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits for it
                future.set_exception(error)
            else:
                future.set_result(result)

        if future.set_running_or_notify_cancel():
            threading.Thread(target=run, name="beside", daemon=True).start()
        return future
