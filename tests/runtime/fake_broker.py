"""A second broker that exists on the wire only: registered, un-fenced, and a follower by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from node_harness import CLUSTER_ID, Client

from spindle.metadata.features import SUPPORTED_FEATURES
from spindle.protocol.message import Message
from spindle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from spindle.protocol.messages.broker_registration import BrokerRegistrationRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.fetch import FetchRequest
from spindle.runtime.node import Node

_FAR_OFFSET = 1 << 40
"""Beyond every offset of the metadata log: the fake broker has always caught up."""


class FakeBroker:
    """Registered with the node's controller; `directory_ids` are its online directories."""

    def __init__(self, controller: Client, broker_id: int, rack: str | None) -> None:
        self.broker_id = broker_id
        self.epoch = -1
        self.directory_ids = [bytes([0x40, broker_id, n]) + bytes(13) for n in (1, 2)]
        self._controller = controller
        self._rack = rack
        self._incarnations = 0

    async def register(self) -> None:
        """Come up (again, if it was there before), and be un-fenced."""
        self._incarnations += 1
        registration = BrokerRegistrationRequest
        response = await self._controller.ask(
            registration(
                broker_id=self.broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=bytes([self.broker_id, self._incarnations]) + bytes(14),
                listeners=[
                    registration.Listener(name="PLAINTEXT", host="fake", port=9000 + self.broker_id)
                ],
                features=[
                    registration.Feature(
                        name=name,
                        min_supported_version=levels.minimum,
                        max_supported_version=levels.maximum,
                    )
                    for name, levels in SUPPORTED_FEATURES.items()
                ],
                rack=self._rack,
                log_dirs=self.directory_ids,
            )
        )
        assert response.error_code == 0, response.error_code
        self.epoch = response.broker_epoch
        await self.heartbeat()

    async def ask(self, request: Message) -> Any:
        """Return the controller's answer."""
        return await self._controller.ask(request)

    async def heartbeat(self, *, fence: bool = False, offline: list[bytes] | None = None) -> Any:
        return await self._controller.ask(
            BrokerHeartbeatRequest(
                broker_id=self.broker_id,
                broker_epoch=self.epoch,
                current_metadata_offset=_FAR_OFFSET,
                want_fence=fence,
                offline_log_dirs=offline or [],
            )
        )

    def fetch(
        self,
        topic_id: bytes,
        offset: int,
        *,
        leader_epoch: int = 0,
        last_epoch: int = -1,
        max_wait_ms: int = 0,
        log_start_offset: int = 0,
        broker_epoch: int | None = None,
        partition: int = 0,
    ) -> FetchRequest:
        """Return a follower's fetch of one partition, without a session."""
        wanted = FetchRequest.FetchTopic
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self.broker_id,
                replica_epoch=self.epoch if broker_epoch is None else broker_epoch,
            ),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[
                wanted(
                    topic_id=topic_id,
                    partitions=[
                        wanted.FetchPartition(
                            partition=partition,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=last_epoch,
                            log_start_offset=log_start_offset,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        )


@asynccontextmanager
async def fake_broker(
    node: Node, broker_id: int, rack: str | None = None
) -> AsyncIterator[FakeBroker]:
    assert node.controller is not None
    port = node.controller.registrar.endpoints[0].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Client(reader, writer)
    try:
        fake = FakeBroker(client, broker_id, rack)
        await fake.register()
        yield fake
    finally:
        client.close()


async def create_replicated(
    client: Client, name: str, replicas: list[int], configs: dict[str, str] | None = None
) -> bytes:
    """Create a topic of one partition with these replicas, led by the first; return its id."""
    topic = CreateTopicsRequest.CreatableTopic
    response = await client.ask(
        CreateTopicsRequest(
            timeout_ms=10_000,
            topics=[
                topic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        topic.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
                    ],
                    configs=[
                        topic.CreatableTopicConfig(name=key, value=value)
                        for key, value in (configs or {}).items()
                    ],
                )
            ],
        )
    )
    assert response.topics[0].error_code == 0, response.topics[0].error_message
    topic_id: bytes = response.topics[0].topic_id
    return topic_id
