"""The nodes that this process has forked: their states, their signals, and their order at the end.

A supervisor has no loop of its own. `spindle up` and `spindle.local.supervisor_server` wait until
one of its `status_fds` is readable, and call `read`.
"""

import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spindle.local.node_folder import NodeFolder
from spindle.local.node_process import (
    BROKER_STOPPED,
    BROKER_STOPPED_WAS_LEADER,
    READY,
    NodeProcess,
    RunNode,
)


@dataclass(slots=True)
class NodeRun:
    """One process of a node, from its fork to its end.

    Attributes:
        is_ready: the node serves, and knows all brokers that it was started with.
        ready_after_s: time from the fork until then.
        is_broker_stopped: only the quorum still has the node.
        was_leader: it led the quorum when its broker had stopped.
        exit_code: of the ended process, or the negative number of a signal; None while it runs.
    """

    folder: NodeFolder
    process: NodeProcess
    started_s: float
    is_ready: bool = False
    ready_after_s: float = 0.0
    is_broker_stopped: bool = False
    was_leader: bool = False
    exit_code: int | None = None


@dataclass(slots=True)
class Supervisor:
    """The nodes of one process. It must have one thread and no event loop, as it forks.

    Attributes:
        runs: the last process of each node that was started, by node id.
    """

    runs: dict[int, NodeRun] = field(default_factory=dict)
    _is_stopping: bool = False

    @property
    def running(self) -> Mapping[int, NodeRun]:
        """The processes that have not ended, by node id."""
        return {node_id: run for node_id, run in self.runs.items() if run.exit_code is None}

    @property
    def pids(self) -> Mapping[int, int]:
        """The ids of the processes that have not ended, by node id."""
        return {node_id: run.process.pid for node_id, run in self.running.items()}

    @property
    def status_fds(self) -> Mapping[int, int]:
        """The node id of each descriptor that is readable when `read` has something to do."""
        return {run.process.status_fd: node_id for node_id, run in self.running.items()}

    def start(
        self, folder: NodeFolder, brokers: Iterable[int], run_node: RunNode, own_fds: Iterable[int]
    ) -> NodeRun:
        """Fork a process for a node that does not run.

        Args:
            brokers: the node is ready when it knows them.
            own_fds: descriptors of this process that the child must not keep open.

        Raises:
            OSError: the log cannot be written, or there can be no more processes.
        """
        of_others = [fd for run in self.running.values() for fd in run.process.fds]
        process = NodeProcess(
            folder.config, list(brokers), folder.log_file, run_node, [*own_fds, *of_others]
        )
        run = NodeRun(folder, process, time.monotonic())
        self.runs[folder.node_id] = run
        if self._is_stopping:
            # The quorum has a node again that does not stop, so the others need not wait.
            self._is_stopping = False
            for other in self.running.values():
                if other.is_broker_stopped:
                    other.process.allow_exit()
        return run

    def read(self, node_id: int) -> NodeRun:
        """Read what a running node reports, and return its changed state."""
        run = self.runs[node_id]
        reports = os.read(run.process.status_fd, 64)
        if READY in reports:
            run.is_ready = True
            run.ready_after_s = time.monotonic() - run.started_s
        if BROKER_STOPPED in reports or BROKER_STOPPED_WAS_LEADER in reports:
            run.is_broker_stopped = True
            run.was_leader = BROKER_STOPPED_WAS_LEADER in reports
            if not self._is_stopping:
                # A node that is stopped alone waits for no other node.
                run.process.allow_exit()
        if not reports:
            run.exit_code = run.process.wait()
        if self._is_stopping:
            self._allow_exits()
        return run

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to all running nodes."""
        for run in self.running.values():
            run.process.kill(number)

    def request_stop(self) -> None:
        """Ask all nodes to stop: first all brokers, then the quorum.

        The leader of the quorum comes last, as it would wait for another to lead.
        """
        self._is_stopping = True
        self.send_signal(signal.SIGTERM)
        self._allow_exits()

    def kill(self) -> None:
        """Kill all running nodes (SIGKILL) and wait for their ends."""
        self.send_signal(signal.SIGKILL)
        for run in self.running.values():
            run.exit_code = run.process.wait()

    def _allow_exits(self) -> None:
        """Let nodes leave the quorum if all brokers have stopped."""
        running = self.running.values()
        if all(run.is_broker_stopped for run in running):
            followers = [run for run in running if not run.was_leader]
            for run in followers or running:
                run.process.allow_exit()
