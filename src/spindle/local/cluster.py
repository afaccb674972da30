"""A Spindle cluster of real processes for scripts, notebooks and tests."""

import os
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from spindle.local.cluster_spec import property_texts
from spindle.local.errors import ClusterError
from spindle.local.node import STOP_S, NodeHandle, await_ready
from spindle.local.supervisor_process import REQUEST_S, SupervisorProcess

_START_S: Final = 60.0
_MAX_NODES: Final = 64


class Cluster:
    """A running cluster, from its construction to `close` or the end of a `with` block.

    Every node is a process of its own, on free ports of the loopback interface. The processes end
    and the files are removed with `close`, and also when the calling process ends in any way. The
    calling process is never forked, so it may have threads and a running event loop.

    Example:
        ```python
        from spindle.local import Cluster

        with Cluster(brokers=3, directories=2) as cluster:
            cluster.create_topic("orders", partitions=6)
            print(cluster.bootstrap_servers)
            cluster.broker(3).restart()
        ```

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
        nodes: all nodes, ascending by id.
        brokers: ids 1, 2, ...
        controllers: the nodes that are controllers only, ids 101, 102, ...
        started_after_s: time from the construction until all nodes served.
    """

    nodes: Sequence[NodeHandle]
    brokers: Sequence[NodeHandle]
    controllers: Sequence[NodeHandle]

    _runner: ClassVar[str] = "spindle.local.supervisor_server:plain_runner"
    """The name of the function that runs a node in its process."""
    _default_properties: ClassVar[Mapping[str, object]] = {}
    """Keys of every node's property file, unless `properties` has them."""

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
        start_timeout_s: float = _START_S,
    ) -> None:
        begun_s = time.monotonic()
        _check_count("brokers", brokers, 1)
        _check_count("directories", directories, 1)
        _check_count("controllers", controllers, 0)
        _check_count("racks", racks, 0)
        _check_timeout("start_timeout_s", start_timeout_s)
        self._start_timeout_s = start_timeout_s
        self._supervisor = SupervisorProcess(self._runner)
        self._finalizer = weakref.finalize(self, self._supervisor.close)
        try:
            described = self._supervisor.ask(
                "make",
                REQUEST_S,
                brokers=brokers,
                directories=directories,
                controllers=controllers,
                racks=racks,
                properties=property_texts({**self._default_properties, **(properties or {})}),
                node_properties={
                    number: property_texts(keys) for number, keys in (node_properties or {}).items()
                },
                folder=os.path.abspath(folder or self.home),
            )
            self.nodes = self._handles(described)
            for number in node_properties or {}:
                self.node(number)
            self.brokers = [node for node in self.nodes if node.is_broker]
            self.controllers = [node for node in self.nodes if not node.is_broker]
            self.start()
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
        """Kill all processes and remove all files. More calls do nothing."""
        self._finalizer()

    # -- parts

    @property
    def home(self) -> Path:
        """The folder of this cluster's sockets, and of its files without `folder`."""
        return self._supervisor.home

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
        from spindle.local.topic_admin import make_topic

        servers = self.bootstrap_servers
        make_topic(servers, name, partitions, replication_factor, configs or {}, replicas)

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            ApiError: the cluster refused.
        """
        from spindle.local.topic_admin import remove_topic

        remove_topic(self.bootstrap_servers, name)

    # -- life

    def start(self) -> None:
        """Start the nodes that do not run, and return when all serve.

        Raises:
            ClusterError: a node did not start, with the end of its log.
        """
        ids = [node.node_id for node in self.brokers]
        for node in self.nodes:
            if not node.is_running:
                node.start_at_once(ids)
        await_ready(self._supervisor, self.nodes, self._start_timeout_s)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Stop all nodes in order, brokers before the quorum, and return when they have ended.

        `start` starts them again, with their records.

        Raises:
            TimeoutError: a node has not ended in time.
        """
        deadline_s = time.monotonic() + timeout_s
        for node_id in self._supervisor.ask("stop", REQUEST_S):
            self.node(node_id).wait_until_ended(max(deadline_s - time.monotonic(), 0.001))

    def _handles(self, described: Sequence[Mapping[str, Any]]) -> Sequence[NodeHandle]:
        """Return the nodes that the supervisor describes."""
        return [NodeHandle(self._supervisor, one, self._start_timeout_s) for one in described]


def _check_count(name: str, value: int, least: int) -> None:
    """Refuse a number of nodes, directories or racks that no cluster can have.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is less than `least`, or more than 64.
    """
    if not isinstance(value, int):
        raise TypeError(f"{name} {value!r} is not an integer")
    if not least <= value <= _MAX_NODES:
        raise ValueError(f"{name} {value} is not in {least} to {_MAX_NODES}")


def _check_timeout(name: str, seconds: float) -> None:
    """Reject a timeout that is not positive.

    Raises:
        ValueError: it is not above 0.
    """
    if not seconds > 0:
        raise ValueError(f"{name} {seconds} is not above 0")
