"""A Spindle node of the demo's own: one process with three log directories on free ports.

It is started through the command line, as anyone would; its data lies under one directory that the
demo made and may therefore delete again.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

READY: Final = "Kafka Server started"
LOG_DIRECTORIES: Final = 3
_MARKER: Final = ".spindle-demo"
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.02
_LOG_TAIL_LINES: Final = 15


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class DemoLayout:
    """Where the demo keeps everything."""

    root: Path

    @property
    def log_directories(self) -> list[Path]:
        return [self.root / f"disk{number}" for number in range(1, LOG_DIRECTORIES + 1)]

    @property
    def properties(self) -> Path:
        return self.root / "server.properties"

    @property
    def server_log(self) -> Path:
        return self.root / "server.log"

    @property
    def spark_log(self) -> Path:
        return self.root / "spark.log"

    @property
    def pid_file(self) -> Path:
        return self.root / "node.pid"

    @property
    def delta_table(self) -> Path:
        return self.root / "delta" / "flights"

    def make_empty(self) -> None:
        """An empty directory of ours; the remains of an earlier demo are removed.

        Raises:
            DemoError: the directory holds something that is not a demo's.
        """
        if self.root.exists() and any(self.root.iterdir()):
            if not (self.root / _MARKER).is_file():
                raise DemoError(
                    f"{self.root} is not empty and was not made by the demo: "
                    "move it away, or choose another directory with --dir"
                )
            stop_left_over(self)
            shutil.rmtree(self.root)
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / _MARKER).write_text("Made by the demo, which deletes it when it runs again.\n")

    def remove(self) -> None:
        """Delete everything, if it is ours."""
        if (self.root / _MARKER).is_file():
            shutil.rmtree(self.root)


class DemoNode:
    """The node's process. It gets no signal from the terminal: only the demo stops it."""

    def __init__(self, layout: DemoLayout) -> None:
        self._layout = layout
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id, None before the start."""
        return None if self._process is None else self._process.pid

    def format(self) -> str:
        """Write the configuration, format the directories, return the cluster id.

        Raises:
            DemoError: a command failed.
        """
        self.port, controller_port = free_ports(2)
        self._layout.properties.write_text(
            server_properties(self._layout, self.port, controller_port)
        )
        cluster_id = _command("storage", "random-uuid").strip().splitlines()[-1]
        _command(
            "storage", "format", "-t", cluster_id, "-c", str(self._layout.properties),
            "--standalone",
        )  # fmt: skip
        return cluster_id

    def start(self) -> float:
        """Start the node and wait until it is ready; the seconds that took.

        Raises:
            DemoError: it ended, or did not get ready in time.
        """
        started = time.monotonic()
        with self._layout.server_log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(spindle_command()), "server", "start", str(self._layout.properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._layout.pid_file.write_text(f"{self._process.pid}\n")
        while READY not in self._log_text():
            if self._process.poll() is not None:
                raise DemoError(f"the node ended before it was ready:\n{self._log_tail()}")
            if time.monotonic() - started > _START_TIMEOUT_S:
                raise DemoError(
                    f"the node was not ready within {_START_TIMEOUT_S:.0f} s:\n{self._log_tail()}"
                )
            time.sleep(_POLL_S)
        return time.monotonic() - started

    def stop(self) -> None:
        """Stop the node and wait for its end; harmless when it does not run."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._layout.pid_file.unlink(missing_ok=True)

    def _log_text(self) -> str:
        return self._layout.server_log.read_text(errors="replace")

    def _log_tail(self) -> str:
        lines = self._log_text().splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join(f"  | {line}" for line in lines) or "  | (it wrote nothing)"


def server_properties(layout: DemoLayout, port: int, controller_port: int) -> str:
    """The configuration of a combined node that keeps its logs on three directories."""
    directories = ",".join(map(str, layout.log_directories))
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": directories,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def spindle_command() -> Path:
    """The `spindle` command of this interpreter's environment.

    Raises:
        DemoError: it is not there.
    """
    command = Path(sys.executable).with_name("spindle")
    if not command.is_file():
        raise DemoError(f"there is no command {command}: run `make setup`")
    return command


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [each.getsockname()[1] for each in sockets]


def stop_left_over(layout: DemoLayout) -> None:
    """Stop the node that an earlier demo was told to leave running.

    Raises:
        DemoError: it does not end.
    """
    pid = _left_over_pid(layout)
    if pid is None:
        return
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _left_over_pid(layout) is not None:
        if time.monotonic() > deadline:
            raise DemoError(f"the node of an earlier demo (process {pid}) does not stop")
        time.sleep(_POLL_S)


def _left_over_pid(layout: DemoLayout) -> int | None:
    """The process of the pid file, if that still is the node that was started with our file."""
    try:
        pid = int(layout.pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if str(layout.properties).encode() in command.split(b"\x00") else None


def _command(*arguments: str) -> str:
    done = subprocess.run(
        [str(spindle_command()), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join(("spindle", *arguments))
        raise DemoError(f"{words} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
