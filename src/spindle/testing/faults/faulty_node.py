"""The main function of a node's process in a cluster for tests."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from spindle.config.node_config import NodeConfig
from spindle.local.control_socket import listen
from spindle.local.node_process import RunNode, die_with
from spindle.local.supervisor_server import NodeStart
from spindle.runtime.node import Node
from spindle.runtime.process import run_node
from spindle.testing.faults.disk_faults import DiskFaults, FaultyDisk
from spindle.testing.faults.faulty_loop import FaultyLoop
from spindle.testing.faults.faulty_machine import FaultyMachine
from spindle.testing.faults.network_faults import FaultyNetwork, NetworkFaults
from spindle.testing.faults.node_control import NodeControl, control_path


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


@contextmanager
def faulty_runner(start: NodeStart) -> Iterator[RunNode]:
    """Run nodes with the faults in `start.options`, and with a control channel for later ones."""
    path = control_path(start.home, start.node_id)
    with suppress(FileNotFoundError):
        os.unlink(path)
    with listen(path) as control:
        disks = start.options["disks"]
        yield FaultyNode(
            control,
            os.getpid(),
            {directory: DiskFaults.from_json(faults) for directory, faults in disks.items()},
            NetworkFaults.from_json(start.options["network"]),
            start.ports,
        ).run
