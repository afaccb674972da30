"""Supervises the nodes of `spindle up` until a signal or their end."""

import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Final

from spindle.local.node_folder import NodeFolder
from spindle.local.node_process import SIGNALS, RunNode
from spindle.local.supervisor import Supervisor

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
"""The exit codes of a node after `stop`."""


class Stopped(Exception):
    """The user has stopped the cluster."""


class TerminalSupervisor:
    """The children of this process, and the signals by which the user stops them.

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
        self._supervisor = Supervisor()
        self._is_stopping = False
        self._signals = 0
        self._wake_fd, self._signal_fd = os.pipe()
        os.set_blocking(self._signal_fd, False)
        # An exception of a handler could be swallowed.
        for number in SIGNALS:
            # Under nohup the cluster outlives its terminal.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._note)
        signal.set_wakeup_fd(self._signal_fd, warn_on_full_buffer=False)

    @property
    def pids(self) -> Mapping[int, int]:
        """Process ids of the running nodes, by node id."""
        return self._supervisor.pids

    def start(self, nodes: Sequence[NodeFolder], run_node: RunNode) -> None:
        """Fork one child for each node.

        Raises:
            OSError: a log cannot be written, or there can be no more processes.
        """
        brokers = [node.node_id for node in nodes if node.config.is_broker]
        for node in nodes:
            self._supervisor.start(node, brokers, run_node, [self._wake_fd, self._signal_fd])

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def wait_ready(self) -> None:
        """Return when every node serves, or one has ended.

        Raises:
            Stopped: the user has stopped the cluster.
        """
        runs = self._supervisor.runs.values()
        while all(run.exit_code is None for run in runs) and not all(run.is_ready for run in runs):
            self._watch()

    def wait_end(self) -> None:
        """Return when the last node has ended.

        Raises:
            Stopped: the user has stopped the cluster.
        """
        while self._supervisor.running:
            self._watch()

    def stop(self) -> bool:
        """Stop first all brokers, then the quorum; return False if a node had to be killed.

        One more signal kills them at once.
        """
        self._is_stopping = True
        self._signals = 0
        deadline_s = time.monotonic() + _STOP_S
        self._supervisor.request_stop()
        is_clean = True
        while self._supervisor.running:
            self._read_events()
            if is_clean and (self._signals or time.monotonic() > deadline_s):
                is_clean = False
                self._supervisor.send_signal(signal.SIGKILL)
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
        nodes = self._supervisor.status_fds
        readable, _, _ = select.select([self._wake_fd, *nodes], [], [], _WAIT_S)
        for fd in readable:
            if fd == self._wake_fd:
                os.read(fd, 64)
                continue
            was_ready = self._supervisor.runs[nodes[fd]].is_ready
            run = self._supervisor.read(nodes[fd])
            if run.is_ready and not was_ready:
                self._on_ready(run.folder)
            if run.exit_code is not None and not (
                self._is_stopping and run.exit_code in _ORDERLY_ENDS
            ):
                self._on_end(run.folder, run.exit_code)
