"""The process that forks the nodes of one cluster, watches them, and ends with its owner.

    python -m spindle.testing.cluster.supervisor CONTROL_FD HOME OWNER_PID

It has one thread and no event loop, so that it can fork. Requests come over a Unix socket, one for
each connection; a request that waits for a node is answered later. When the standard input closes
or the owner dies, the keeper kills its nodes and removes HOME, which holds all files of the cluster
unless its data are elsewhere.
"""

import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spindle.cli.failure import CommandFailed
from spindle.cli.up.folder import NodeFolder, make_cluster
from spindle.cli.up.layout import ClusterSpec
from spindle.cli.up.node_process import (
    BROKER_STOPPED,
    BROKER_STOPPED_WAS_LEADER,
    READY,
    NodeProcess,
)
from spindle.common.errors import ConfigError
from spindle.config.broker_keys import BROKER_KEYS
from spindle.config.broker_keys.spindle import METRICS_LISTENER
from spindle.config.node_warnings import is_known, unknown_key_warning
from spindle.testing.cluster.control import listen, read_line, send_error, send_result
from spindle.testing.faults.disk_faults import DiskFaults
from spindle.testing.faults.faulty_node import FaultyNode
from spindle.testing.faults.network_faults import NetworkFaults

HOST: Final = "127.0.0.1"


@dataclass(slots=True)
class _Life:
    """One process of a node.

    Attributes:
        exit_code: of the ended process, or the negative number of a signal.
    """

    process: NodeProcess
    started_s: float
    is_ready: bool = False
    exit_code: int | None = None
    ready_after_s: float = 0.0


@dataclass(slots=True)
class _Member:
    """A node through all of its lives."""

    folder: NodeFolder
    control_path: str
    life: _Life | None = None

    @property
    def running(self) -> _Life | None:
        return self.life if self.life is not None and self.life.exit_code is None else None


@dataclass(slots=True)
class _Waiter:
    """A connection that is answered when `condition` returns a result."""

    connection: socket.socket
    condition: Callable[[], Any]


