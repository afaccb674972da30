"""Asks every broker of a cluster for its log directories, all at the same time."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.cluster import ClusterDescription, ClusterNode, describe_brokers
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import HostPort
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.disks import BrokerDisks, disks_of_log_dirs, disks_of_spindle
from spindle.client.errors import UnsupportedByPeer
from spindle.client.log_dirs import describe_log_dirs_request, log_dir_views
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.describe_disks import DescribeDisksRequest, DescribeDisksResponse
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsResponse

WAIT_MS: Final = 5_000
"""Maximum time for the response of a broker."""
_MAX_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """The response of a broker about its directories, or the reason why there is none.

    Attributes:
        is_spindle: the broker has DescribeDisks, which has more fields.
        disks: None if the broker did not respond; `error` says why.
        is_refused: the user lacks the right to see the directories of the broker.
    """

    node: ClusterNode
    is_spindle: bool
    disks: BrokerDisks | None
    error: str | None = None
    is_refused: bool = False


class Survey:
    """Queries all brokers, each with its own connection and thread.

    Args:
        client: knows the bootstrap servers.
        broker_id: query only this broker; None for all.
        wait_ms: maximum time for the response of a broker; a shorter `request.timeout.ms` of the
            client applies as well.
    """

    def __init__(
        self, client: WireClient, broker_id: int | None = None, wait_ms: int = WAIT_MS
    ) -> None:
        self._settings = client.settings.within(wait_ms)
        self._broker_id = broker_id
        self._client = WireClient(self._settings)
        self._clients: dict[HostPort, WireClient] = {}
        self._others: set[HostPort] = set()
        self._cluster: ClusterDescription | None = None
        self._threads = ThreadPoolExecutor(_MAX_AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in (self._client, *self._clients.values()):
            client.close()

    @property
    def node_ids(self) -> list[int]:
        """The brokers of the last poll, also those that were not queried."""
        return [node.node_id for node in self._nodes]

    def take(self, cluster: ClusterDescription | None = None) -> list[BrokerReport]:
        """Return a report of each broker, in order of their ids.

        Args:
            cluster: the brokers, if they are known; None to ask for them.

        Raises:
            ApiError, ClientError, ProtocolViolation: no broker has ever returned the list of
                brokers.
        """
        self._cluster = self._find_brokers() if cluster is None else cluster
        wanted = [n for n in self._nodes if self._broker_id in (None, n.node_id)]
        return list(self._threads.map(self._report, wanted))

    @property
    def _nodes(self) -> Sequence[ClusterNode]:
        return () if self._cluster is None else self._cluster.nodes

    def _find_brokers(self) -> ClusterDescription:
        """Query any broker, first the last that responded; if none does, keep the known list."""
        try:
            return describe_brokers(self._client)
        except FAILURES:
            if self._cluster is None:
                raise
        for node in self._nodes:
            client = self._client_of(node)
            try:
                cluster = describe_brokers(client)
            except FAILURES:
                continue
            self._client.close()
            self._client = WireClient(client.settings)
            return cluster
        return self._cluster

    def _client_of(self, node: ClusterNode) -> WireClient:
        address = HostPort(node.host, node.port)
        client = self._clients.get(address)
        if client is None:
            settings = replace(self._settings, bootstrap_servers=(address,), asks_controllers=False)
            # With the cluster's id, another broker at the address is noticed (KIP-1242).
            cluster_id = None if self._cluster is None else self._cluster.cluster_id
            client = self._clients[address] = WireClient(settings, cluster_id=cluster_id)
        return client

    def _report(self, node: ClusterNode) -> BrokerReport:
        client, address = self._client_of(node), HostPort(node.host, node.port)
        broker = BrokerAddress(node.node_id, node.host, node.port)
        try:
            if address not in self._others:
                disks = _disks_of_spindle(client, broker)
                if disks is not None:
                    return BrokerReport(node, True, disks)
                self._others.add(address)
            return BrokerReport(node, False, _disks_of_log_dirs(client, broker))
        except FAILURES as error:
            # Another program may listen there next time.
            self._others.discard(address)
            is_refused = (
                isinstance(error, ApiError) and error.code is not ErrorCode.REBOOTSTRAP_REQUIRED
            )
            return BrokerReport(node, False, None, failure(error).plainly, is_refused)


def _disks_of_spindle(client: WireClient, broker: BrokerAddress) -> BrokerDisks | None:
    """Return the directories; None if the broker has no DescribeDisks."""
    for _ in range(2):
        # The broker may have closed the first connection in a restart.
        try:
            answer = client.ask_spindle(broker, DescribeDisksRequest(), DescribeDisksResponse)
        except UnsupportedByPeer:
            continue
        return disks_of_spindle(answer)
    return None


def _disks_of_log_dirs(client: WireClient, broker: BrokerAddress) -> BrokerDisks:
    answer = client.ask(describe_log_dirs_request(None), DescribeLogDirsResponse, broker=broker)
    led = {
        TopicPartition(topic.name, number)
        for topic in client.metadata().topics.values()
        for number, partition in topic.partitions.items()
        if partition.leader == broker.node_id
    }
    return disks_of_log_dirs(log_dir_views(answer), led, int(time.monotonic() * 1000))
