"""A broker or controller whose process fails on demand."""

import signal
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from spindle.local import node as local
from spindle.local.control_socket import NoReply, Refused, ask
from spindle.local.errors import ClusterError, NodeGone
from spindle.testing.cluster.disk import Disk
from spindle.testing.faults.node_control import control_path
from spindle.testing.faults.unsynced import Notes, lose_unsynced

if TYPE_CHECKING:
    from spindle.testing.cluster.cluster import Cluster

_COMMAND_S: Final = 60.0


class NodeHandle(local.NodeHandle):
    """A node of a cluster, through all of its processes, with faults.

    Attributes:
        disks: its log directories, in the order of `log.dirs`.
    """

    _cluster: "Cluster"

    def __init__(self, cluster: "Cluster", described: Mapping[str, Any]) -> None:
        super().__init__(cluster, described)
        self.disks: Sequence[Disk] = [
            Disk(self, number, path) for number, path in enumerate(self.log_dirs, 1)
        ]
        self._control = control_path(cluster.home, self.node_id)
        self._is_paused = False

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
        return [line for path, left in notes.items() for line in lose_unsynced(path, left, random)]

    def start_at_once(self) -> None:
        """Start the node and do not wait.

        Raises:
            ClusterError: it runs already.
        """
        super().start_at_once()
        self._is_paused = False

    def _end(self, number: signal.Signals) -> None:
        if not self._is_paused:
            self.refresh_faults()
        self._cluster.send_signal(self, number)
        if self._is_paused and number != signal.SIGKILL:
            self._cluster.send_signal(self, signal.SIGCONT)
        self.wait_until_ended(local.STOP_S)

    def refresh_faults(self) -> None:
        """Ask the running node for the faults of its disks."""
        for disk in self.disks:
            disk.refresh_faults()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): connections stay open and nothing is answered."""
        self._cluster.send_signal(self, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Resume a paused process."""
        self._cluster.send_signal(self, signal.SIGCONT)
        self._is_paused = False

    def wait_until_ended(self, timeout_s: float = local.STOP_S) -> int:
        """Return the exit code when the process has ended, or the negative number of a signal.

        Raises:
            TimeoutError: it has not ended in time.
        """
        code = super().wait_until_ended(timeout_s)
        self._is_paused = False
        return code

    # -- its control channel

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
