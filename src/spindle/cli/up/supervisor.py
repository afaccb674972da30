"""Start the nodes of a cluster as child processes, watch them, and stop them in order."""

import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Final

from spindle.cli.up.folder import NodeFolder
from spindle.cli.up.node_process import (
    BROKER_STOPPED,
    BROKER_STOPPED_WAS_LEADER,
    READY,
    SIGNALS,
    NodeProcess,
    RunNode,
)

_STOP_S: Final = 60.0
_WAIT_S: Final = 1.0
STOPPED_BY_INTERRUPT: Final = 130
STOPPED_BY_TERMINATION: Final = 143
_ORDERLY_ENDS: Final = (
    0,
    STOPPED_BY_INTERRUPT,
    STOPPED_BY_TERMINATION,
    # Before a child has its own handlers, these signals end it.
    *(-number for number in (*SIGNALS, signal.SIGKILL)),
)
"""The exit codes of a node that `stop` ends."""


class Stopped(Exception):
    """The user has asked the cluster to end."""


class Supervisor:
    """The children of this process, and the signals that say they should stop.

    Args:
        on_ready: called with each node that serves and knows all brokers.
        on_end: called with each node that ends before `stop`, or fails during it, and its exit code
            (the negative number of the signal that killed it).
    """

    def __init__(
        self,
        on_ready: Callable[[NodeFolder], None],
        on_end: Callable[[NodeFolder, int], None],
    ) -> None:
        self._on_ready = on_ready
        self._on_end = on_end
        self._running: dict[int, tuple[NodeFolder, NodeProcess]] = {}
        self._ready: set[int] = set()
        self._left: set[int] = set()
        self._leading: set[int] = set()
        self._is_stopping = False
        self._signals = 0
        self._wake_fd, self._signal_fd = os.pipe()
        os.set_blocking(self._signal_fd, False)
        # A handler that raised an exception could raise it where it is swallowed.
        for number in SIGNALS:
            # Under nohup the cluster outlives its terminal.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._note)
        signal.set_wakeup_fd(self._signal_fd, warn_on_full_buffer=False)

    @property
    def pids(self) -> Mapping[int, int]:
        """Process ids of the running nodes, by node id."""
        return {node_id: process.pid for node_id, (_, process) in self._running.items()}

    def start(self, nodes: Sequence[NodeFolder], run_node: RunNode) -> None:
        """Fork one child for each node.

        Raises:
            OSError: a log cannot be written, or there can be no more processes.
        """
        brokers = [node.node_id for node in nodes if node.config.is_broker]
        for node in nodes:
            fds = [fd for _, process in self._running.values() for fd in process.fds]
            own_fds = [self._wake_fd, self._signal_fd, *fds]
            process = NodeProcess(node.config, brokers, node.log_file, run_node, own_fds)
            self._running[node.node_id] = (node, process)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def wait_ready(self) -> None:
        """Return when every node serves, or one has ended.

        Raises:
            Stopped: the user does not want to wait any longer.
        """
        count = len(self._running)
        while len(self._running) == count and self._running.keys() - self._ready:
            self._watch()

    def wait_end(self) -> None:
        """Return when the last node has ended.

        Raises:
            Stopped: the user wants the cluster to end.
        """
        while self._running:
            self._watch()

    def stop(self) -> bool:
        """Stop first all brokers, then the quorum; return False if a node had to be killed.

        The leader of the quorum comes last, as it would wait for another to lead. One more signal
        kills them at once.
        """
        self._is_stopping = True
        self._signals = 0
        deadline_s = time.monotonic() + _STOP_S
        for _, process in self._running.values():
            process.kill(signal.SIGTERM)
        is_clean = True
        while self._running:
            if self._running.keys() <= self._left:
                for node_id in self._left - self._leading or self._leading:
                    self._allow_exit(node_id)
            self._read_events()
            if is_clean and (self._signals or time.monotonic() > deadline_s):
                is_clean = False
                for _, process in self._running.values():
                    process.kill(signal.SIGKILL)
        return is_clean

    def close(self) -> None:
        """Stop handling signals."""
        signal.set_wakeup_fd(-1)
        os.close(self._wake_fd)
        os.close(self._signal_fd)

    def _watch(self) -> None:
        self._read_events()
        if self._signals:
            raise Stopped

    def _read_events(self) -> None:
        by_fd = {process.status_fd: node_id for node_id, (_, process) in self._running.items()}
        readable, _, _ = select.select([self._wake_fd, *by_fd], [], [], _WAIT_S)
        for fd in readable:
            news = os.read(fd, 64)
            if fd == self._wake_fd:
                continue
            node_id = by_fd[fd]
            if READY in news:
                self._ready.add(node_id)
                self._on_ready(self._running[node_id][0])
            if BROKER_STOPPED in news or BROKER_STOPPED_WAS_LEADER in news:
                self._left.add(node_id)
                if BROKER_STOPPED_WAS_LEADER in news:
                    self._leading.add(node_id)
                if not self._is_stopping:
                    # A node that is stopped alone waits for no other node.
                    self._allow_exit(node_id)
            if not news:
                self._reap(node_id)

    def _allow_exit(self, node_id: int) -> None:
        self._running[node_id][1].allow_exit()

    def _reap(self, node_id: int) -> None:
        node, process = self._running.pop(node_id)
        for names in (self._ready, self._left, self._leading):
            names.discard(node_id)
        code = process.wait()
        if not self._is_stopping or code not in _ORDERLY_ENDS:
            self._on_end(node, code)
