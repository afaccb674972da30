"""One node as a child process: forked, so that the modules are loaded and kept in memory once.

Two pipes tie it to its parent. On the first the child says how far it is; that pipe's end is the
end of the child. On the second the parent lets it leave the quorum; that pipe's end is the end of
the parent, and the child then stops as well.
"""

import asyncio
import contextlib
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
LEFT: Final = b"l"
LEFT_AS_LEADER: Final = b"L"
GO: Final = b"g"

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends the parent, and is none of the child's business before the child says so."""

RunNode = Callable[[NodeConfig, Callable[["Node"], None]], int]


class NodeProcess:
    """A forked child that runs one node.

    Attributes:
        pid: of the child.
        life_fd: becomes readable with READY, with LEFT or LEFT_AS_LEADER when its broker has left
            the cluster and only the quorum still has the node, with nothing when it has ended.
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
        self.life_fd, life_end = os.pipe()
        order_end, self._order_fd = os.pipe()
        # Until the child has done with the parent's handlers, a signal would be lost in them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                # Held open by a sibling, a pipe would outlive the parent.
                for fd in (self.life_fd, self._order_fd, *own_fds):
                    os.close(fd)
                _run_child(config, brokers, run_node, before, log_fd, life_end, order_end)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for fd in (log_fd, life_end, order_end):
                os.close(fd)

    @property
    def fds(self) -> tuple[int, int]:
        """The parent's ends of the pipes."""
        return self.life_fd, self._order_fd

    def kill(self, number: int) -> None:
        """Send a signal. Not after `wait`."""
        os.kill(self.pid, number)

    def let_go(self) -> None:
        """The node may leave the quorum."""
        _tell(self._order_fd, GO)

    def wait(self) -> int:
        """The end of the child: its exit code, or the negative number of a signal."""
        _, status = os.waitpid(self.pid, 0)
        for fd in self.fds:
            os.close(fd)
        return os.waitstatus_to_exitcode(status)


def _run_child(
    config: NodeConfig,
    brokers: Collection[int],
    run_node: RunNode,
    signal_mask: Iterable[int],
    log_fd: int,
    life_fd: int,
    order_fd: int,
) -> NoReturn:
    """Never return: what stands above on the stack belongs to the parent."""
    code = 1
    try:
        # Ctrl-C in the terminal is for the parent, which stops the nodes in order.
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
            async def before_leaving() -> None:
                _tell(life_fd, LEFT_AS_LEADER if node.is_active_controller else LEFT)
                await asyncio.to_thread(may_leave.wait)

            node.before_leaving = before_leaving
            # Clients ask any node who the brokers are: one that knows only some is not ready yet.
            node.when_active(brokers, lambda: _tell(life_fd, READY))

        code = run_node(config, on_ready)
    except BaseException:  # noqa: BLE001 - the end of this process in any case
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _tell(fd: int, news: bytes) -> None:
    """To the other side of a pipe, which may be gone."""
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, news)


def _obey(order_fd: int, may_leave: threading.Event) -> None:
    order = os.read(order_fd, 1)
    may_leave.set()
    if order != GO:
        os.kill(os.getpid(), signal.SIGTERM)
