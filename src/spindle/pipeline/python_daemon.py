"""The process that forks the Python workers of Spark's tasks (`spark.python.daemon.module`).

It is PySpark's own daemon. The one difference: a worker says nothing when Spark has closed its
socket. Spark does so as soon as it has enough rows (`show`, `limit`), and PySpark's daemon then
writes a BrokenPipeError with its traceback between the lines of the program.
"""

from typing import Any

from pyspark import daemon

_worker = daemon.worker


def quiet_worker(sock: Any, authenticated: bool) -> int:
    """Run one worker; return its exit code, 1 if Spark closed the socket before the end."""
    try:
        return int(_worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        return 1


if __name__ == "__main__":
    daemon.worker = quiet_worker
    daemon.manager()