@dataclass(slots=True)
class Keeper:
    """The nodes of a cluster.

    Attributes:
        home: the folder of the cluster, removed at the end.
    """

    control: socket.socket
    home: Path
    owner: int
    _members: dict[int, _Member] = field(default_factory=dict)
    _reserved: list[socket.socket] = field(default_factory=list)
    _waiters: list[_Waiter] = field(default_factory=list)
    _owner_fd: int | None = None
    _is_over: bool = False

    def run(self) -> None:
        """Serve until the owner closes the cluster or ends."""
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self._owner_fd = os.pidfd_open(self.owner)
        try:
            while not self._is_over and os.getppid() == self.owner:
                self._serve()
        finally:
            self._kill_all()
            shutil.rmtree(self.home, ignore_errors=True)

    def _serve(self) -> None:
        """Wait for the next event and handle it."""
        lives = {
            member.life.process.status_fd: member
            for member in self._members.values()
            if member.life is not None and member.life.exit_code is None
        }
        poll = select.poll()
        fds = [sys.stdin.fileno(), self.control.fileno(), *lives]
        fds += [waiter.connection.fileno() for waiter in self._waiters]
        fds += [] if self._owner_fd is None else [self._owner_fd]
        for fd in fds:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll():
            if fd in (sys.stdin.fileno(), self._owner_fd):
                self._is_over = True
            elif fd == self.control.fileno():
                self._accept()
            elif fd in lives:
                self._read_events(lives[fd])
            else:
                # A waiting client sends nothing more: it has given up.
                self._drop(fd)
        self._answer_waiters()

    def _drop(self, fd: int) -> None:
        for waiter in list(self._waiters):
            if waiter.connection.fileno() == fd:
                waiter.connection.close()
                self._waiters.remove(waiter)

    def _answer_waiters(self) -> None:
        for waiter in list(self._waiters):
            result = waiter.condition()
            if result is not None:
                self._waiters.remove(waiter)
                with waiter.connection, suppress(OSError):
                    send_result(waiter.connection, result)

    # -- requests

    def _accept(self) -> None:
        connection, _ = self.control.accept()
        keep_open = False
        try:
            line = read_line(connection)
            if line:
                keep_open = self._carry_out(connection, json.loads(line))
        except OSError:
            pass  # the owner has given up
        finally:
            if not keep_open:
                connection.close()

    def _carry_out(self, connection: socket.socket, request: dict[str, Any]) -> bool:
        """Carry out a request; return True if it is answered later."""
        commands: dict[str, Callable[[dict[str, Any]], Any]] = {
            "make": self._make,
            "start": self._start,
            "signal": self._signal,
            "state": self._state,
        }
        conditions: dict[str, Callable[[dict[str, Any]], Any]] = {
            "await-ready": self._ready,
            "await-end": self._ended,
        }
        name = request["do"]
        if name in conditions:
            self._waiters.append(_Waiter(connection, lambda: conditions[name](request)))
            return True
        try:
            result = commands[name](request)
        except (ConfigError, CommandFailed, OSError, _NotRunning) as error:
            send_error(connection, str(error))
        else:
            send_result(connection, result)
        return False

    def _make(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Format the directories of all nodes and return their descriptions."""
        node_overrides = {int(n): keys for n, keys in request["node_properties"].items()}
        for properties in (request["properties"], *node_overrides.values()):
            _refuse_unknown(properties)
        wishes = ClusterSpec(
            nodes=request["brokers"],
            dirs=request["directories"],
            controllers=request["controllers"],
            racks=request["racks"],
            with_metrics=True,
            overrides=request["properties"],
            node_overrides=node_overrides,
        )
        self._reserved = _reserve_ports(wishes.port_count)
        ports = [listener.getsockname()[1] for listener in self._reserved]
        for folder in make_cluster(wishes, Path(request["folder"]), ports):
            path = str(self.home / f"{folder.node_id}.sock")
            self._members[folder.node_id] = _Member(folder, path)
        return [_described(member) for member in self._members.values()]

    def _start(self, request: dict[str, Any]) -> bool:
        """Fork a node."""
        member = self._members[request["node"]]
        if member.running is not None:
            raise _NotRunning(f"node {request['node']} is running already")
        with suppress(FileNotFoundError):
            os.unlink(member.control_path)
        control = listen(member.control_path)
        node = FaultyNode(
            control,
            os.getpid(),
            {path: DiskFaults.from_json(disk) for path, disk in request["disks"].items()},
            NetworkFaults.from_json(request["network"]),
            {
                endpoint.port: number
                for number, member in self._members.items()
                for endpoint in member.folder.config.listeners
            },
        )
        with control:
            process = NodeProcess(
                member.folder.config,
                request["brokers"],
                member.folder.log_file,
                node.run,
                self._own_fds(),
            )
        member.life = _Life(process, time.monotonic())
        return True

    def _own_fds(self) -> list[int]:
        """Return the descriptors that a child must not keep open."""
        sockets = [self.control, *self._reserved, *(waiter.connection for waiter in self._waiters)]
        fds = [listener.fileno() for listener in sockets]
        for member in self._members.values():
            if member.running is not None:
                fds += member.running.process.fds
        return fds if self._owner_fd is None else [*fds, self._owner_fd]

    def _signal(self, request: dict[str, Any]) -> bool:
        """Send a signal to a node. A pause has begun when this returns."""
        life = self._members[request["node"]].running
        if life is None:
            raise _NotRunning(f"node {request['node']} does not run")
        number = signal.Signals[request["signal"]]
        life.process.kill(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, life.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return True

    def _ready(self, request: dict[str, Any]) -> Any:
        """Answer when all these nodes are ready, or one of them has ended."""
        members = [self._members[number] for number in request["nodes"]]
        lives = [member.life for member in members if member.life is not None]
        for member in members:
            if member.life is not None and member.life.exit_code is not None:
                return {"ended": member.folder.node_id, "code": member.life.exit_code}
        if all(life.is_ready for life in lives):
            return {"after_s": max(life.ready_after_s for life in lives)}
        return None

    def _state(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return whether the node runs, and how it has ended."""
        life = self._members[request["node"]].life
        return {
            "code": None if life is None else life.exit_code,
            "runs": life is not None and life.exit_code is None,
        }

    def _ended(self, request: dict[str, Any]) -> Any:
        """Answer when the node has ended."""
        state = self._state(request)
        return None if state["runs"] else state

    # -- nodes

    def _read_events(self, member: _Member) -> None:
        """Read the signs of a node: it serves, it has left the cluster, or it has ended."""
        life = member.life
        assert life is not None
        news = os.read(life.process.status_fd, 64)
        if READY in news:
            life.is_ready = True
            life.ready_after_s = time.monotonic() - life.started_s
        if BROKER_STOPPED in news or BROKER_STOPPED_WAS_LEADER in news:
            # A node that is stopped alone waits for no other node.
            life.process.allow_exit()
        if not news:
            life.exit_code = life.process.wait()

    def _kill_all(self) -> None:
        running = [m.running for m in self._members.values() if m.running is not None]
        for life in running:
            life.process.kill(signal.SIGKILL)
        for life in running:
            life.exit_code = life.process.wait()


class _NotRunning(Exception):
    """A node does not run, or runs where it should not."""


def _described(member: _Member) -> dict[str, Any]:
    """Return what the owner knows of a node."""
    folder, config = member.folder, member.folder.config
    metrics = config.optional_text(METRICS_LISTENER)
    return {
        "node_id": folder.node_id,
        "is_broker": config.is_broker,
        "is_controller": config.is_controller,
        "client_address": folder.client_address,
        "controller_address": folder.controller_address,
        "metrics_address": metrics,
        "log_dirs": [os.path.abspath(path) for path in config.log_dirs],
        "property_file": str(folder.property_file),
        "log_file": str(folder.log_file),
        "control": member.control_path,
        "warnings": list(config.warnings),
    }


def _refuse_unknown(properties: dict[str, str]) -> None:
    """Raise ConfigError if a key does not exist: a test would test something else."""
    for name in properties:
        if not is_known(name):
            raise ConfigError(unknown_key_warning(name, BROKER_KEYS))


def _reserve_ports(count: int) -> list[socket.socket]:
    """Return sockets that are bound to free ports and do not listen.

    While they are open, the system gives their ports to no one, and a node can listen there,
    because both sides reuse the address. So clusters that start at the same time never meet.
    """
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            reserved = stack.enter_context(socket.socket())
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((HOST, 0))
            sockets.append(reserved)
        stack.pop_all()
        return sockets


def main() -> None:
    """Run the keeper of the cluster that the arguments name."""
    control_fd, home, owner = sys.argv[1:]
    # The owner handles Ctrl-C and closes the cluster.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Load what all nodes need once, before the first fork.
    import spindle.runtime.metrics.node_metrics  # noqa: F401

    Keeper(socket.socket(fileno=int(control_fd)), Path(home), int(owner)).run()


if __name__ == "__main__":
    main()
