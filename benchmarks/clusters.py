"""Clusters of several nodes of one program, for the items about clusters."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

from peers.node import Node, random_uuid

from benchmarks.items import named_brokers

START_LIMIT_S = 300.0
IDLE_CORES = 0.33
COMBINED = ("broker", "controller")
CONTROLLER = ("controller",)


class Cluster:
    """Nodes 1, 2, ... of one program, all voters of one static quorum.

    Args:
        roles: The roles of every node.
        overrides: Further keys of all property files.
        disks: A second log directory by the number of its node.
    """

    def __init__(
        self,
        node_class: type[Node],
        folder: Path,
        count: int,
        roles: Sequence[str] = COMBINED,
        *,
        overrides: dict[str, str] | None = None,
        jvm_options: tuple[str, ...] = (),
        disks: Mapping[int, Path] = MappingProxyType({}),
    ) -> None:
        self.kind = node_class.kind
        self.folder = folder
        self.cluster_id = random_uuid()
        self.nodes: list[Node] = [
            node_class(
                folder / f"node-{node_id}",
                directory_count=1,
                cluster_id=self.cluster_id,
                node_id=node_id,
                jvm_options=jvm_options,
                roles=tuple(roles),
            )
            for node_id in range(1, count + 1)
        ]
        for node_id, path in disks.items():
            self.node(node_id).log_dirs.append(path)
        for node in self.nodes:
            node.voters = self.nodes
        self.configure(overrides or {})

    def configure(self, overrides: dict[str, str]) -> None:
        """Write the property files."""
        replicas = str(min(3, len(self.nodes)))
        for node in self.nodes:
            node.overrides = {
                "default.replication.factor": replicas,
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                **overrides,
            }
            node.write_properties()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def controllers(self) -> dict[int, str]:
        """Return the addresses of the controller listeners by node id."""
        return {node.node_id: node.controller for node in self.nodes}

    def node(self, node_id: int) -> Node:
        return self.nodes[node_id - 1]

    def format(self) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(lambda node: node.format(), self.nodes))

    def start(self) -> None:
        """Start all nodes at the same time; wait until they are ready and know each other."""
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_ready()
        self.wait_for_brokers()

    def wait_for_brokers(self) -> None:
        """Wait until the metadata of every broker names all of them."""
        brokers = [node for node in self.nodes if "broker" in node.roles]
        deadline = time.monotonic() + START_LIMIT_S
        for node in brokers:
            while named_brokers(node) < len(brokers):
                if time.monotonic() > deadline or not node.alive:
                    raise RuntimeError(f"{node.kind} {node.node_id} does not know all brokers")
                time.sleep(0.01)

    def cpu_s(self) -> float:
        """Return the CPU time of all running nodes."""
        return sum(node.cpu_s() for node in self.running)

    def rss_bytes(self) -> int:
        """Return the resident memory of all running nodes."""
        return sum(node.rss_bytes() for node in self.running)

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    def __enter__(self) -> Cluster:
        self.format()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()


def wait_until_idle(subject: Node | Cluster) -> None:
    """Wait until the processes together use less than a third of a core for a second."""
    deadline = time.monotonic() + START_LIMIT_S
    used, before = IDLE_CORES, subject.cpu_s()
    while used >= IDLE_CORES and time.monotonic() < deadline:
        time.sleep(1)
        now = subject.cpu_s()
        used, before = now - before, now


def begin_stop(node: Node) -> None:
    """Ask for an orderly stop and do not wait for it."""
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
