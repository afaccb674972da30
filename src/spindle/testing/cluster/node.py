"""A broker or controller of a cluster for tests."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from spindle.testing.cluster.control import NoReply, Refused, ask
from spindle.testing.cluster.disk import Disk
from spindle.testing.cluster.errors import ClusterError, NodeGone
from spindle.testing.faults.unsynced import Notes, lose_power

if TYPE_CHECKING:
    from spindle.testing.cluster.cluster import Cluster

_COMMAND_S: Final = 60.0
_STOP_S: Final = 60.0
_TAIL_LINES: Final = 30


class NodeHandle:
    """A process of the cluster.

    Attributes:
        node_id: `node.id`.
        is_broker, is_controller: its roles.
        disks: its log directories, in the order of `log.dirs`.
        bootstrap_servers: host and port for clients; None for a node that is no broker.
        controller_address: host and port of its controller listener, None without the role.
        metrics_url: of its metrics for Prometheus.
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
        self.log_file = Path(described["log_file"])
        self.property_file = Path(described["property_file"])
        self.disks: Sequence[Disk] = [
            Disk(self, number, Path(path)) for number, path in enumerate(described["log_dirs"], 1)
        ]
        self._cluster = cluster
        self._control: str = described["control"]
        self._is_paused = False

    def __repr__(self) -> str:
        return f"NodeHandle({self.node_id})"

    @property
    def is_running(self) -> bool:
        """True while the process lives, paused or not."""
        return self._cluster.runs(self)

    @property
    def is_paused(self) -> bool:
        """True between `pause` and `resume`."""
        return self._is_paused

    def disk_of(self, topic: str, partition: int = 0) -> Disk:
        """Return the disk that holds this node's replica of a partition, by the metadata.

        Raises:
            ClusterError: no disk of this node holds one, or there is no such partition, and nobody
                creates it within 5 s.
        """
        directory = self._cluster.directory_of(self, topic, partition)
        for disk in self.disks:
            if directory and disk.directory_id == directory:
                return disk
        raise ClusterError(f"node {self.node_id} has no replica of {topic}-{partition}")

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
        self._is_paused = False

    def stop(self) -> None:
        """Stop the node in order, and return when its process has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process (SIGKILL), and return when it has ended."""
        self._end(signal.SIGKILL)

    def cut_power(self, seed: int = 0) -> list[str]:
        """End the process as a power failure does, and return when it has ended.

        Synced bytes and names stay. Some of the others are lost: the last bytes of files are
        missing or read as zeros, and new files and renames are gone.

        Args:
            seed: decides what is lost.

        Returns:
            a line for each file that has lost something.

        Raises:
            ClusterError: the node does not run, or is paused.
        """
        if self._is_paused:
            raise ClusterError(f"node {self.node_id} is paused; resume it first")
        notes: dict[str, Notes] = self.ask("cut-power")
        self.kill()
        random = Random(seed)
        return [line for path, left in notes.items() for line in lose_power(path, left, random)]

    def _end(self, number: signal.Signals) -> None:
        if not self._is_paused:
            for disk in self.disks:
                disk.refresh_faults()
        self._cluster.signal(self, number)
        if self._is_paused and number != signal.SIGKILL:
            self._cluster.signal(self, signal.SIGCONT)
        self.wait_until_ended(_STOP_S)

    def restart(self) -> None:
        """Stop the node if it runs, start it again, and return when it serves."""
        if self.is_running:
            self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): connections stay open and nothing is answered."""
        self._cluster.signal(self, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Let a paused process go on."""
        self._cluster.signal(self, signal.SIGCONT)
        self._is_paused = False

    def wait_until_ended(self, timeout_s: float = _STOP_S) -> int:
        """Return the exit code when the process has ended, or the negative number of a signal.

        Raises:
            TimeoutError: it has not ended in time.
        """
        try:
            code = self._cluster.await_end(self, timeout_s)
        except TimeoutError:
            raise TimeoutError(f"node {self.node_id} has not ended after {timeout_s:g} s") from None
        self._is_paused = False
        return code

    # -- its log and its control channel

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log."""
        try:
            return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return str(error)

    def ask(self, what: str, timeout_s: float = _COMMAND_S, **fields: Any) -> Any:
        """Ask the node's process over its control channel.

        Raises:
            ClusterError: it does not run, or refused.
            TimeoutError: it gave no answer in time.
        """
        try:
            return ask(self._control, {"do": what, **fields}, timeout_s)
        except NoReply:
            raise NodeGone(f"node {self.node_id} does not run") from None
        except Refused as error:
            raise ClusterError(f"node {self.node_id}: {error}") from None

    def tell(self, what: str, **fields: Any) -> None:
        """Send a message to the node's process, if there is one."""
        if self._is_paused:
            raise ClusterError(f"node {self.node_id} is paused; resume it first")
        try:
            ask(self._control, {"do": what, **fields}, _COMMAND_S)
        except NoReply:
            return
        except Refused as error:
            raise ClusterError(f"node {self.node_id}: {error}") from None

    def await_condition(self, timeout_s: float, **condition: Any) -> Any:
        """Return the answer of the node when the condition holds.

        Raises:
            TimeoutError: it does not hold in time.
            ClusterError: the node does not run.
        """
        return self.ask("wait", timeout_s, condition=condition)
