"""The process that forks the Python workers of Spark's tasks (`spark.python.daemon.module`).

It is PySpark's own daemon with two differences. A worker says nothing when Spark has closed its
socket. Spark does so as soon as it has enough rows (`show`, `limit`) or stops, even before the
worker has begun, and PySpark's daemon then writes a BrokenPipeError with its traceback between the
lines of the program. And a worker does not search its modules for garbage after each task, which
PySpark's daemon asks for: with numba that takes longer than a short task.
"""

import gc
import sys
import traceback
from types import ModuleType, SimpleNamespace
from typing import Any

from pyspark import daemon

_worker = daemon.worker
_frozen_modules: set[int] = set()
"""Numbers of loaded modules at which all objects were taken out of garbage collection."""


def worker_main(sock: Any, authenticated: bool) -> int:
    """Run one worker, then take what it has loaded out of garbage collection; return its code."""
    code = int(_worker(sock, authenticated))
    if len(sys.modules) not in _frozen_modules:
        _frozen_modules.add(len(sys.modules))
        gc.collect()
        gc.freeze()
    return code


def print_exc() -> None:
    """Print the exception that ends a worker, unless it says that Spark has closed the socket.

    Exceptions of a task do not come here: the worker sends them to Spark. If the worker itself
    failed before it met the closed socket, it prints both.
    """
    error = sys.exception()
    while error is not None and _is_of_closed_socket(error):
        error = error.__context__
    if error is not None:
        traceback.print_exc()


def _is_of_closed_socket(error: BaseException) -> bool:
    # PySpark raises EOFError without a text. With one it is about a file, such as a torn module.
    is_end = isinstance(error, EOFError) and not error.args
    return is_end or isinstance(error, BrokenPipeError | ConnectionResetError)


def quiet_planning() -> None:
    """Make the daemon quiet of which this process is a worker, if it is PySpark's own one.

    Spark calls sources for planning and commits in workers of that daemon, whatever the
    configuration says, and closes their sockets after a minute without work.
    """
    main = sys.modules["__main__"]
    specification = main.__spec__
    if specification is not None and specification.name == daemon.__name__:
        _make_quiet(main)


def run() -> None:
    """Run the daemon until Spark ends it."""
    daemon.worker = worker_main
    _make_quiet(daemon)
    daemon.manager()


def _make_quiet(module: ModuleType) -> None:
    vars(module)["traceback"] = SimpleNamespace(
        print_exc=print_exc, format_exc=traceback.format_exc
    )


if __name__ == "__main__":
    run()
