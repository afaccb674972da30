"""A node under test, of either program.

`Node` owns the property file, ports, log directories and process of one node; `KafkaNode` and
`SpindleNode` differ only in the commands that format and start it.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import psutil

from peers.java_tools import QUICK_JVM, java_command
from peers.paths import JAVA_SOURCES, RELEASE, SPINDLE, PeerUnavailable, kafka_release
from peers.ports import free_ports

READY = "Kafka Server started"
START_LIMIT_S = 120.0
STOP_LIMIT_S = 30.0

TEST_DEFAULTS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
}


class NodeFailed(RuntimeError):
    """The node failed to start, format or stop; carries the end of its output."""


def random_uuid() -> str:
    """Return an id as Kafka prints it: 16 random bytes in URL-safe base64, no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


@dataclass
class Node(ABC):
    """A node in `folder`, a combined broker and controller unless `roles` says otherwise.

    `overrides` are further keys of the property file. `log_dirs` may name the directories of
    another node, so that one program continues on the other's disks. `voters` are the nodes of the
    controller quorum, if this node is not the only one; set them before `write_properties`.
    `secure_listeners` are further listeners for clients: security protocol by name; `overrides`
    have their keys and users. `release` is that of Apache Kafka, `kafka_release()` if it is empty.
    """

    folder: Path
    directory_count: int = 3
    overrides: dict[str, str] = field(default_factory=dict)
    log_dirs: list[Path] = field(default_factory=list)
    cluster_id: str = field(default_factory=random_uuid)
    node_id: int = 1
    jvm_options: tuple[str, ...] = ()
    roles: tuple[str, ...] = ("broker", "controller")
    voters: Sequence[Node] = ()
    secure_listeners: Mapping[str, str] = field(default_factory=dict)
    release: str = ""

    kind = "node"

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.controller_port, *ports = free_ports(2 + len(self.secure_listeners))
        self._secure_ports = dict(zip(self.secure_listeners, ports, strict=True))
        if not self.log_dirs:
            self.log_dirs = [self.folder / f"d{i + 1}" for i in range(self.directory_count)]
        self.properties_file = self.folder / "server.properties"
        self.output_file = self.folder / "output.txt"
        self.process: subprocess.Popen[bytes] | None = None
        self.write_properties()

    @property
    def bootstrap(self) -> str:
        """Address for clients."""
        return f"127.0.0.1:{self.port}"

    def secure_bootstrap(self, listener: str) -> str:
        """Address for clients at one of the `secure_listeners`."""
        return f"127.0.0.1:{self._secure_ports[listener]}"

    @property
    def controller(self) -> str:
        """Address of the controller listener."""
        return f"127.0.0.1:{self.controller_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the node is not running"
        return self.process.pid

    @abstractmethod
    def format_command(self) -> list[str]:
        """Return the command that formats the log directories."""

    @abstractmethod
    def start_command(self) -> list[str]:
        """Return the command that runs the node in the foreground."""

    def properties(self) -> dict[str, str]:
        """Return the contents of the property file."""
        listeners = {
            "broker": ",".join(
                [
                    f"PLAINTEXT://{self.bootstrap}",
                    *(f"{name}://{self.secure_bootstrap(name)}" for name in self.secure_listeners),
                ]
            ),
            "controller": f"CONTROLLER://{self.controller}",
        }
        voters = self.voters or [self]
        return {
            "process.roles": ",".join(self.roles),
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(f"{v.node_id}@{v.controller}" for v in voters),
            "listeners": ",".join(listeners[role] for role in self.roles),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(
                [
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                    *(f"{name}:{protocol}" for name, protocol in self.secure_listeners.items()),
                ]
            ),
            "log.dirs": ",".join(str(path) for path in self.log_dirs),
            **TEST_DEFAULTS,
            **self.overrides,
        }

    def write_properties(self) -> None:
        """Write the property file again, after a change of `overrides` or `log_dirs`."""
        text = "".join(f"{key}={value}\n" for key, value in self.properties().items() if value)
        self.properties_file.write_text(text)

    def format(self, *extra: str) -> subprocess.CompletedProcess[str]:
        """Format the directories; raise NodeFailed if the command fails."""
        done = subprocess.run(
            [*self.format_command(), *extra], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise NodeFailed(f"{self.kind} format: {done.stdout}{done.stderr}")
        return done

    def start(self, wait: bool = True) -> None:
        """Start the process and wait for the ready line."""
        assert self.process is None, "the node runs already"
        with self.output_file.open("ab") as output:
            self._output_start = output.tell()
            self.process = subprocess.Popen(
                self.start_command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self, limit_s: float = START_LIMIT_S) -> None:
        """Wait for the ready line of the present start; raise NodeFailed if it does not come."""
        assert self.process is not None
        deadline = time.monotonic() + limit_s
        while READY not in self.output():
            if self.process.poll() is not None:
                code, self.process = self.process.returncode, None
                raise NodeFailed(f"{self.kind} ended with {code}:\n{self.output()[-4000:]}")
            if time.monotonic() > deadline:
                self.kill()
                raise NodeFailed(f"{self.kind} is not ready:\n{self.output()[-4000:]}")
            time.sleep(0.01)

    def output(self) -> str:
        """Return the output of the process since its last start."""
        with self.output_file.open("rb") as file:
            file.seek(self._output_start)
            return file.read().decode(errors="replace")

    def stop(self, limit_s: float = STOP_LIMIT_S) -> int:
        """Stop the process in order (SIGTERM) and return its exit code."""
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NodeFailed(f"{self.kind} did not stop within {limit_s} s") from None
        self.process = None
        return code

    def kill(self) -> None:
        """End the process as kill -9 does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self.process is not None and self.process.poll() is None

    def cpu_s(self) -> float:
        """Return the CPU time of the process so far, in seconds."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def rss_bytes(self) -> int:
        """Return the resident memory of the process in bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def __enter__(self) -> Node:
        self.format()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def remove(self) -> None:
        """Delete everything that the node wrote."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class KafkaNode(Node):
    """Apache Kafka."""

    kind = "kafka"

    def _java(self, *options: str) -> list[str]:
        return java_command(
            *options,
            f"-Dkafka.logs.dir={self.folder}",
            log4j=JAVA_SOURCES / "log4j2-server.properties",
            release=self.release,
        )

    def format_command(self) -> list[str]:
        return [
            *self._java(*QUICK_JVM),
            "kafka.tools.StorageTool",
            "format",
            "-t",
            self.cluster_id,
            "-c",
            str(self.properties_file),
        ]

    def start_command(self) -> list[str]:
        return [
            *self._java(*(self.jvm_options or QUICK_JVM)),
            "kafka.Kafka",
            str(self.properties_file),
        ]


class SpindleNode(Node):
    """Spindle; `executable` is the command of the virtual environment that runs the tests."""

    kind = "spindle"
    executable: ClassVar[Path] = SPINDLE

    def properties(self) -> dict[str, str]:
        """Return the property file; SPINDLE_TEST_LANE=1 switches native lanes on."""
        properties = super().properties()
        if os.environ.get("SPINDLE_TEST_LANE"):
            properties = {"spindle.native.lane.enable": "true", **properties}
        return properties

    def _spindle(self) -> str:
        if not self.executable.is_file():
            raise PeerUnavailable(f"the command {self.executable} is missing: run `make setup`")
        return str(self.executable)

    def format_command(self) -> list[str]:
        return [
            self._spindle(),
            "storage",
            "format",
            "-t",
            self.cluster_id,
            "-c",
            str(self.properties_file),
        ]

    def format(self, *extra: str) -> subprocess.CompletedProcess[str]:
        """Format the directories, with feature levels that an older neighbour knows, too."""
        if kafka_release() != RELEASE and "--release-version" not in extra:
            extra = (*extra, "--release-version", kafka_release())
        return super().format(*extra)

    def start_command(self) -> list[str]:
        return [self._spindle(), "server", "start", str(self.properties_file)]
