"""The process that forks the Python workers of Spark's tasks (`spark.python.daemon.module`).

It is PySpark's own daemon with two differences. A worker says nothing when Spark has closed its
socket. Spark does so as soon as it has enough rows (`show`, `limit`), and PySpark's daemon then
writes a BrokenPipeError with its traceback between the lines of the program. And a worker does not
search its modules for garbage after each task, which PySpark's daemon asks for: with numba that
takes longer than a short task.
"""

import gc
import sys
from typing import Any

from pyspark import daemon

_worker = daemon.worker
_frozen_modules: set[int] = set()
"""Numbers of loaded modules at which all objects were taken out of garbage collection."""


def quiet_worker(sock: Any, authenticated: bool) -> int:
    """Run one worker; return its exit code, 1 if Spark closed the socket before the end."""
    try:
        code = int(_worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        return 1
    if len(sys.modules) not in _frozen_modules:
        _frozen_modules.add(len(sys.modules))
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    daemon.worker = quiet_worker
    daemon.manager()
