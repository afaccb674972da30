"""Several nodes on the test's own event loop, each with its own folder and real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from node_harness import Home, connected

from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.runtime.node import Node

COMBINED = "broker,controller"


def free_ports(count: int) -> list[int]:
    """Different ports that nobody uses now."""
    with ExitStack() as stack:
        drawn = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in drawn:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in drawn]


def cluster_homes(folder: Path, roles: Sequence[str], **overrides: str) -> list[Home]:
    """Format the folders of nodes 1, 2, ... with these roles."""
    ports = free_ports(len(roles))
    voters = ",".join(
        f"{number}@127.0.0.1:{port}"
        for number, (role, port) in enumerate(zip(roles, ports, strict=True), 1)
        if "controller" in role
    )
    homes = []
    for number, (role, port) in enumerate(zip(roles, ports, strict=True), 1):
        place = folder / f"node{number}"
        place.mkdir()
        listeners = {
            "broker": "PLAINTEXT://127.0.0.1:0",
            "controller": f"CONTROLLER://127.0.0.1:{port}",
        }
        settings = {
            "process_roles": role,
            "node_id": str(number),
            "controller_quorum_voters": voters,
            "listeners": ",".join(listeners[part] for part in role.split(",")),
            **overrides,
        }
        homes.append(Home(place, 2, **settings).format())
    return homes


@asynccontextmanager
async def running_cluster(homes: Sequence[Home]) -> AsyncIterator[list[Node]]:
    """Start the nodes, and return them when each knows all brokers."""
    nodes = [Node(home.config()) for home in homes]
    brokers = [home.config().node_id for home in homes if home.config().is_broker]
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        for node in nodes:
            known = asyncio.Event()
            node.when_active(brokers, known.set)
            await known.wait()
        yield nodes
    finally:
        await asyncio.gather(*(node.broker.stop(10) for node in nodes if node.broker is not None))
        await asyncio.gather(*(node.stop() for node in nodes))


def bootstrap_of(*nodes: Node) -> str:
    """Return the addresses of the brokers for clients."""
    return ",".join(
        f"127.0.0.1:{node.broker.listeners[0].port}" for node in nodes if node.broker is not None
    )


async def create_replicated_topic(node: Node, name: str, partitions: int) -> None:
    """Create a topic with three replicas, two of which must be in sync."""
    topic = CreateTopicsRequest.CreatableTopic
    config = topic.CreatableTopicConfig(name="min.insync.replicas", value="2")
    created = topic(name=name, num_partitions=partitions, replication_factor=3, configs=[config])
    async with connected(node) as client:
        answer = await client.ask(CreateTopicsRequest(timeout_ms=10_000, topics=[created]))
    assert answer.topics[0].error_code == 0, answer


def in_sync(node: Node) -> bool:
    """Return whether all partitions that the node knows have three replicas in sync."""
    topics = node.publisher.image.topics.by_name.values()
    return all(len(p.isr) == 3 for topic in topics for p in topic.partitions.values())
