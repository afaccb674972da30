"""A broker or controller of a cluster on this machine."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spindle.common.text import error_text
from spindle.local.errors import ClusterError
from spindle.local.supervisor_process import REQUEST_S, SupervisorProcess

STOP_S: Final = 60.0
_TAIL_LINES: Final = 30


class NodeHandle:
    """A node of a cluster, through all of its processes.

    Attributes:
        node_id: `node.id`.
        is_broker, is_controller: its roles.
        bootstrap_servers: host and port for clients; None for a node that is no broker.
        controller_address: host and port of its controller listener, None without the role.
        metrics_url: of its metrics for Prometheus.
        log_dirs: its log directories, in the order of `log.dirs`.
        log_file: the log, over all lives of the process.
        property_file: its configuration.

    Args:
        supervisor: starts the process of the node.
        described: the node, as the supervisor describes it.
        start_timeout_s: limit for a start.
    """

    def __init__(
        self, supervisor: SupervisorProcess, described: Mapping[str, Any], start_timeout_s: float
    ) -> None:
        self.node_id: int = described["node_id"]
        self.is_broker: bool = described["is_broker"]
        self.is_controller: bool = described["is_controller"]
        self.bootstrap_servers: str | None = described["client_address"]
        self.controller_address: str | None = described["controller_address"]
        self.metrics_url = f"http://{described['metrics_address']}/metrics"
        self.log_dirs: Sequence[Path] = [Path(path) for path in described["log_dirs"]]
        self.log_file = Path(described["log_file"])
        self.property_file = Path(described["property_file"])
        self._supervisor = supervisor
        self._start_timeout_s = start_timeout_s

    def __repr__(self) -> str:
        return f"NodeHandle({self.node_id})"

    @property
    def is_running(self) -> bool:
        """True while the process lives."""
        return self.pid is not None

    @property
    def pid(self) -> int | None:
        """The id of the process; None if the node does not run."""
        pid = self._supervisor.ask("state", REQUEST_S, node=self.node_id)["pid"]
        return None if pid is None else int(pid)

    # -- life

    def start(self) -> None:
        """Start the node that was stopped or killed, and return when it serves.

        Raises:
            ClusterError: it runs already, or did not start; then with the end of its log.
        """
        self.start_at_once()
        await_ready(self._supervisor, [self], self._start_timeout_s)

    def start_at_once(self, known_brokers: Sequence[int] | None = None) -> None:
        """Start the node and do not wait.

        Args:
            known_brokers: the brokers that the node must know before it counts as serving; itself
                by default.

        Raises:
            ClusterError: it runs already.
        """
        if known_brokers is None:
            known_brokers = [self.node_id] if self.is_broker else []
        self._supervisor.ask(
            "start",
            REQUEST_S,
            node=self.node_id,
            brokers=known_brokers,
            options=self._runner_options(),
        )

    def _runner_options(self) -> dict[str, Any]:
        """Return the arguments of the function that runs the node, as JSON values."""
        return {}

    def stop(self) -> None:
        """Stop the node in order, and return when its process has ended.

        Raises:
            ClusterError: it does not run.
            TimeoutError: it does not end within 60 s.
        """
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process (SIGKILL), and return when it has ended.

        Raises:
            ClusterError: it does not run.
        """
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        self._send_signal(number)
        self.wait_until_ended(STOP_S)

    def _send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process.

        Raises:
            ClusterError: it does not run.
        """
        self._supervisor.ask("signal", REQUEST_S, node=self.node_id, signal=number.name)

    def restart(self) -> None:
        """Stop the node if it runs, start it again, and return when it serves.

        Raises:
            ClusterError: it did not start, with the end of its log.
            TimeoutError: it does not end within 60 s.
        """
        if self.is_running:
            self.stop()
        self.start()

    def wait_until_ended(self, timeout_s: float = STOP_S) -> int:
        """Return the exit code when the process has ended, or the negative number of a signal.

        Raises:
            TimeoutError: it has not ended in time.
        """
        try:
            reply = self._supervisor.ask("await-end", timeout_s, node=self.node_id)
        except TimeoutError:
            raise TimeoutError(f"node {self.node_id} has not ended after {timeout_s:g} s") from None
        return int(reply["code"] or 0)

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log."""
        try:
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return error_text(error)


def await_ready(
    supervisor: SupervisorProcess, nodes: Sequence[NodeHandle], timeout_s: float
) -> None:
    """Return when all these nodes serve.

    Raises:
        ClusterError: one of them does not, with the end of its log.
    """
    ids = [node.node_id for node in nodes]
    try:
        reply = supervisor.ask("await-ready", timeout_s, nodes=ids)
    except TimeoutError:
        tails = "\n".join(f"node {n.node_id}: {n.log_file}\n{n.log_tail()}" for n in nodes)
        raise ClusterError(
            f"after {timeout_s:g} s the cluster does not serve; the logs end with:\n{tails}"
        ) from None
    if "ended" in reply:
        node = nodes[ids.index(reply["ended"])]
        raise ClusterError(
            f"node {node.node_id} did not start ({_ending(reply['code'])}); the end of its log "
            f"{node.log_file}:\n{node.log_tail()}"
        )


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
