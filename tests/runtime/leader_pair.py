"""A leader and a follower that speaks to it by hand, message by message."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fake_broker import FakeBroker, create_replicated, fake_broker
from node_harness import (
    Client,
    Home,
    connected,
    running,
)

from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest
from spindle.protocol.messages.fetch import FetchResponse
from spindle.runtime.node import Node

Data = FetchResponse.FetchableTopicResponse.PartitionData


class Pair:
    """A node that leads, a broker 2 on the wire only, and connections of a client to the node."""

    def __init__(self, node: Node, other: FakeBroker, client: Client, link: Client) -> None:
        self.node = node
        self.other = other
        self.client = client
        self.link = link
        self.topic_id = b""

    async def create(self, **configs: str) -> None:
        """Topic t with replicas [1, 2]."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.topic_id = await create_replicated(self.client, "t", [1, 2], named)
        await self.until(lambda r: r.leader == 1)

    async def follow(self, offset: int, **options: Any) -> Data:
        """Fetch at `offset` as the follower; return the answer for the partition."""
        response = await self.link.ask(self.other.fetch(self.topic_id, offset, **options))
        assert response.error_code == 0
        data: Data = response.responses[0].partitions[0]
        return data

    async def reassign(self, replicas: list[int]) -> None:
        """Ask for these replicas, in this order."""
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic
        part = topic.ReassignablePartition(partition_index=0, replicas=replicas)
        response = await self.client.ask(
            AlterPartitionReassignmentsRequest(
                topics=[topic(name="t", partitions=[part])], timeout_ms=5_000
            )
        )
        assert response.error_code == response.responses[0].partitions[0].error_code == 0
        await self.until(lambda r: r.replicas == tuple(replicas))

    async def elect_preferred(self) -> None:
        topic = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
        await self.client.ask(ElectLeadersRequest(topic_partitions=[topic], timeout_ms=5_000))

    @property
    def registration(self) -> PartitionRegistration:
        partition = self.node.publisher.image.topics.partition(self.topic_id, 0)
        assert partition is not None
        return partition

    async def until(self, is_true: Callable[[PartitionRegistration], bool]) -> None:
        """Return when the committed registration is so (the test's time limit applies)."""
        assert self.node.broker is not None
        assert await self.node.broker.metadata.wait_for(
            lambda image: (
                (partition := image.topics.partition(self.topic_id, 0)) is not None
                and is_true(partition)
            ),
            60,
        )


@asynccontextmanager
async def pair(folder: Path, rack: str | None = None, **overrides: str) -> AsyncIterator[Pair]:
    overrides = {"broker_session_timeout_ms": "3600000", **overrides}
    async with (
        running(Home(folder, directories=1, **overrides).format()) as node,
        fake_broker(node, 2, rack) as other,
        connected(node) as client,
        connected(node) as link,
    ):
        yield Pair(node, other, client, link)
