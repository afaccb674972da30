"""The node under test in its own process, with checks of its log and its memory."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from verification.fuzz.unloaded_clock import UnloadedClock
from verification.fuzz.values import CLUSTER_ID
from verification.fuzz.wire import Finding
from verification.native_lanes import lane_properties

_READY: Final = "Kafka Server started"
_START_S: Final = 60.0
_STOP_S: Final = 40.0
_TROUBLE: Final = re.compile(r"Traceback|\] (ERROR|CRITICAL) |never awaited|never retrieved")
_CONTEXT_LINES: Final = 40
_MUTATE: Final = "from verification.fuzz import mutants; "
_RUN: Final = "import sys; from spindle.cli.main import main; sys.exit(main())"


class TargetNode:
    """A combined node on free ports of the loopback interface.

    Args:
        folder: an empty folder for its directories and its log.
        overrides: further keys of the property file.
        client_listener: the name of the listener for clients.
        format_options: further options of `spindle storage format`.
        mutant: the name of a function of `mutants` that the process calls first.
    """

    def __init__(
        self,
        folder: Path,
        overrides: dict[str, str] | None = None,
        *,
        client_listener: str = "PLAINTEXT",
        format_options: Sequence[str] = (),
        mutant: str | None = None,
    ) -> None:
        self.host = "127.0.0.1"
        self.port, self.controller_port = _free_ports()
        self.output = folder / "node.log"
        self._properties = folder / "server.properties"
        keys = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"{client_listener}://127.0.0.1:{self.port},"
            f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(str(folder / f"disk{number}") for number in (1, 2)),
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "100",
            "log.cleaner.backoff.ms": "200",
            "log.retention.check.interval.ms": "500",
            "log.retention.ms": "-1",  # most records of the fuzzer say that they are old
            **lane_properties(),
            **(overrides or {}),
        }
        text = "".join(f"{key}={value}\n" for key, value in keys.items())
        self._properties.write_text(text)
        self._format_options = format_options
        self._run = f"{_MUTATE}mutants.{mutant}(); {_RUN}" if mutant else _RUN
        self._process: subprocess.Popen[bytes] | None = None
        self._read_to = 0

    def start(self) -> None:
        """Start the node and wait until it is ready.

        Raises:
            Finding: the node does not start.
        """
        file = str(self._properties)
        command = [sys.executable, "-c", _RUN, "storage", "format", "-t", CLUSTER_ID, "-c", file]
        command += self._format_options
        formatted = subprocess.run(command, capture_output=True, text=True)
        if formatted.returncode:
            raise Finding(f"the directories cannot be formatted: {formatted.stderr}")
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._run, "server", "start", file],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        process = self._process

        def is_ready_or_ended() -> bool:
            is_ready = _READY in self.output.read_text(errors="replace")
            return is_ready or process.poll() is not None

        is_in_time = UnloadedClock([process.pid]).wait_until(
            is_ready_or_ended, _START_S, time.sleep
        )
        if not is_in_time or process.poll() is not None:
            raise Finding(f"the node did not start:\n{self.output.read_text()[-3000:]}")

    def stop(self) -> None:
        """Stop the node in order; the time in which the machine is busy does not count.

        Raises:
            Finding: it does not stop.
        """
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        has_ended = UnloadedClock([process.pid]).wait_until(
            lambda: process.poll() is not None, _STOP_S, time.sleep
        )
        if not has_ended:
            process.kill()
            process.wait()
            raise Finding(f"the node did not stop within {_STOP_S:.0f} s")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def rss_bytes(self) -> int:
        """Return the resident memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(match[1]) * 1024 if match else 0

    def cpu_s(self) -> float:
        """Return the CPU time that the process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def check(self) -> None:
        """Check that the process runs, and that its log has no line that a request must not cause.

        Raises:
            Finding: the process has ended, or its log has such a line.
        """
        assert self._process is not None
        code = self._process.poll()
        with self.output.open("rb") as log:
            log.seek(self._read_to)
            news = log.read().decode(errors="replace")
        complete = news.rfind("\n") + 1
        lines = news[:complete].splitlines()
        for number, line in enumerate(lines):
            if _TROUBLE.search(line):
                start = max(0, number - 3)
                shown = "\n".join(lines[start : start + _CONTEXT_LINES])
                self._read_to += len(news.encode())
                raise Finding(f"the node logged:\n{shown}")
        self._read_to += len(news[:complete].encode())
        if code is not None:
            raise Finding(f"the node ended with code {code}:\n" + "\n".join(lines[-20:]))


def _free_ports() -> tuple[int, int]:
    sockets = [socket.socket() for _ in range(2)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        first, second = (int(one.getsockname()[1]) for one in sockets)
        return first, second
    finally:
        for one in sockets:
            one.close()
