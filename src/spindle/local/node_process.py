"""A node as a forked child process: the modules are loaded and kept in memory once.

Two pipes connect it with its parent. The child reports its progress through the first; when that
pipe closes, the child has ended. The parent allows the child to leave the quorum through the
second; when that pipe closes, the parent has ended, and the child stops as well.
`spindle.local.supervisor` is the parent's side.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from spindle.config.node_config import NodeConfig

if TYPE_CHECKING:
    from spindle.runtime.node import Node

READY: Final = b"r"
BROKER_STOPPED: Final = b"l"
BROKER_STOPPED_WAS_LEADER: Final = b"L"
PROCEED: Final = b"g"

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end the parent; a child ignores them until it has its own handlers."""

RunNode = Callable[[NodeConfig, Callable[["Node"], None]], int]
"""Runs a node in this process until it ends, calls the function when it serves, and returns the
exit code."""

_PR_SET_PDEATHSIG: Final = 1


class NodeProcess:
    """A forked child that runs one node.

    Attributes:
        pid: of the child.
        status_fd: the child writes READY when it serves, and BROKER_STOPPED or
            BROKER_STOPPED_WAS_LEADER when its broker has left the cluster and only the quorum still
            has the node. End of file: the child has ended.
    """

    def __init__(
        self,
        config: NodeConfig,
        brokers: Collection[int],
        log_file: Path,
        run_node: RunNode,
        own_fds: Sequence[int],
    ) -> None:
        """Fork. Call while the process has one thread and no event loop.

        Args:
            brokers: ids of all brokers of the cluster; the node is ready when it knows them.
            own_fds: what the parent has open for itself and its other children.

        Raises:
            OSError: the log cannot be written, or there can be no more processes.
        """
        log_fd = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.status_fd, life_end = os.pipe()
        order_end, self._order_fd = os.pipe()
        # A signal that arrives before the child has replaced the parent's handlers would be lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                # A pipe that a sibling holds open would outlive the parent.
                for fd in (self.status_fd, self._order_fd, *own_fds):
                    os.close(fd)
                _run_child(config, brokers, run_node, before, log_fd, life_end, order_end)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for fd in (log_fd, life_end, order_end):
                os.close(fd)

    @property
    def fds(self) -> tuple[int, int]:
        """The parent's ends of the pipes."""
        return self.status_fd, self._order_fd

    def kill(self, number: int) -> None:
        """Send a signal. Must not be called after `wait`."""
        os.kill(self.pid, number)

    def allow_exit(self) -> None:
        """Let the node leave the quorum."""
        _tell(self._order_fd, PROCEED)

    def wait(self) -> int:
        """Wait for the child; return its exit code, or the negative number of a signal."""
        _, status = os.waitpid(self.pid, 0)
        for fd in self.fds:
            os.close(fd)
        return os.waitstatus_to_exitcode(status)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies, even if this process is paused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _run_child(
    config: NodeConfig,
    brokers: Collection[int],
    run_node: RunNode,
    signal_mask: Iterable[int],
    log_fd: int,
    status_fd: int,
    order_fd: int,
) -> NoReturn:
    """Run the node and end the process: the callers on the stack belong to the parent."""
    code = 1
    try:
        # The parent handles Ctrl-C of the terminal and stops the nodes in order.
        os.setsid()
        null_fd = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null_fd, 0)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
        may_leave = threading.Event()
        threading.Thread(
            target=_obey, args=(order_fd, may_leave), name="parent", daemon=True
        ).start()

        def on_ready(node: "Node") -> None:
            async def before_quorum_stop() -> None:
                _tell(
                    status_fd,
                    BROKER_STOPPED_WAS_LEADER if node.is_active_controller else BROKER_STOPPED,
                )
                await asyncio.to_thread(may_leave.wait)

            node.before_quorum_stop = before_quorum_stop
            # Clients ask any node for the brokers, so a node that knows only some is not ready yet.
            node.when_active(brokers, lambda: _tell(status_fd, READY))

        code = run_node(config, on_ready)
    except BaseException:  # noqa: BLE001 - the end of this process in any case
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _tell(fd: int, news: bytes) -> None:
    """Write to the other end of a pipe, which may be closed."""
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, news)


def _obey(order_fd: int, may_leave: threading.Event) -> None:
    order = os.read(order_fd, 1)
    may_leave.set()
    if order != PROCEED:
        os.kill(os.getpid(), signal.SIGTERM)
