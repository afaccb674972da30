"""The nodes of a new cluster: their ids, roles, ports, directories and property files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from spindle.local.security import CLIENT_LISTENER
from spindle.local.tcp_ports import HOST

FIRST_CONTROLLER_ID: Final = 101
PROPERTY_FILE: Final = "server.properties"
LOG_FILE: Final = "server.log"
_CONTROLLERS: Final = 3
_REPLICAS: Final = 3
_GROUP_PARTITIONS: Final = 4
_ELECTION_TIMEOUT_MS: Final = 250


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The user's choices for a new cluster.

    Attributes:
        nodes: brokers.
        dirs: log directories of each node.
        controllers: nodes that are controllers only; 0 gives the role to brokers.
        racks: number of racks, to which the brokers are assigned in turn; 0 for none.
        is_secure: clients log in over TLS, and ACLs decide what they may do.
        overrides: further keys of every property file.
        node_overrides: further keys of one node's property file, by node id.
    """

    nodes: int = 1
    dirs: int = 3
    controllers: int = 0
    racks: int = 0
    with_metrics: bool = False
    is_secure: bool = False
    overrides: Mapping[str, str] = field(default_factory=dict)
    node_overrides: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def broker_ids(self) -> range:
        return range(1, self.nodes + 1)

    @property
    def controller_ids(self) -> range:
        """Three of the brokers, or one if there are fewer: a quorum of two survives no failure."""
        if self.controllers:
            return range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + self.controllers)
        return range(1, (_CONTROLLERS if self.nodes >= _CONTROLLERS else 1) + 1)

    @property
    def node_ids(self) -> list[int]:
        return sorted({*self.broker_ids, *self.controller_ids})

    @property
    def port_count(self) -> int:
        """The number of ports that the cluster needs, for brokers, controllers and metrics."""
        metrics = len(self.node_ids) if self.with_metrics else 0
        return len(self.broker_ids) + len(self.controller_ids) + metrics


def property_texts(properties: Mapping[str, object]) -> dict[str, str]:
    """Return values of Python as they stand in a property file: `true` for True, 5 for 5."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in properties.items()
    }


def node_properties(
    spec: ClusterSpec, folder: Path, ports: Sequence[int]
) -> dict[Path, dict[str, str]]:
    """Return the property files of a new cluster, by path.

    A cluster of one node has the folder for itself, else every node has a folder in it.

    Args:
        ports: as many as `spec.port_count`.
    """
    brokers, controllers = spec.broker_ids, spec.controller_ids
    remaining = iter(ports)
    broker_ports = dict(zip(brokers, remaining, strict=False))
    controller_ports = {node_id: next(remaining) for node_id in controllers}
    files = {}
    for node_id in spec.node_ids:
        own = folder if spec.node_ids == [node_id] else folder / f"node-{node_id}"
        listeners = []
        if node_id in broker_ports:
            name = CLIENT_LISTENER if spec.is_secure else "PLAINTEXT"
            listeners.append(f"{name}://{HOST}:{broker_ports[node_id]}")
        if node_id in controller_ports:
            listeners.append(f"CONTROLLER://{HOST}:{controller_ports[node_id]}")
        roles = [("broker", broker_ports), ("controller", controller_ports)]
        properties = {
            "process.roles": ",".join(role for role, holders in roles if node_id in holders),
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(
                f"{HOST}:{port}" for port in controller_ports.values()
            ),
            "log.dirs": ",".join(str(own / f"disk-{n}") for n in range(1, spec.dirs + 1)),
            **_cluster_properties(spec.nodes),
        }
        if spec.racks and node_id in broker_ports:
            properties["broker.rack"] = f"rack-{(node_id - 1) % spec.racks + 1}"
        if spec.with_metrics:
            properties["spindle.metrics.listener"] = f"{HOST}:{next(remaining)}"
        own_overrides = spec.node_overrides.get(node_id, {})
        files[own / PROPERTY_FILE] = {**properties, **spec.overrides, **own_overrides}
    return files


def _cluster_properties(nodes: int) -> dict[str, str]:
    """Return the keys that suit a cluster with this number of brokers on one machine."""
    replicas = str(min(_REPLICAS, nodes))
    in_sync = str(min(2, nodes))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        # The first group waits until all of these partitions exist, and there are few groups here.
        "offsets.topic.num.partitions": str(_GROUP_PARTITIONS),
        "share.coordinator.state.topic.num.partitions": str(_GROUP_PARTITIONS),
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        # A first member gets its partitions at once. Members that start together then need one
        # rebalance each, where Kafka's default lets them join in the 3 s of the first one.
        "group.initial.rebalance.delay.ms": "0",
        # For the same reason, consumer groups do not wait between two assignments.
        "group.consumer.assignment.interval.ms": "0",
        # Messages arrive at once on one machine, so the first election need not wait longer.
        "controller.quorum.election.timeout.ms": str(_ELECTION_TIMEOUT_MS),
    }
