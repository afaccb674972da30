"""A Spindle cluster of real processes for tests, scripts and notebooks."""

import os
import time
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from signal import Signals
from types import TracebackType
from typing import Any, Final, Self

from spindle.testing.cluster.arguments import check_count, check_timeout
from spindle.testing.cluster.disk import Disk
from spindle.testing.cluster.errors import ClusterError
from spindle.testing.cluster.node import NodeHandle
from spindle.testing.cluster.properties import property_texts
from spindle.testing.cluster.reachability import largest_connected, retry_without_dead_nodes
from spindle.testing.cluster.supervisor_process import KeeperProcess
from spindle.testing.faults.network_faults import Cut, NetworkFaults

_WAIT_S: Final = 60.0
_CREATION_S: Final = 5.0
_REQUEST_S: Final = 60.0
_DEFAULTS: Final = {
    # A broker that is killed is fenced after this time; Kafka waits 9 s.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class Cluster:
    """A running cluster, from its construction to `close` or the end of a `with` block.

    Every node is a process of its own, on free ports of the loopback interface. The processes end
    and the files are removed with `close`, and also when the calling process ends in any way.

    Args:
        brokers: 1 to 64. Up to three of them are controllers, too.
        directories: log directories of each node, 1 to 64.
        controllers: nodes that are controllers only, 0 to 64; the brokers are none then.
        racks: number of racks, to which the brokers are assigned in turn; 0 for none.
        properties: further keys of every node's property file.
        node_properties: further keys of single nodes, by node id.
        folder: holds the files of the cluster, and stays; a temporary folder by default.
        start_timeout_s: limit for the start of a node.

    Raises:
        ValueError, TypeError: a number is out of its range, or no number.
        ClusterError: a node did not start, with the end of its log; or a key does not exist.

    Attributes:
        brokers: ids 1, 2, ...
        controllers: the nodes that are controllers only, ids 101, 102, ...
        started_after_s: time from the construction until all nodes served.
    """

    def __init__(
        self,
        brokers: int = 1,
        directories: int = 1,
        *,
        controllers: int = 0,
        racks: int = 0,
        properties: Mapping[str, object] | None = None,
        node_properties: Mapping[int, Mapping[str, object]] | None = None,
        folder: str | os.PathLike[str] | None = None,
        start_timeout_s: float = _WAIT_S,
    ) -> None:
        begun_s = time.monotonic()
        check_count("brokers", brokers, 1)
        check_count("directories", directories, 1)
        check_count("controllers", controllers, 0)
        check_count("racks", racks, 0)
        check_timeout("start_timeout_s", start_timeout_s)
        self._start_timeout_s = start_timeout_s
        self._cuts: dict[tuple[int, int], Cut] = {}
        self._client_cuts: dict[int, Cut] = {}
        self._keeper = KeeperProcess()
        self._finalizer = weakref.finalize(self, self._keeper.close)
        try:
            described = self._keeper.ask(
                "make",
                _REQUEST_S,
                brokers=brokers,
                directories=directories,
                controllers=controllers,
                racks=racks,
                properties=property_texts({**_DEFAULTS, **(properties or {})}),
                node_properties={
                    number: property_texts(keys) for number, keys in (node_properties or {}).items()
                },
                folder=os.path.abspath(folder or self._keeper.home),
            )
            self.nodes: Sequence[NodeHandle] = [
                NodeHandle(self, description) for description in described
            ]
            self._check_ids(node_properties or {})
            self.brokers = [node for node in self.nodes if node.is_broker]
            self.controllers = [node for node in self.nodes if not node.is_broker]
            ids = [node.node_id for node in self.brokers]
            for node in self.nodes:
                self.launch(node, ids)
            self.await_ready(self.nodes)
        except BaseException:
            self.close()
            raise
        self.started_after_s = time.monotonic() - begun_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Cluster({len(self.nodes)} nodes at {self.bootstrap_servers})"

    def close(self) -> None:
        """End all processes and remove all files. More calls do nothing."""
        self._finalizer()

    # -- parts

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(str(broker.bootstrap_servers) for broker in self.brokers)

    def node(self, node_id: int) -> NodeHandle:
        """Return a broker or controller.

        Raises:
            ClusterError: there is none of this id.
        """
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        known = ", ".join(str(node.node_id) for node in self.nodes)
        raise ClusterError(f"there is no node {node_id}; the nodes are {known}")

    def broker(self, node_id: int) -> NodeHandle:
        """Return a broker.

        Raises:
            ClusterError: there is no broker of this id.
        """
        node = self.node(node_id)
        if not node.is_broker:
            raise ClusterError(f"node {node_id} is a controller and no broker")
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

    # -- topics

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic and return when each of its partitions has a leader.

        Args:
            replication_factor: `default.replication.factor` by default: 3, or the number of brokers
                if there are fewer.
            configs: keys of the topic, such as `min.insync.replicas`.
            replicas: the brokers of each partition, instead of both numbers: `[[1, 2], [2, 3]]`.

        Raises:
            ValueError: `replicas` comes with one of the numbers.
            ApiError: the cluster refused.
        """
        from spindle.testing.cluster.topics import make_topic

        servers = self.bootstrap_servers
        make_topic(servers, name, partitions, replication_factor, configs or {}, replicas)

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            ApiError: the cluster refused.
        """
        from spindle.testing.cluster.topics import remove_topic

        remove_topic(self.bootstrap_servers, name)

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

        return int(retry_without_dead_nodes(attempt, timeout_s)[-1])

    def _await_partition(self, topic: str, partition: int, timeout_s: float) -> None:
        def attempt(left_s: float) -> list[Any]:
            name = "partition"
            return self._await_all(left_s, "there", name=name, topic=topic, partition=partition)

        try:
            retry_without_dead_nodes(attempt, timeout_s)
        except TimeoutError:
            raise ClusterError(f"there is no partition {topic}-{partition}") from None

    def wait_until_fenced(self, broker: int, timeout_s: float = _WAIT_S) -> None:
        """Return when the controller has fenced a broker, and the others know it.

        Raises:
            TimeoutError: it is not fenced in time.
        """

        def attempt(left_s: float) -> list[Any]:
            return self._await_all(left_s, f"broker {broker} fenced", name="fenced", broker=broker)

        retry_without_dead_nodes(attempt, timeout_s)

    def directory_of(self, node: NodeHandle, topic: str, partition: int) -> str:
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
        running = [node for node in self.nodes if node.is_running and not node.is_paused]
        return largest_connected(running, self._cuts.keys())

    # -- cuts

    def cut(self, one: int, other: int, *, how: Cut | str = Cut.STALL, both: bool = True) -> None:
        """Cut the network between two nodes.

        Args:
            how: "stall" holds all bytes up, and neither side hears of it; "break" breaks the
                connections and refuses new ones.
            both: with False, only bytes from `one` to `other` are cut.

        Raises:
            ClusterError: there is no such node, or one of the two is paused.
        """
        if one == other:
            raise ClusterError(f"node {one} cannot be cut off from itself")
        nodes = [self.node(one), self.node(other)]
        self._cuts[one, other] = Cut(how)
        if both:
            self._cuts[other, one] = Cut(how)
        self._tell_cuts(nodes)

    def isolate(self, node_id: int, *, how: Cut | str = Cut.STALL, clients: bool = True) -> None:
        """Cut a node off from all other nodes, and from clients.

        Args:
            how: as for `cut`.
            clients: with False, clients still reach it.
        """
        node = self.node(node_id)
        for other in self.nodes:
            if other is not node:
                self._cuts[node_id, other.node_id] = Cut(how)
                self._cuts[other.node_id, node_id] = Cut(how)
        if clients:
            self._client_cuts[node_id] = Cut(how)
        self._tell_cuts(self.nodes)

    def cut_clients(self, node_id: int, *, how: Cut | str = Cut.STALL) -> None:
        """Cut a node off from its clients.

        Args:
            how: as for `cut`.
        """
        node = self.node(node_id)
        self._client_cuts[node_id] = Cut(how)
        self._tell_cuts([node])

    def heal_network(self) -> None:
        """End all cuts. Bytes that were held up arrive now."""
        self._cuts.clear()
        self._client_cuts.clear()
        self._tell_cuts(self.nodes)

    def _tell_cuts(self, nodes: Iterable[NodeHandle]) -> None:
        for node in nodes:
            if node.is_running and not node.is_paused:
                node.tell("set-network", faults=self._network_of(node.node_id).to_json())

    def _network_of(self, node_id: int) -> NetworkFaults:
        to_peers = {other: cut for (one, other), cut in self._cuts.items() if one == node_id}
        from_peers = {one: cut for (one, other), cut in self._cuts.items() if other == node_id}
        return NetworkFaults(to_peers, from_peers, self._client_cuts.get(node_id, Cut.NONE))

    # -- for the nodes

    def launch(self, node: NodeHandle, brokers: Sequence[int]) -> None:
        """Start the process of a node; it is ready when it knows these brokers."""
        disks = {str(disk.path): disk.faults_at_start().to_json() for disk in node.disks}
        self._keeper.ask(
            "start",
            _REQUEST_S,
            node=node.node_id,
            brokers=brokers,
            disks=disks,
            network=self._network_of(node.node_id).to_json(),
        )

    def await_ready(self, nodes: Sequence[NodeHandle]) -> None:
        """Return when all these nodes serve.

        Raises:
            ClusterError: one of them does not.
        """
        ids = [node.node_id for node in nodes]
        try:
            reply = self._keeper.ask("await-ready", self._start_timeout_s, nodes=ids)
        except TimeoutError:
            tails = "\n".join(f"node {n.node_id}: {n.log_file}\n{n.log_tail()}" for n in nodes)
            raise ClusterError(
                f"after {self._start_timeout_s:g} s the cluster does not serve; the logs end "
                f"with:\n{tails}"
            ) from None
        if "ended" in reply:
            node = self.node(reply["ended"])
            raise ClusterError(
                f"node {node.node_id} did not start ({_ending(reply['code'])}); the end of its "
                "log "
                f"{node.log_file}:\n{node.log_tail()}"
            )

    def signal(self, node: NodeHandle, number: Signals) -> None:
        """Send a signal to the process of a node.

        Raises:
            ClusterError: it does not run.
        """
        self._keeper.ask("signal", _REQUEST_S, node=node.node_id, signal=number.name)

    def runs(self, node: NodeHandle) -> bool:
        """Return whether the process of a node lives."""
        return bool(self._keeper.ask("state", _REQUEST_S, node=node.node_id)["runs"])

    def await_end(self, node: NodeHandle, timeout_s: float) -> int:
        """Return how the process of a node has ended.

        Raises:
            TimeoutError: it has not ended in that time.
        """
        reply = self._keeper.ask("await-end", timeout_s, node=node.node_id)
        return int(reply["code"] or 0)

    def _check_ids(self, node_properties: Mapping[int, Mapping[str, object]]) -> None:
        for number in node_properties:
            self.node(number)


def _ending(code: int) -> str:
    return f"killed by {Signals(-code).name}" if code < 0 else f"exit code {code}"
