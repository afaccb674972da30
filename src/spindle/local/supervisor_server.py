"""The process that forks the nodes of a `spindle.local.Cluster`, and ends with its owner.

    python -c "..." CONTROL_FD HOME OWNER_PID RUNNER

It has one thread and no event loop, so that it can fork, whatever threads the owner has. Requests
come over a Unix socket, one for each connection; a request that waits for a node is answered later.
When the standard input closes or the owner dies, it kills its nodes and removes HOME, which holds
all files of the cluster unless its data are elsewhere. RUNNER (`module:function`) is the
`NodeRunner` of the nodes.
"""

import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from spindle.common.errors import ConfigError
from spindle.common.text import error_text
from spindle.config.broker_keys.spindle import METRICS_LISTENER
from spindle.config.node_warnings import is_known, unknown_key_warning
from spindle.local.cluster_spec import ClusterSpec
from spindle.local.control_socket import read_line, send_error, send_result
from spindle.local.errors import ClusterError, LocalError
from spindle.local.node_folder import NodeFolder, make_cluster
from spindle.local.node_process import RunNode, die_with
from spindle.local.supervisor import NodeRun, Supervisor
from spindle.local.tcp_ports import reserve_ports


@dataclass(frozen=True, slots=True)
class NodeStart:
    """The start of a node.

    Attributes:
        home: the folder of the supervisor.
        ports: of the listeners of all nodes; values are node ids.
        options: JSON values for the runner, from the owner.
    """

    node_id: int
    home: Path
    ports: Mapping[int, int]
    options: Mapping[str, Any]


NodeRunner = Callable[[NodeStart], AbstractContextManager[RunNode]]
"""Returns what a forked process runs. The context ends in the parent, after the fork."""


@contextmanager
def plain_runner(start: NodeStart) -> Iterator[RunNode]:
    """Run nodes as `spindle server start` does. They die with the supervisor."""
    supervisor = os.getpid()

    def run(config: Any, on_ready: Any) -> int:
        from spindle.runtime.process import run_node

        die_with(supervisor)
        return run_node(config, on_ready)

    yield run


