"""Nodes that are clients of each other over listeners with TLS and SASL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from peers.clients import wait_for_brokers
from peers.node import KafkaNode, Node, SpindleNode, random_uuid
from peers.secured_nodes import (
    ADD_SCRAM,
    NODE_CREDENTIAL,
    NODE_JAAS,
    NODE_PRINCIPALS,
    NODE_USER,
    certificates,
    logins,
    protocols,
)
from waiting import wait_for

from spindle.client.admin.scram import alter_user
from spindle.client.admin.topics import NewTopic, create_topic
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.producer import BlockingProducer
from spindle.client.blocking.reader import Reader
from spindle.client.blocking.settings import client_settings
from spindle.common.ids import TopicPartition
from spindle.protocol.records.builder import SimpleRecord
from spindle.protocol.sentinels import LATEST, READ_COMMITTED

pytestmark = pytest.mark.timeout(240)

RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"{NODE_PRINCIPALS};User:ANONYMOUS",
}
"""Nodes may do everything, and so may the clients of the tests, at listeners without security."""
PARTITIONS = 6
SESSION_MS = 2_000
MECHANISMS = {"LOGIN": "PLAIN", "LOGIN_TLS": "SCRAM-SHA-512"}


def produce(bootstrap: str, topic: str) -> None:
    """Append a record to a topic, which is created if need be."""
    with WireClient(client_settings({"bootstrap.servers": bootstrap})) as client:
        client.wait_for_topic(topic)
        BlockingProducer(client).send(TopicPartition(topic, 0), [SimpleRecord(None, b"1")])


def kafka_controller(folder: Path) -> KafkaNode:
    """Return a controller of Apache Kafka whose listeners let in nodes only, each in its way."""
    secure = {"MUTUAL": "SSL", "LOGIN": "SASL_PLAINTEXT", "LOGIN_TLS": "SASL_SSL"}
    node = KafkaNode(
        folder,
        directory_count=1,
        node_id=100,
        roles=("controller",),
        secure_listeners=secure,
        overrides={
            **certificates(folder),
            **RIGHTS,
        },
    )
    for listener, mechanism in MECHANISMS.items():
        node.overrides |= logins(listener, mechanism)
    addresses = [f"CONTROLLER://{node.controller}"]
    addresses += [f"{name}://{node.secure_bootstrap(name)}" for name in secure]
    node.overrides["listeners"] = ",".join(addresses)
    node.overrides["controller.listener.names"] = ",".join(["CONTROLLER", *secure])
    node.write_properties()
    return node


def broker_of(controller: KafkaNode, folder: Path, node_id: int, listener: str) -> SpindleNode:
    """Return a broker that reaches the controller at one of its listeners."""
    node = SpindleNode(
        folder,
        directory_count=1,
        cluster_id=controller.cluster_id,
        node_id=node_id,
        roles=("broker",),
    )
    protocol = controller.secure_listeners[listener]
    node.overrides = {
        **certificates(folder),
        **protocols(node, **{listener: protocol}),
        "controller.listener.names": listener,
        "controller.quorum.voters": f"100@{controller.secure_bootstrap(listener)}",
    }
    if listener in MECHANISMS:
        node.overrides |= logins(listener, MECHANISMS[listener])
        node.overrides["sasl.mechanism.controller.protocol"] = MECHANISMS[listener]
    node.write_properties()
    return node


def test_brokers_join_secured_controllers_of_kafka(tmp_path: Path) -> None:
    """The broker registers and forwards only if the controller knows it for a node."""
    controller = kafka_controller(tmp_path / "controller")
    brokers = [
        broker_of(controller, tmp_path / f"broker{number}", number, listener)
        for number, listener in enumerate(controller.secure_listeners, 1)
    ]
    try:
        controller.format(*ADD_SCRAM)
        controller.start(wait=False)
        for broker in brokers:
            broker.format()
            broker.start(wait=False)
        for broker in brokers:
            broker.wait_ready()
            produce(broker.bootstrap, f"from-{broker.node_id}")
    finally:
        for node in (*brokers, controller):
            node.kill()


def combined_node(
    kind: type[Node], folder: Path, node_id: int, cluster_id: str, protocol: str
) -> Node:
    """Return a broker, known by SCRAM, and controller, known by certificate (SSL) or password.

    Args:
        protocol: the security protocol of the controller listener.
    """
    node = kind(
        folder,
        directory_count=1,
        cluster_id=cluster_id,
        node_id=node_id,
        secure_listeners={"INTERNAL": "SASL_SSL"},
    )
    node.overrides = {
        **certificates(folder),
        **protocols(node, CONTROLLER=protocol),
        **logins("CONTROLLER", "PLAIN"),
        "sasl.mechanism.controller.protocol": "PLAIN",
        **logins("INTERNAL", "SCRAM-SHA-512"),
        **RIGHTS,
        "inter.broker.listener.name": "INTERNAL",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.internal.scram-sha-512.connections.max.reauth.ms": str(SESSION_MS),
        "transaction.state.log.replication.factor": "3",
        "offsets.topic.replication.factor": "3",
    }
    return node


@pytest.mark.parametrize(
    ("kinds", "protocol"),
    [
        ((SpindleNode, SpindleNode, SpindleNode), "SSL"),
        ((SpindleNode, KafkaNode, SpindleNode), "SASL_SSL"),
    ],
    ids=["spindle", "mixed"],
)
def test_nodes_with_certificates_and_logins_replicate_and_commit(
    tmp_path: Path, kinds: tuple[type[Node], ...], protocol: str
) -> None:
    """Each node leads, follows and coordinates; sessions of the logins end in between."""
    cluster_id = random_uuid()
    nodes = [
        combined_node(kind, tmp_path / f"node{number}", number, cluster_id, protocol)
        for number, kind in enumerate(kinds, 1)
    ]
    try:
        for node in nodes:
            node.voters = nodes
            node.write_properties()
            node.format(*ADD_SCRAM)
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        wait_for_brokers(nodes[0], len(nodes))
        bootstrap = ",".join(node.bootstrap for node in nodes)
        create_replicated_topic(bootstrap, "copied", len(nodes))
        deadline = time.monotonic() + 2 * SESSION_MS / 1000
        committed = 0
        while committed == 0 or time.monotonic() < deadline:
            commit_to_every_partition(bootstrap, "copied", f"writer-{committed % 2}")
            committed += 1
        read_committed(bootstrap, "copied", committed * PARTITIONS)
    finally:
        for node in nodes:
            node.kill()


def create_replicated_topic(bootstrap: str, topic: str, replicas: int) -> None:
    """Create a topic whose records all replicas must have before they are acknowledged."""
    with WireClient(client_settings({"bootstrap.servers": bootstrap})) as client:
        configs = {"min.insync.replicas": str(replicas)}
        create_topic(client, NewTopic(topic, PARTITIONS, replicas, configs=configs))
        client.wait_for_topic(topic)


def commit_to_every_partition(bootstrap: str, topic: str, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, b"value", partition=partition)
    producer.commit_transaction(60)


def read_committed(bootstrap: str, topic: str, count: int) -> None:
    """Return when so many committed records were read."""
    places = {TopicPartition(topic, partition): 0 for partition in range(PARTITIONS)}
    with WireClient(client_settings({"bootstrap.servers": bootstrap})) as client:
        reader = Reader(client, places, isolation_level=READ_COMMITTED)
        received = 0
        while received < count:
            received += len(reader.poll())


def test_a_cluster_is_secured_while_it_serves(tmp_path: Path) -> None:
    """As Kafka documents it: a further listener, then brokers use it, then the old one ends."""
    nodes = plain_nodes(tmp_path)
    brokers = nodes[1:]
    plain = {"bootstrap.servers": ",".join(broker.bootstrap for broker in brokers)}
    secured = {
        "bootstrap.servers": ",".join(b.secure_bootstrap("INTERNAL") for b in brokers),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": NODE_JAAS,
        **certificates(tmp_path / "client"),
    }
    try:
        for node in nodes:
            node.format()
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        with WireClient(client_settings(plain)) as client:
            alter_user(client, NODE_USER, [NODE_CREDENTIAL], [])
            create_topic(client, NewTopic("copied", 2, 2))
        for broker in brokers:
            broker.overrides = {
                **certificates(broker.folder),
                **logins("INTERNAL", "SCRAM-SHA-512"),
            }
            restart(broker, plain)
        for broker in brokers:
            broker.overrides["inter.broker.listener.name"] = "INTERNAL"
            broker.overrides["sasl.mechanism.inter.broker.protocol"] = "SCRAM-SHA-512"
            restart(broker, plain)
        for broker in brokers:
            broker.overrides["listeners"] = f"INTERNAL://{broker.secure_bootstrap('INTERNAL')}"
            restart(broker, secured)
        with WireClient(client_settings(secured)) as client:
            places = [TopicPartition("copied", partition) for partition in range(2)]
            ends = client.list_offsets(dict.fromkeys(places, LATEST))
        assert [end.offset for end in ends.values()] == [6, 6]
    finally:
        for node in nodes:
            node.kill()


def plain_nodes(folder: Path) -> list[SpindleNode]:
    """Return a controller and two brokers, which have a port for a secured listener."""
    controller = SpindleNode(
        folder / "controller", directory_count=1, node_id=100, roles=("controller",)
    )
    brokers = []
    for number in (1, 2):
        broker = SpindleNode(
            folder / f"broker{number}",
            directory_count=1,
            cluster_id=controller.cluster_id,
            node_id=number,
            roles=("broker",),
            voters=[controller],
            secure_listeners={"INTERNAL": "SASL_SSL"},
        )
        broker.overrides["listeners"] = f"PLAINTEXT://{broker.bootstrap}"
        broker.write_properties()
        brokers.append(broker)
    return [controller, *brokers]


def restart(broker: Node, properties: Mapping[str, str]) -> None:
    """Start a broker with changed keys, append, and wait until all replicas are in sync."""
    broker.write_properties()
    broker.stop()
    broker.start()
    with WireClient(client_settings(properties)) as client:
        producer = BlockingProducer(client)
        for partition in range(2):
            producer.send(TopicPartition("copied", partition), [SimpleRecord(None, b"1")])

        def in_sync() -> list[int]:
            client.forget_metadata()
            partitions = client.metadata(["copied"]).topic("copied").partitions
            return [len(partition.isr) for partition in partitions.values()]

        wait_for(in_sync, lambda counts: set(counts) == {2}, limit_s=60, pause_s=0.1)
