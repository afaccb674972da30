"""Brokers without logs, and a client of controllers, to fill the metadata of a cluster.

Kafka and Spindle get the same few requests, so brokers have no part in a measurement of
controllers.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from spindle.client.blocking.settings import ClientSettings, HostPort
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.errors import ClientError
from spindle.common.errors import ErrorCode
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from spindle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from spindle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

LIMIT_S = 120.0
HEARTBEAT_S = 1.0
BROKERS = 6
REPLICAS = 3
PARTITIONS_PER_TOPIC = 100
TOPICS_PER_REQUEST = 90
TOPIC = "image"
_TOPIC_RESOURCE = 2
_SET = 0
_MANY = 1 << 30
_RECENT_MS = 1_000

R = TypeVar("R", bound=Message)


class NotActive(Exception):
    """The controller that was asked is not the active one."""


class Controllers:
    """A client of a quorum of controllers; not thread-safe."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._addresses: dict[int, HostPort] = {}
        for node_id, address in addresses.items():
            host, _, port = address.rpartition(":")
            self._addresses[node_id] = HostPort(host, int(port))
        self._connections: dict[int, BlockingConnection] = {}
        self._settings = ClientSettings((), connect_timeout_ms=1_000, request_timeout_ms=60_000)
        self.active = next(iter(addresses))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, node_id: int) -> BlockingConnection:
        """Return the connection to this controller; open it at the first use."""
        known = self._connections.get(node_id)
        if known is None or not known.is_open:
            known = BlockingConnection.open(self._addresses[node_id], self._settings)
            self._connections[node_id] = known
        return known

    def ask(
        self,
        request: Message,
        response: type[R],
        *,
        other_than: int = -1,
        limit_s: float = LIMIT_S,
    ) -> R:
        """Return the answer of the active controller; wait until there is one.

        Args:
            other_than: A controller that is not asked.
        """
        deadline = time.monotonic() + limit_s
        node_ids = [node_id for node_id in self._addresses if node_id != other_than]
        node_ids.sort(key=lambda node_id: node_id != self.active)
        why: Exception | None = None
        while time.monotonic() < deadline:
            for node_id in node_ids:
                try:
                    answer = self.connection(node_id).request(request, response)
                    _raise_for(answer)
                except (ClientError, NotActive) as failure:
                    why = failure
                else:
                    self.active = node_id
                    return answer
            time.sleep(0.005)
        raise RuntimeError(f"no controller answers {type(request).__name__}: {why}")

    def change(self, *, other_than: int = -1) -> float:
        """Change one configuration; return the seconds until the answer."""
        begin = time.perf_counter()
        config = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
            name="retention.ms", config_operation=_SET, value=str(time.time_ns() // 1000)
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=f"{TOPIC}-0", configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self.ask(request, IncrementalAlterConfigsResponse, other_than=other_than)
        return time.perf_counter() - begin

    def lag(self, voters: int) -> int:
        """Return how many records the slowest voter lacks; many while a voter does not fetch."""
        partition = self._quorum()
        if partition.error_code:
            return _MANY
        ends = [voter.log_end_offset for voter in partition.current_voters]
        fetching = [voter.last_fetch_timestamp for voter in partition.current_voters]
        now_ms = time.time_ns() // 1_000_000
        if len(ends) < voters or min(ends) < 0 or min(fetching) < now_ms - _RECENT_MS:
            return _MANY
        return int(partition.high_watermark - min(ends))

    def high_watermark(self) -> int:
        """Return the end of the committed records, as the leader knows it."""
        return int(self._quorum().high_watermark)

    def _quorum(self) -> Any:
        place = DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[place])
        answer = self.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
        return answer.topics[0].partitions[0]

    def fill(self, partitions: int) -> float:
        """Create this many partitions in topics of 100; the seconds that it took."""
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=f"{TOPIC}-{number}",
                num_partitions=PARTITIONS_PER_TOPIC,
                replication_factor=REPLICAS,
            )
            for number in range(partitions // PARTITIONS_PER_TOPIC)
        ]
        begin = time.perf_counter()
        for start in range(0, len(topics), TOPICS_PER_REQUEST):
            some = topics[start : start + TOPICS_PER_REQUEST]
            self.ask(CreateTopicsRequest(topics=some), CreateTopicsResponse)
        return time.perf_counter() - begin


def _raise_for(answer: Any) -> None:
    """Raise for the first error code anywhere in an answer."""
    parts = (answer, *getattr(answer, "topics", ()), *getattr(answer, "responses", ()))
    for code in (getattr(part, "error_code", 0) for part in parts):
        if code == ErrorCode.NOT_CONTROLLER:
            raise NotActive
        if code:
            raise RuntimeError(f"{type(answer).__name__}: {ErrorCode(code).name}")


@contextlib.contextmanager
def registered_brokers(cluster_id: str, addresses: Mapping[int, str]) -> Iterator[Controllers]:
    """Register brokers that send heartbeats but serve nothing; yield a client."""
    controllers = Controllers(addresses)
    heartbeats = _Heartbeats(cluster_id, addresses)
    try:
        heartbeats.register()
        heartbeats.start()
        yield controllers
    finally:
        heartbeats.stop()
        controllers.close()


class _Heartbeats(threading.Thread):
    def __init__(self, cluster_id: str, addresses: Mapping[int, str]) -> None:
        super().__init__(name="heartbeats", daemon=True)
        self._controllers = Controllers(addresses)
        self._cluster_id = cluster_id
        self._epochs: dict[int, int] = {}
        self._stopped = threading.Event()

    def register(self) -> None:
        for broker_id in range(101, 101 + BROKERS):
            answer = self._controllers.ask(
                self._registration(broker_id), BrokerRegistrationResponse
            )
            self._epochs[broker_id] = answer.broker_epoch
        self._beat()  # unfences

    def _registration(self, broker_id: int) -> BrokerRegistrationRequest:
        supported = self._controllers.ask(
            ApiVersionsRequest(client_software_name="benchmark", client_software_version="1"),
            ApiVersionsResponse,
        ).supported_features
        return BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=os.urandom(16),
            listeners=[
                BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="127.0.0.1", port=9)
            ],
            features=[
                BrokerRegistrationRequest.Feature(
                    name=feature.name,
                    min_supported_version=feature.min_version,
                    max_supported_version=feature.max_version,
                )
                for feature in supported
            ],
            rack=None,
            log_dirs=[os.urandom(16)],
        )

    def _beat(self) -> None:
        for broker_id, epoch in self._epochs.items():
            self._controllers.ask(
                BrokerHeartbeatRequest(
                    broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=1 << 40
                ),
                BrokerHeartbeatResponse,
                limit_s=HEARTBEAT_S,
            )

    def run(self) -> None:
        while not self._stopped.wait(HEARTBEAT_S):
            try:
                self._beat()
            except (RuntimeError, OSError):
                continue  # no controller is active at the moment

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join(10)
        self._controllers.close()
