"""A broker or controller whose process and disks fail on demand."""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from spindle.local import node as local
from spindle.local.control_socket import NoReply, Refused, ask
from spindle.local.errors import ClusterError, NodeGone
from spindle.local.supervisor_process import SupervisorProcess
from spindle.testing.cluster.network import ClusterNetwork
from spindle.testing.faults.disk_faults import (
    ALL_OPERATIONS,
    AfterTear,
    DiskFaults,
    DiskOperation,
    used_bytes,
)
from spindle.testing.faults.node_control import control_path
from spindle.testing.faults.unsynced import Notes, lose_unsynced

_COMMAND_S: Final = 60.0
_WAIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class FlippedBit:
    """A bit of a stored file that was changed. `bit` is 0 for the lowest of the byte."""

    path: Path
    offset: int
    bit: int


class Disk:
    """A log directory of a node. Its faults outlive the node's process, as those of a disk do.

    Faults add up until `heal`: a disk may be slow and full. All of them have an effect on open
    files, too.

    Attributes:
        node: the node that owns the disk.
        number: its place in `log.dirs`, from 1.
        path: the log directory.
    """

    def __init__(self, node: "NodeHandle", number: int, path: Path) -> None:
        self.node = node
        self.number = number
        self.path = path
        self._faults = DiskFaults()

    def __repr__(self) -> str:
        return f"Disk({self.node.node_id}, {self.number}, {str(self.path)!r})"

    @property
    def faults(self) -> DiskFaults:
        """The present faults, as far as they were set here."""
        return self._faults

    @property
    def directory_id(self) -> str | None:
        """The `directory.id` in its `meta.properties`; None if it is not formatted."""
        try:
            lines = (self.path / "meta.properties").read_text().splitlines()
        except FileNotFoundError:
            return None
        properties = dict(line.split("=", 1) for line in lines if "=" in line)
        return properties.get("directory.id")

    # -- faults

    def fail(
        self,
        error_number: int = errno.EIO,
        operations: Collection[DiskOperation | str] = ALL_OPERATIONS,
    ) -> None:
        """Let operations raise `OSError` with this number.

        Args:
            error_number: a number of `errno`.
            operations: some of "read", "write" and "sync"; all by default.
        """
        if error_number not in errno.errorcode:
            raise ValueError(f"error_number {error_number} is not a number of errno")
        chosen = frozenset(map(DiskOperation, operations))
        self._set(replace(self._faults, error_number=error_number, operations=chosen))

    def fill(self, leave_bytes: int = 0) -> None:
        """Limit free space; larger writes fail with ENOSPC.

        DescribeLogDirs reports the free bytes. Files that are removed make room again.
        """
        if leave_bytes < 0:
            raise ValueError(f"leave_bytes {leave_bytes} is less than 0")
        quota = used_bytes(str(self.path)) + leave_bytes
        self._set(replace(self._faults, quota_bytes=quota))

    def slow(self, delay_ms: float) -> None:
        """Delay every operation by this time in ms."""
        if delay_ms < 0:
            raise ValueError(f"delay_ms {delay_ms} is less than 0")
        self._set(replace(self._faults, slow_ms=delay_ms))

    def hang(self) -> None:
        """Let no operation return, until `heal`."""
        self._set(replace(self._faults, is_hung=True))

    def readonly(self) -> None:
        """Let writes fail with EROFS, as on a disk that the system has remounted read-only."""
        self._set(replace(self._faults, is_readonly=True))

    def tear(self, then: AfterTear | str = AfterTear.KILL, files: str = "*.log") -> None:
        """Let only the first half of the next write arrive, as a power failure does.

        Args:
            then: "kill" ends the node with the write; "fail" fails the write with EIO and every
                operation after it.
            files: a pattern as in `fnmatch` for the file of that write, below the directory; a
                folder counts, too ("orders-*/*.log").
        """
        self._set(replace(self._faults, tear=AfterTear(then), torn_files=files))

    def flip(
        self,
        file: str | os.PathLike[str] | None = None,
        offset: int = -1,
        bit: int = 0,
    ) -> FlippedBit:
        """Change a bit of stored data, as a disk does that reports no error.

        Args:
            file: below the directory, or absolute; the segment that was written last by default.
            offset: of the byte in the file; a negative one counts from the end.
            bit: 0 (lowest) to 7.

        Raises:
            ClusterError: there is no such byte.
        """
        if not 0 <= bit <= 7:
            raise ValueError(f"bit {bit} is not in 0 to 7")
        path = self._last_segment() if file is None else self.path / file
        try:
            with path.open("r+b", buffering=0) as stored:
                position = offset if offset >= 0 else stored.seek(0, os.SEEK_END) + offset
                byte = os.pread(stored.fileno(), 1, position) if position >= 0 else b""
                if not byte:
                    raise ClusterError(f"{path} has no byte {offset}")
                os.pwrite(stored.fileno(), bytes([byte[0] ^ 1 << bit]), position)
        except OSError as error:
            raise ClusterError(f"cannot flip a bit of {path}: {error.strerror}") from None
        return FlippedBit(path, position, bit)

    def _last_segment(self) -> Path:
        """Return the segment with records that was written last, the metadata log's excepted."""
        segments = [
            (segment.stat().st_mtime_ns, segment)
            for segment in self.path.glob("*-*/*.log")
            if segment.stat().st_size and not segment.parent.name.startswith("__cluster_metadata")
        ]
        if not segments:
            raise ClusterError(f"{self.path} holds no segment with records")
        return max(segments)[1]

    def heal(self) -> None:
        """End all faults. Stored data stay as they are.

        A failed directory stays offline until `bring_online`, or until the broker restarts.
        """
        self._set(DiskFaults(generation=self._faults.generation))

    def replace(self) -> None:
        """Put an empty new disk in the place of this one. It has no faults and is not formatted.

        Files that the node has open belong to the old disk and fail with EIO.
        """
        old = self.path.with_name(f"{self.path.name}-replaced")
        shutil.rmtree(old, ignore_errors=True)
        self._set(DiskFaults(errno.EIO, generation=self._faults.generation + 1))
        self.path.rename(old)
        self.path.mkdir()
        self._set(DiskFaults(generation=self._faults.generation))
        shutil.rmtree(old)

    def format(self) -> None:
        """Format a new disk for its node, with a new directory id.

        Raises:
            ClusterError: no other disk of the node is formatted, or this one cannot be written.
        """
        from spindle.local.formatting.format_node import format_new_directories

        format_new_directories(str(self.node.property_file))

    def bring_online(self, *, accept_loss: bool = False) -> bool:
        """Let the running broker use this directory again, after it was healed or replaced.

        Return True if the disk was empty, so that the broker has formatted it.

        Args:
            accept_loss: create replicas empty if no other broker leads their partitions; also
                after a restart with a disk that was replaced and formatted.

        Raises:
            ClusterError: the node is no broker.
            ApiError: the broker refused, because the directory is not offline or still fails, or
                because replicas would be lost.
        """
        # Imported here, because most tests need no client of their own.
        from spindle.client.admin.disks import alter_disks
        from spindle.disks.alter_disks import DirectoryAction, DirectoryInUse
        from spindle.local.topic_admin import connected

        servers = self.node.bootstrap_servers
        if servers is None:
            raise ClusterError(f"node {self.node.node_id} is no broker")
        broker_id, path, action = self.node.node_id, str(self.path), DirectoryAction.ONLINE
        with connected(servers) as client:
            try:
                return alter_disks(client, broker_id, action, path).was_formatted
            except DirectoryInUse as refused:
                if not accept_loss:
                    raise
                return alter_disks(client, broker_id, action, path, refused.replicas).was_formatted

    def wait_until_offline(self, timeout_s: float = _WAIT_S) -> str:
        """Return the reason when the node has taken this directory offline, as in `spindle disks
        list`: the error of the system and the file, such as `EIO while writing t-3/...log`.

        A disk that nobody uses is not noticed: the node must read or write it.

        Raises:
            TimeoutError: the directory is not offline in time.
            ClusterError: the node does not run.
        """
        return str(self.node.await_condition(timeout_s, name="offline", path=str(self.path)))

    # -- for the node's starts

    def _set(self, faults: DiskFaults) -> None:
        self._faults = faults
        self.node.tell("set-disk", path=str(self.path), faults=faults.to_json())

    def faults_at_start(self) -> DiskFaults:
        """Return the faults for the next process of the node; a tear ends with the process."""
        self._faults = replace(self._faults, tear=None)
        return self._faults

    def refresh_faults(self) -> None:
        """Read the faults of the running node: a torn write may have turned into a failed disk."""
        if self._faults.tear is AfterTear.FAIL:
            faults = self.node.ask("disk", path=str(self.path))
            self._faults = DiskFaults.from_json(faults)


