"""The JVM that PySpark starts for a session."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ended_with_a_failed_start() -> Iterator[None]:
    """Kill the JVM that PySpark starts in this block if the block fails, as after Ctrl-C.

    PySpark removes the folder in which the JVM is about to write its port, so this JVM would report
    a missing file, and then run forever.
    """
    import pyspark.java_gateway
    from pyspark import SparkContext

    started: list[subprocess.Popen[bytes]] = []
    launcher: Any = pyspark.java_gateway
    popen = launcher.Popen

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **named))
        return started[-1]

    launcher.Popen = start
    try:
        yield
    except BaseException:
        # With a gateway, the next session uses this JVM, which ends with the process.
        if SparkContext._gateway is None:
            for process in started:
                process.kill()
        raise
    finally:
        launcher.Popen = popen
