"""A cluster of `spindle.local` whose disks, networks and processes fail on demand."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

from spindle.local import cluster as local
from spindle.local.errors import ClusterError, NodeGone
from spindle.local.node import STOP_S
from spindle.testing.cluster.network import ClusterNetwork
from spindle.testing.cluster.node import Disk, NodeHandle
from spindle.testing.faults.network_faults import Cut

_WAIT_S: Final = 60.0
_CREATION_S: Final = 5.0
_ENDING_S: Final = 0.05


class Cluster(local.Cluster):
    """A `spindle.local.Cluster` with faults, and with waits for what they cause.

    It has the arguments, errors and attributes of `spindle.local.Cluster`. A broker that is killed
    is fenced after 3 s, where Kafka waits 9 s (`broker.session.timeout.ms`).

    Example:
        ```python
        from spindle.testing import Cluster

        with Cluster(brokers=3, directories=3) as cluster:
            cluster.create_topic("orders", configs={"min.insync.replicas": 2})
            cluster.disk(1, 2).fail()
            cluster.broker(2).pause()
        ```
    """

    nodes: Sequence[NodeHandle]
    brokers: Sequence[NodeHandle]
    controllers: Sequence[NodeHandle]

    _runner: ClassVar[str] = "spindle.testing.faults.faulty_node:faulty_runner"
    _default_properties: ClassVar[Mapping[str, object]] = {
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }

    # -- parts

    def node(self, node_id: int) -> NodeHandle:
        """Return a broker or controller.

        Raises:
            ClusterError: there is none of this id.
        """
        node = super().node(node_id)
        assert isinstance(node, NodeHandle)
        return node

    def broker(self, node_id: int) -> NodeHandle:
        """Return a broker.

        Raises:
            ClusterError: there is no broker of this id.
        """
        node = super().broker(node_id)
        assert isinstance(node, NodeHandle)
        return node

    def disk(self, node_id: int, directory: int) -> Disk:
        """Return a disk.

        Args:
            directory: its place in `log.dirs`, from 1.

        Raises:
            ClusterError: there is no such disk.
        """
        disks = self.node(node_id).disks
        if not 1 <= directory <= len(disks):
            raise ClusterError(
                f"node {node_id} has no directory {directory}; they are 1 to {len(disks)}"
            )
        return disks[directory - 1]

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Stop all nodes in order, brokers before the quorum, and return when they have ended.

        `start` starts them again, with their records and the faults of their disks. Paused nodes
        continue first.

        Raises:
            TimeoutError: a node has not ended in time.
        """
        for node in self.nodes:
            if node.is_paused:
                node.resume()
            if node.is_running:
                node.refresh_faults()
        super().stop(timeout_s)

    # -- waiting

    def wait_until_in_sync(
        self, topics: Collection[str] | None = None, timeout_s: float = _WAIT_S
    ) -> None:
        """Return when all brokers serve and all replicas are in the ISR of their partitions.

        The metadata of all nodes must say so.

        Args:
            topics: of these topics; of all by default.

        Raises:
            TimeoutError: it is not so in time.
            ClusterError: a node does not run, is paused or cut off, so that it cannot be in sync.
        """
        missing = [str(n.node_id) for n in self.nodes if n not in self._reachable()]
        if missing:
            raise ClusterError(
                f"node {', '.join(missing)} does not run, is paused or cut off from the others, "
                "so it cannot be in sync"
            )
        brokers = [broker.node_id for broker in self.brokers]
        chosen = None if topics is None else sorted(topics)
        self._await_all(timeout_s, "in sync", name="in-sync", brokers=brokers, topics=chosen)

    def wait_for_leader(
        self,
        topic: str,
        partition: int = 0,
        *,
        other_than: int | Iterable[int] = (),
        timeout_s: float = _WAIT_S,
    ) -> int:
        """Return the leader of a partition when a running broker leads it.

        Args:
            other_than: brokers that do not count, because they are about to lose the leadership.

        Raises:
            ClusterError: there is no such partition, and nobody creates it within 5 s.
            TimeoutError: nobody leads it in time.
        """
        others = [other_than] if isinstance(other_than, int) else list(other_than)
        self._await_partition(topic, partition, min(timeout_s, _CREATION_S))

        def attempt(left_s: float) -> list[Any]:
            return self._await_all(
                left_s,
                f"a leader of {topic}-{partition}",
                name="leader",
                topic=topic,
                partition=partition,
                brokers=[node.node_id for node in self._reachable() if node.is_broker],
                other_than=others,
            )

        return int(_retry_without_dead_nodes(attempt, timeout_s)[-1])

    def _await_partition(self, topic: str, partition: int, timeout_s: float) -> None:
        def attempt(left_s: float) -> list[Any]:
            name = "partition"
            return self._await_all(left_s, "there", name=name, topic=topic, partition=partition)

        try:
            _retry_without_dead_nodes(attempt, timeout_s)
        except TimeoutError:
            raise ClusterError(f"there is no partition {topic}-{partition}") from None

    def wait_until_fenced(self, broker: int, timeout_s: float = _WAIT_S) -> None:
        """Return when the controller has fenced a broker, and the others know it.

        Raises:
            TimeoutError: it is not fenced in time.
        """

        def attempt(left_s: float) -> list[Any]:
            return self._await_all(left_s, f"broker {broker} fenced", name="fenced", broker=broker)

        _retry_without_dead_nodes(attempt, timeout_s)

    def _directory_id_of(self, node: NodeHandle, topic: str, partition: int) -> str:
        """Return the id of the directory of a replica, or an empty text if the node has none.

        Raises:
            ClusterError: there is no such partition, and nobody creates it within 5 s.
            TimeoutError: the node does not know in time whether it has a replica.
        """
        self._await_partition(topic, partition, _CREATION_S)
        answers = self._await_all(
            _WAIT_S,
            f"a directory of {topic}-{partition} on node {node.node_id}",
            name="replica",
            topic=topic,
            partition=partition,
            broker=node.node_id,
        )
        return str(answers[-1])

    def _await_all(self, timeout_s: float, what: str, **condition: Any) -> list[Any]:
        """Return the answers of all reachable nodes when the condition holds on them."""
        nodes = self._reachable()
        if not nodes:
            raise ClusterError("no node runs")
        with ThreadPoolExecutor(len(nodes)) as pool:
            asked = [pool.submit(node.await_condition, timeout_s, **condition) for node in nodes]
        try:
            return [future.result() for future in asked]
        except TimeoutError:
            raise TimeoutError(f"after {timeout_s:g} s: not yet {what}") from None

    def _reachable(self) -> list[NodeHandle]:
        running = {n.node_id: n for n in self.nodes if n.is_running and not n.is_paused}
        return [running[node_id] for node_id in self._network.largest_connected(running)]

    # -- cuts

    def cut(self, one: int, other: int, *, how: Cut | str = Cut.STALL, both: bool = True) -> None:
        """Cut the network between two nodes.

        Args:
            how: "stall" holds all bytes back, unnoticed by both sides; "break" breaks the
                connections and refuses new ones.
            both: with False, only bytes from `one` to `other` are cut.

        Raises:
            ClusterError: there is no such node, or one of the two is paused.
        """
        if one == other:
            raise ClusterError(f"node {one} cannot be cut off from itself")
        nodes = [self.node(one), self.node(other)]
        self._network.cut(one, other, Cut(how))
        if both:
            self._network.cut(other, one, Cut(how))
        _set_networks(nodes)

    def isolate(self, node_id: int, *, how: Cut | str = Cut.STALL, clients: bool = True) -> None:
        """Cut a node off from all other nodes, and from clients.

        Args:
            how: as for `cut`.
            clients: with False, clients still reach it.
        """
        node = self.node(node_id)
        for other in self.nodes:
            if other is not node:
                self._network.cut(node_id, other.node_id, Cut(how))
                self._network.cut(other.node_id, node_id, Cut(how))
        if clients:
            self._network.cut_clients(node_id, Cut(how))
        _set_networks(self.nodes)

    def cut_clients(self, node_id: int, *, how: Cut | str = Cut.STALL) -> None:
        """Cut a node off from its clients.

        Args:
            how: as for `cut`.
        """
        node = self.node(node_id)
        self._network.cut_clients(node_id, Cut(how))
        node.set_network()

    def heal_network(self) -> None:
        """End all cuts. Bytes that were held up arrive now."""
        self._network.heal()
        _set_networks(self.nodes)

    # -- for the nodes

    def _handles(self, described: Sequence[Mapping[str, Any]]) -> Sequence[NodeHandle]:
        self._network = ClusterNetwork()
        return [
            NodeHandle(
                self._supervisor, one, self._start_timeout_s, self._network, self._directory_id_of
            )
            for one in described
        ]


def _set_networks(nodes: Iterable[NodeHandle]) -> None:
    for node in nodes:
        node.set_network()


def _retry_without_dead_nodes(attempt: Callable[[float], list[Any]], timeout_s: float) -> list[Any]:
    """Repeat an attempt with those that are left when a node ends in the middle of it.

    Args:
        attempt: takes the seconds that are left.
    """
    end_s = time.monotonic() + timeout_s
    left_s = timeout_s
    while True:
        try:
            return attempt(left_s)
        except NodeGone:
            left_s = end_s - time.monotonic() - _ENDING_S
            if left_s <= 0:
                raise
            time.sleep(_ENDING_S)