@dataclass(slots=True)
class _Waiter:
    """A connection that is answered when `condition` returns a result."""

    connection: socket.socket
    condition: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of a request, or its error."""

    result: Any = None
    error: str | None = None

    def send(self, connection: socket.socket) -> None:
        if self.error is None:
            send_result(connection, self.result)
        else:
            send_error(connection, self.error)


def _outcome(carry_out: Callable[[], Any]) -> _Outcome:
    """Call a function. No failure of a request ends the process, and with it all nodes."""
    try:
        return _Outcome(carry_out())
    except (ConfigError, LocalError, OSError) as error:
        return _Outcome(error=error_text(error))
    except Exception as error:  # noqa: BLE001 - a mistake in the request, or a bug
        traceback.print_exc()
        return _Outcome(error=f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class SupervisorServer:
    """Serves the owner of a cluster.

    Attributes:
        control: the listening socket.
        home: the folder of the cluster, removed at the end.
        owner: process id.
    """

    control: socket.socket
    home: Path
    owner: int
    runner: NodeRunner
    _supervisor: Supervisor = field(default_factory=Supervisor)
    _folders: dict[int, NodeFolder] = field(default_factory=dict)
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
            self._supervisor.kill()
            shutil.rmtree(self.home, ignore_errors=True)

    def _serve(self) -> None:
        """Wait for the next event and handle it."""
        nodes = self._supervisor.status_fds
        poll = select.poll()
        fds = [sys.stdin.fileno(), self.control.fileno(), *nodes]
        fds += [waiter.connection.fileno() for waiter in self._waiters]
        fds += [] if self._owner_fd is None else [self._owner_fd]
        for fd in fds:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll():
            if fd in (sys.stdin.fileno(), self._owner_fd):
                self._is_over = True
            elif fd == self.control.fileno():
                self._accept()
            elif fd in nodes:
                self._supervisor.read(nodes[fd])
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
            answer = _outcome(waiter.condition)
            if answer.result is not None or answer.error is not None:
                self._waiters.remove(waiter)
                with waiter.connection, suppress(OSError):
                    answer.send(waiter.connection)

    # -- requests

    def _accept(self) -> None:
        connection, _ = self.control.accept()
        keep_open = False
        try:
            line = read_line(connection)
            if line:
                keep_open = self._carry_out(connection, line)
        except OSError:
            pass  # the owner has given up
        finally:
            if not keep_open:
                connection.close()

    def _carry_out(self, connection: socket.socket, line: bytes) -> bool:
        """Carry out a request; return True if it is answered later."""
        answer = _outcome(lambda: json.loads(line))
        request = answer.result
        if not isinstance(request, dict):
            send_error(connection, answer.error or "a request is an object")
            return False
        commands: dict[str, Callable[[dict[str, Any]], Any]] = {
            "make": self._make,
            "start": self._start,
            "signal": self._signal,
            "stop": self._stop,
            "state": self._state,
        }
        conditions: dict[str, Callable[[dict[str, Any]], Any]] = {
            "await-ready": self._ready,
            "await-end": self._ended,
        }
        name = request.get("do", "")
        if name in conditions:
            self._waiters.append(_Waiter(connection, lambda: conditions[name](request)))
            return True
        _outcome(lambda: commands[name](request)).send(connection)
        return False

    def _make(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Format the directories of all nodes and return their descriptions."""
        node_overrides = {int(n): keys for n, keys in request["node_properties"].items()}
        for properties in (request["properties"], *node_overrides.values()):
            _refuse_unknown(properties)
        spec = ClusterSpec(
            nodes=request["brokers"],
            dirs=request["directories"],
            controllers=request["controllers"],
            racks=request["racks"],
            with_metrics=True,
            overrides=request["properties"],
            node_overrides=node_overrides,
        )
        self._reserved = reserve_ports(spec.port_count)
        ports = [listener.getsockname()[1] for listener in self._reserved]
        for folder in make_cluster(spec, Path(request["folder"]), ports):
            self._folders[folder.node_id] = folder
        return [_described(folder) for folder in self._folders.values()]

    def _start(self, request: dict[str, Any]) -> bool:
        """Fork a node."""
        node_id = request["node"]
        if node_id in self._supervisor.running:
            raise ClusterError(f"node {node_id} is running already")
        ports = {
            endpoint.port: number
            for number, folder in self._folders.items()
            for endpoint in folder.config.listeners
        }
        with self.runner(NodeStart(node_id, self.home, ports, request["options"])) as run_node:
            folder = self._folders[node_id]
            self._supervisor.start(folder, request["brokers"], run_node, self._own_fds())
        return True

    def _own_fds(self) -> list[int]:
        """Return the descriptors that a child must not keep open."""
        sockets = [self.control, *self._reserved, *(waiter.connection for waiter in self._waiters)]
        fds = [listener.fileno() for listener in sockets]
        return fds if self._owner_fd is None else [*fds, self._owner_fd]

    def _run(self, request: dict[str, Any]) -> NodeRun | None:
        """Return the last process of the node of a request; None if it was never started."""
        return self._supervisor.runs.get(request["node"])

    def _signal(self, request: dict[str, Any]) -> bool:
        """Send a signal to a node. A pause has begun when this returns."""
        run = self._run(request)
        if run is None or run.exit_code is not None:
            raise ClusterError(f"node {request['node']} does not run")
        number = signal.Signals[request["signal"]]
        run.process.kill(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, run.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return True

    def _stop(self, request: dict[str, Any]) -> list[int]:
        """Ask all nodes to stop in their order, and return those that run."""
        running = list(self._supervisor.running)
        self._supervisor.request_stop()
        return running

    def _ready(self, request: dict[str, Any]) -> Any:
        """Answer when all these nodes are ready, or one of them has ended."""
        runs = [self._supervisor.runs[number] for number in request["nodes"]]
        for run in runs:
            if run.exit_code is not None:
                return {"ended": run.folder.node_id, "code": run.exit_code}
        if all(run.is_ready for run in runs):
            return {"after_s": max(run.ready_after_s for run in runs)}
        return None

    def _state(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return whether the node runs, and its exit code."""
        run = self._run(request)
        is_running = run is not None and run.exit_code is None
        return {
            "code": None if run is None else run.exit_code,
            "runs": is_running,
            "pid": run.process.pid if run is not None and is_running else None,
        }

    def _ended(self, request: dict[str, Any]) -> Any:
        """Answer when the node has ended."""
        state = self._state(request)
        return None if state["runs"] else state


def _described(folder: NodeFolder) -> dict[str, Any]:
    """Return what the owner knows of a node."""
    config = folder.config
    return {
        "node_id": folder.node_id,
        "is_broker": config.is_broker,
        "is_controller": config.is_controller,
        "client_address": folder.client_address,
        "controller_address": folder.controller_address,
        "metrics_address": config.optional_text(METRICS_LISTENER),
        "log_dirs": [os.path.abspath(path) for path in config.log_dirs],
        "property_file": str(folder.property_file),
        "log_file": str(folder.log_file),
    }


def _refuse_unknown(properties: dict[str, str]) -> None:
    """Raise ConfigError for an unknown key, which would have no effect."""
    for name in properties:
        if not is_known(name):
            raise ConfigError(unknown_key_warning(name))


def main() -> None:
    """Serve the owner that the arguments name."""
    control_fd, home, owner, runner = sys.argv[1:]
    # The owner handles Ctrl-C and closes the cluster.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Load what all nodes need once, before the first fork.
    import spindle.runtime.metrics.node_metrics
    import spindle.runtime.process  # noqa: F401

    module, _, name = runner.partition(":")
    node_runner: NodeRunner = getattr(import_module(module), name)
    control = socket.socket(fileno=int(control_fd))
    SupervisorServer(control, Path(home), int(owner), node_runner).run()
