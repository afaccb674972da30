"""The node of the demo: one process with three log directories on free ports.

It is started through the command line. Its data lies in one directory that the demo created, so the
demo may delete it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spindle.local.cluster_spec import LOG_FILE, PROPERTY_FILE, ClusterSpec
from spindle.local.errors import LocalError
from spindle.local.node_folder import bootstrap_servers, cluster_id, make_cluster
from spindle.local.tcp_ports import free_ports

READY: Final = "Kafka Server started"
LOG_DIRECTORIES: Final = 3
_MARKER: Final = ".spindle-demo"
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.02
_LOG_TAIL_LINES: Final = 15


class DemoError(Exception):
    """The demo cannot continue; the text names the cause and a remedy."""


@dataclass(frozen=True, slots=True)
class DemoLayout:
    """The paths of the demo's files."""

    root: Path

    @property
    def log_directories(self) -> list[Path]:
        return [self.root / f"disk-{number}" for number in range(1, LOG_DIRECTORIES + 1)]

    @property
    def properties(self) -> Path:
        return self.root / PROPERTY_FILE

    @property
    def server_log(self) -> Path:
        return self.root / LOG_FILE

    @property
    def spark_log(self) -> Path:
        return self.root / "spark.log"

    @property
    def pid_file(self) -> Path:
        return self.root / "node.pid"

    @property
    def delta_table(self) -> Path:
        return self.root / "delta" / "flights"

    @property
    def cluster(self) -> Path:
        """The folder of the second half's brokers."""
        return self.root / "cluster"

    @property
    def cluster_delta_table(self) -> Path:
        return self.root / "delta" / "flights-after-the-failure"

    def make_empty(self) -> None:
        """Create an empty directory; remove the files of an earlier demo.

        Raises:
            DemoError: the directory has files that no demo made.
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
        """Delete the directory if a demo made it."""
        if (self.root / _MARKER).is_file():
            shutil.rmtree(self.root)


class DemoNode:
    """The process of the node. It gets no signal from the terminal: only the demo stops it."""

    def __init__(self, layout: DemoLayout) -> None:
        self._layout = layout
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return self._address

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id, None before the start."""
        return None if self._process is None else self._process.pid

    def format(self) -> str:
        """Write the configuration, format the directories and return the cluster id.

        Raises:
            DemoError: the directories cannot be formatted.
        """
        spec = ClusterSpec(dirs=LOG_DIRECTORIES)
        try:
            nodes = make_cluster(spec, self._layout.root, free_ports(spec.port_count))
        except LocalError as error:
            raise DemoError(str(error)) from error
        self._address = bootstrap_servers(nodes)
        return cluster_id(nodes)

    def start(self) -> float:
        """Start the node, wait until it is ready, and return the seconds that this took.

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
        """Stop the node and wait for its end; do nothing if it does not run."""
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


def spindle_command() -> Path:
    """Return the path of the `spindle` command of this interpreter's environment.

    Raises:
        DemoError: there is no such command.
    """
    command = Path(sys.executable).with_name("spindle")
    if not command.is_file():
        raise DemoError(f"there is no command {command}: run `make setup`")
    return command


def stop_left_over(layout: DemoLayout) -> None:
    """Stop the node that an earlier demo left running with `--keep`.

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
    """Return the process id in the pid file if it still is the node of this demo, else None."""
    try:
        pid = int(layout.pid_file.read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if str(layout.properties).encode() in command.split(b"\x00") else None
