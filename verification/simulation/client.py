"""The part that all simulated clients share: connections, and the leaders of partitions."""

import asyncio
from random import Random
from typing import Any, Final, NamedTuple

from spindle.common.errors import ProtocolViolation
from spindle.common.uuids import Uuid
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.raft.ready import Destination
from spindle.runtime.peers.pool import PeerPool
from spindle.runtime.peers.port import PeerUnavailable

_TIMEOUT_S: Final = 4.0
_RETRY_S: Final = (0.02, 0.25)


class PartitionLeader(NamedTuple):
    """Where a partition is led, and in which epoch."""

    destination: Destination
    epoch: int


class SimulatedClient:
    """Connections of one client to a cluster that it knows by some addresses."""

    def __init__(
        self,
        name: str,
        bootstrap: list[tuple[str, int]],
        random: Random,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self.random = random
        self._bootstrap = [Destination(-1, host, port) for host, port in bootstrap]
        self._pool = PeerPool(name, timeout_s)
        self._leaders: dict[tuple[Uuid, int], PartitionLeader] = {}
        self._newest_epochs: dict[tuple[Uuid, int], int] = {}

    async def ask(
        self, destination: Destination, message: Message, last_version: int | None = None
    ) -> Any:
        """Return the answer, in the newest version up to the last one.

        Raises:
            PeerUnavailable: there is none.
            AssertionError: the answer is not one to this request.
        """
        try:
            return await self._pool.request(destination, message, last_version)
        except PeerUnavailable as error:
            if isinstance(error.__cause__, ProtocolViolation):
                raise AssertionError(f"a wrong answer of {destination}") from error
            raise

    async def ask_any(self, message: Message) -> Any:
        """Return the answer of any node; it raises as `ask` does."""
        return await self.ask(self.random.choice(self._bootstrap), message)

    async def pause(self) -> None:
        await asyncio.sleep(self.random.uniform(*_RETRY_S))

    async def leader(self, topic_id: Uuid, topic: str, index: int) -> PartitionLeader | None:
        """Return the leader of the partition, None while it is not known."""
        known = self._leaders.get((topic_id, index))
        if known is None:
            await self._look_up(topic)
            known = self._leaders.get((topic_id, index))
        return known

    def forget(self, topic_id: Uuid, index: int) -> None:
        """Look the leader up again."""
        self._leaders.pop((topic_id, index), None)

    async def topic_id(self, topic: str) -> Uuid | None:
        """By the metadata of some node; None if it does not know the topic or does not answer."""
        return await self._look_up(topic)

    async def _look_up(self, topic: str) -> Uuid | None:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
        )
        try:
            response = await self.ask_any(request)
        except PeerUnavailable:
            return None
        nodes = {b.node_id: Destination(b.node_id, b.host, b.port) for b in response.brokers}
        for row in response.topics:
            if row.error_code:
                return None
            for partition in row.partitions:
                leader = nodes.get(partition.leader_id)
                key = row.topic_id, partition.partition_index
                # As Kafka's clients do: a leader that knows of no successor lacks newer records.
                if leader is not None and partition.leader_epoch >= self._newest_epochs.get(key, 0):
                    self._newest_epochs[key] = partition.leader_epoch
                    self._leaders[key] = PartitionLeader(leader, partition.leader_epoch)
            topic_id: Uuid = row.topic_id
            return topic_id
        return None

    def close(self) -> None:
        self._pool.close()
