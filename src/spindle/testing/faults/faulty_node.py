"""The main function of a node's process in a cluster for tests."""

import asyncio
import ctypes
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from spindle.config.node_config import NodeConfig
from spindle.runtime.node import Node
from spindle.runtime.process import run_node
from spindle.testing.faults.disk_faults import DiskFaults, FaultyDisk
from spindle.testing.faults.faulty_loop import FaultyLoop
from spindle.testing.faults.faulty_machine import FaultyMachine
from spindle.testing.faults.network_faults import FaultyNetwork, NetworkFaults
from spindle.testing.faults.node_control import NodeControl

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class FaultyNode:
    """A node to be run in a forked process.

    Attributes:
        control: the listening socket of its control channel.
        parent: process id of the process that forks it.
        disks: the faults that its disks have from the start, by path.
        ports: of the listeners of all nodes; values are node ids.
    """

    control: socket.socket
    parent: int
    disks: Mapping[str, DiskFaults]
    network: NetworkFaults
    ports: Mapping[int, int]

    def run(self, config: NodeConfig, on_ready: Callable[[Node], None]) -> int:
        """Run the node and return its exit code. The process dies with its parent."""
        die_with(self.parent)
        machine = FaultyMachine(
            {path: FaultyDisk(path, faults) for path, faults in self.disks.items()}
        )
        network = FaultyNetwork(config.node_id, self.ports, self.network)
        control = NodeControl(self.control, machine, network)

        def new_loop() -> asyncio.AbstractEventLoop:
            loop = FaultyLoop(network)
            control.use_loop(loop)
            return loop

        def started(node: Node) -> None:
            control.use_node(node)
            on_ready(node)

        return run_node(config, started, machine, new_loop)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies, even if this process is paused."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
