"""A broker or controller of a cluster on this machine."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spindle.local.cluster import Cluster

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
    """

    def __init__(self, cluster: "Cluster", described: Mapping[str, Any]) -> None:
        self.node_id: int = described["node_id"]
        self.is_broker: bool = described["is_broker"]
        self.is_controller: bool = described["is_controller"]
        self.bootstrap_servers: str | None = described["client_address"]
        self.controller_address: str | None = described["controller_address"]
        self.metrics_url = f"http://{described['metrics_address']}/metrics"
        self.log_dirs: Sequence[Path] = [Path(path) for path in described["log_dirs"]]
        self.log_file = Path(described["log_file"])
        self.property_file = Path(described["property_file"])
        self._cluster = cluster

    def __repr__(self) -> str:
        return f"NodeHandle({self.node_id})"

    @property
    def is_running(self) -> bool:
        """True while the process lives."""
        return self.pid is not None

    @property
    def pid(self) -> int | None:
        """The id of the process; None if the node does not run."""
        return self._cluster.pid_of(self)

    # -- life

    def start(self) -> None:
        """Start the node that was stopped or killed, and return when it serves.

        Raises:
            ClusterError: it runs already, or did not start; then with the end of its log.
        """
        self.start_at_once()
        self._cluster.await_ready([self])

    def start_at_once(self) -> None:
        """Start the node and do not wait.

        Raises:
            ClusterError: it runs already.
        """
        self._cluster.launch(self, [self.node_id] if self.is_broker else [])

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
        self._cluster.send_signal(self, number)
        self.wait_until_ended(STOP_S)

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
            return self._cluster.await_end(self, timeout_s)
        except TimeoutError:
            raise TimeoutError(f"node {self.node_id} has not ended after {timeout_s:g} s") from None

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log."""
        try:
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return str(error)
