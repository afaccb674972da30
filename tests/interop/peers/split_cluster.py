"""Controllers of one program and brokers of another, each in its own process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from waiting import wait_for

from peers.java_tools import JavaTools, ToolResult
from peers.node import Node, random_uuid

LIMIT_S = 60.0
QUICK_FAILOVER = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""A killed broker is fenced, and may come back, after 3 seconds instead of 9."""
_PARTITION = re.compile(
    r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S*)\tElr: (\S*)\tLastKnownElr:"
)


class Partition(NamedTuple):
    """One line of `kafka-topics --describe`; lists as printed, leader "none" if there is none."""

    leader: str
    replicas: str
    isr: str
    elr: str

    @property
    def is_healthy(self) -> bool:
        """True if the partition has a leader and every replica is in sync."""
        return self.leader != "none" and sorted(self.isr) == sorted(self.replicas)


class SplitCluster:
    """Controllers 101, 102, ... and brokers 1, 2, ... with two log directories each.

    Args:
        disks: a third log directory by the number of its broker.
    """

    def __init__(
        self,
        folder: Path,
        tools: JavaTools,
        controllers: Sequence[type[Node]],
        brokers: Sequence[type[Node]],
        disks: Mapping[int, Path] = MappingProxyType({}),
    ) -> None:
        cluster_id = random_uuid()
        self._tools = tools
        self.controllers = [
            cls(
                folder / f"controller{number}",
                directory_count=1,
                overrides=dict(QUICK_FAILOVER),
                cluster_id=cluster_id,
                node_id=100 + number,
                roles=("controller",),
            )
            for number, cls in enumerate(controllers, 1)
        ]
        self.brokers = {
            number: cls(
                folder / f"broker{number}",
                directory_count=2,
                overrides={
                    **QUICK_FAILOVER,
                    "broker.rack": f"rack{number % 2}",
                    "replica.lag.time.max.ms": "5000",
                    "replica.high.watermark.checkpoint.interval.ms": "500",
                },
                cluster_id=cluster_id,
                node_id=number,
                roles=("broker",),
            )
            for number, cls in enumerate(brokers, 1)
        }
        for number, path in disks.items():
            self.brokers[number].log_dirs.append(path)
        for node in self._nodes():
            node.voters = self.controllers
            node.write_properties()

    def _nodes(self) -> list[Node]:
        return [*self.controllers, *self.brokers.values()]

    def __enter__(self) -> SplitCluster:
        for node in self._nodes():
            node.format()
            node.start(wait=False)
        for node in self._nodes():
            node.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes():
            node.kill()

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def run(self, tool: str, *words: str) -> ToolResult:
        """Run a tool of Kafka with the brokers as its servers."""
        servers = ("--bootstrap-server", self.bootstrap)
        # The cluster tool expects its subcommand first, the others last.
        before, after = (words[:1], words[1:]) if tool == "cluster" else ((), words)
        return self._tools.run(tool, *before, *servers, *after)

    def describe(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic, once the broker that answers knows it."""
        return self.wait_for(topic, lambda partition: True, "known")

    def wait_for(
        self,
        topic: str,
        is_right: Callable[[Partition], bool],
        what: str,
        only: Sequence[int] | None = None,
    ) -> list[Partition]:
        """Wait until all partitions of a topic, or those in `only`, are right; return them."""

        def are_right(answer: ToolResult) -> bool:
            partitions = enumerate(_partitions(answer))
            wanted = [p for n, p in partitions if only is None or n in only]
            return bool(wanted) and all(map(is_right, wanted))

        # The broker that answers may not know the topic yet.
        described = wait_for(
            lambda: self.run("topics", "--describe", "--topic", topic),
            are_right,
            f"{topic} is {what}",
            limit_s=LIMIT_S,
            pause_s=0.1,
        )
        return _partitions(described)

    def wait_healthy(self, *topics: str) -> None:
        """Return when every replica of these topics is in sync."""
        for topic in topics:
            self.wait_for(topic, lambda partition: partition.is_healthy, "in sync")

    def active_controller(self) -> Node:
        """Return the controller that leads the quorum, as a broker knows it."""

        def leader(status: ToolResult) -> Node | None:
            named = re.search(r"LeaderId:\s+(\d+)", status.stdout)
            leaders = [
                controller
                for controller in self.controllers
                if named and int(named[1]) == controller.node_id and controller.alive
            ]
            return leaders[0] if leaders else None

        status = wait_for(
            lambda: self.run("metadata-quorum", "describe", "--status"),
            leader,
            "a controller leads",
            limit_s=LIMIT_S,
            pause_s=0,
        )
        active = leader(status)
        assert active is not None
        return active


def _partitions(described: ToolResult) -> list[Partition]:
    partitions = {int(row[0]): Partition(*row[1:]) for row in _PARTITION.findall(described.stdout)}
    return [partitions[number] for number in sorted(partitions)]