class NodeHandle(local.NodeHandle):
    """A node of a cluster, through all of its processes, with faults.

    Attributes:
        disks: its log directories, in the order of `log.dirs`.

    Args:
        supervisor, described, start_timeout_s: as for `spindle.local.NodeHandle`.
        network: the cuts of the cluster.
        directory_id_of: returns the id of the directory that holds this node's replica of a topic
            and partition, by the metadata; an empty text if the node has none.
    """

    def __init__(
        self,
        supervisor: SupervisorProcess,
        described: Mapping[str, Any],
        start_timeout_s: float,
        network: ClusterNetwork,
        directory_id_of: Callable[["NodeHandle", str, int], str],
    ) -> None:
        super().__init__(supervisor, described, start_timeout_s)
        self._network = network
        self._directory_id_of = directory_id_of
        self.disks: Sequence[Disk] = [
            Disk(self, number, path) for number, path in enumerate(self.log_dirs, 1)
        ]
        self._control = control_path(supervisor.home, self.node_id)
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
        directory = self._directory_id_of(self, topic, partition)
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

    def start_at_once(self, known_brokers: Sequence[int] | None = None) -> None:
        """Start the node and do not wait.

        Args:
            known_brokers: as for `spindle.local.NodeHandle`.

        Raises:
            ClusterError: it runs already.
        """
        super().start_at_once(known_brokers)
        self._is_paused = False

    def _end(self, number: signal.Signals) -> None:
        if not self._is_paused:
            self.refresh_faults()
        self._send_signal(number)
        if self._is_paused and number != signal.SIGKILL:
            self._send_signal(signal.SIGCONT)
        self.wait_until_ended(local.STOP_S)

    def _runner_options(self) -> dict[str, Any]:
        disks = {str(disk.path): disk.faults_at_start().to_json() for disk in self.disks}
        return {"disks": disks, "network": self._network.faults_of(self.node_id).to_json()}

    def refresh_faults(self) -> None:
        """Ask the running node for the faults of its disks."""
        for disk in self.disks:
            disk.refresh_faults()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): connections stay open and nothing is answered."""
        self._send_signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Resume a paused process."""
        self._send_signal(signal.SIGCONT)
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

    def set_network(self) -> None:
        """Apply the cuts of the network to the node's process, if there is one that can answer."""
        if self.is_running and not self._is_paused:
            self.tell("set-network", faults=self._network.faults_of(self.node_id).to_json())

    def await_condition(self, timeout_s: float, **condition: Any) -> Any:
        """Return the answer of the node when the condition holds.

        Raises:
            TimeoutError: it does not hold in time.
            ClusterError: the node does not run.
        """
        return self.ask("wait", timeout_s, condition=condition)
