"""A client of the cluster behind bootstrap servers: connections, cached metadata, retries.

It is not thread-safe: every task, and the driver's planning, uses its own.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self, TypeVar

from spindle.client.blocking.security import ClientSecurity
from spindle.client.blocking.settings import ClientSettings, HostPort, client_settings
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.cluster_metadata import (
    BrokerAddress,
    ClusterView,
    TopicView,
    cluster_view,
    metadata_request,
)
from spindle.client.configs import describe_configs_request, described_configs
from spindle.client.connection import ExpectedBroker
from spindle.client.errors import (
    BrokerNotRunning,
    ClientError,
    ConnectionLost,
    NotInMetadata,
    RequestTimedOut,
    UnsupportedByPeer,
    is_worth_retrying,
)
from spindle.client.log_dirs import LogDirView, describe_log_dirs_request, log_dir_views
from spindle.client.offsets import (
    MAX_TIMESTAMP,
    FoundOffset,
    found_offsets,
    list_offsets_request,
)
from spindle.client.producing import Appended, appended, last_version, produce_request
from spindle.client.versions import PeerVersions
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.config.resources import ConfigResourceType
from spindle.protocol import versions
from spindle.protocol.message import Message
from spindle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from spindle.protocol.messages.describe_configs import DescribeConfigsResponse
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from spindle.protocol.messages.list_offsets import ListOffsetsResponse
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spindle.protocol.messages.produce import ProduceResponse
from spindle.protocol.sentinels import ACKS_ALL

T = TypeVar("T")
_Node = tuple[HostPort, ExpectedBroker | None]
"""An address, and the broker that has to be there; None at a bootstrap server."""
R = TypeVar("R", bound=Message)
_MS: Final = 1000
_CONTROLLERS: Final = 2
_CREATION_MS: Final = 5000
_MAX_AT_ONCE: Final = 32
_FIRST_TRY_MS: Final = 1000
"""The time limit to open a connection while other brokers may be tried."""


class WireClient:
    """Asks brokers and finds leaders.

    Failures that may pass (a leader that moves, a broker that restarts) are retried until the API
    timeout. A failure of the first contact is reported at once, because then the address is wrong
    more often than the cluster is down. For a topic that no broker knows, the client waits only
    some seconds, because brokers learn a new topic within that time.

    Once the client knows the cluster, each broker that it connects to has to be the one that the
    metadata names (KIP-1242). If another broker is at an address, or an answer to Metadata demands
    it (KIP-1102), the client begins again with the bootstrap servers.

    Args:
        cluster_id: The cluster, if the caller knows it; None for that of the bootstrap servers.
        sleep: Waits for a time in seconds, as `time.sleep` does.
        clock: A clock in seconds that only goes forward, as `time.monotonic`.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        cluster_id: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._security = ClientSecurity(settings.security)
        self._sleep = sleep
        self._clock = clock
        self._view: ClusterView | None = None
        self._known_topics: tuple[str, ...] = ()
        self._brokers: Mapping[int, BrokerAddress] = {}
        self._active: BrokerAddress | None = None
        self._given_cluster_id = cluster_id
        self._cluster_id = cluster_id
        self._has_reached_cluster = False
        self._connections: dict[_Node, BlockingConnection] = {}
        self._unreachable: dict[HostPort, None] = {}
        """Addresses at which the last attempt to connect failed."""
        self._opening: dict[HostPort, float] = {}
        """Addresses to which a connection is being opened, and since when."""
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None before the first answer to Metadata."""
        return self._cluster_id

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def retried_failure(self) -> BaseException | None:
        """The failure that makes the client repeat a request now, else None; for any thread."""
        return self._failure

    def silent_addresses(self, after_s: float) -> list[HostPort]:
        """Return the addresses that have owed an answer for this time. Any thread may call it."""
        before_s = time.monotonic() - after_s
        due = dict(self._opening)
        for connection in tuple(self._connections.values()):
            if connection.answer_due_s is not None:
                due[connection.address] = connection.answer_due_s
        return [address for address, since_s in due.items() if since_s < before_s]

    def metadata(self, topics: Sequence[str] | None = None) -> ClusterView:
        """Return the current state of these topics; None stands for all topics.

        A topic that is refused is in `ClusterView.refused`.

        Raises:
            ClientError: no broker could be asked.
        """
        return self.retrying(lambda: self._fetch_metadata(topics))

    def wait_for_topic(self, name: str) -> TopicView:
        """Return a topic when its partitions have leaders; create it if the brokers allow it.

        Raises:
            ApiError: the topic does not exist and is not created.
            ClientError: no broker could be asked.
        """

        def attempt() -> TopicView:
            view = self._ask_metadata(metadata_request([name], create=True))
            for partition in view.topic(name).partitions:
                view.leader_of(TopicPartition(name, partition))
            return view.topic(name)

        return self.retrying(attempt)

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int | None = None
    ) -> dict[TopicPartition, FoundOffset]:
        """Return offsets by time in ms or by LATEST, EARLIEST, MAX_TIMESTAMP; ask the leaders.

        Raises:
            ApiError: a partition was refused with a permanent error, or until the timeout.
            ClientError: a leader could not be asked.
        """
        level = self.settings.isolation_level if isolation_level is None else isolation_level
        topics = sorted({partition.topic for partition in timestamps})
        return self.retrying(lambda: self._list_offsets(topics, timestamps, level))

    def describe_log_dirs(
        self, topics: Mapping[str, Sequence[int]] | None = None
    ) -> dict[int, list[LogDirView]]:
        """Return the log directories of every broker, by node id. All are asked at once.

        Raises:
            ApiError: a broker refused.
            ClientError: a broker could not be asked.
        """

        def attempt() -> dict[int, list[LogDirView]]:
            # A cached view lacks the brokers that have come back since.
            view = self._fetch_metadata(())
            request = describe_log_dirs_request(topics)

            def ask(broker: BrokerAddress) -> list[LogDirView]:
                address = HostPort(broker.host, broker.port)
                connection = self._connect(
                    address, self._expected(broker), self.settings.connect_timeout_ms
                )
                return log_dir_views(connection.request(request, DescribeLogDirsResponse))

            brokers = dict(sorted(view.brokers.items()))
            # A thread must not close the connections on which the others wait.
            with self._bootstrapping_again(), ThreadPoolExecutor(_MAX_AT_ONCE) as threads:
                return dict(zip(brokers, threads.map(ask, brokers.values()), strict=True))

        return self.retrying(attempt)

    def describe_configs(
        self, kind: ConfigResourceType, names: Sequence[str], keys: Sequence[str] | None = None
    ) -> dict[str, dict[str, str | None]]:
        """Return key and value per resource name. A broker is asked for its own configuration.

        Raises:
            ApiError: a resource was refused.
            ClientError: no broker could be asked.
        """

        def attempt() -> dict[str, dict[str, str | None]]:
            if kind is not ConfigResourceType.BROKER:
                request = describe_configs_request(kind, names, keys)
                return described_configs(
                    self._any_connection().request(request, DescribeConfigsResponse)
                )
            described: dict[str, dict[str, str | None]] = {}
            view = self.current_view(())
            for name in names:
                request = describe_configs_request(kind, [name], keys)
                connection = self.connection(view.broker(name))
                described |= described_configs(connection.request(request, DescribeConfigsResponse))
            return described

        return self.retrying(attempt)

    def produce(
        self, partition: TopicPartition, records: Bytes, *, acks: int = ACKS_ALL
    ) -> Appended:
        """Append whole record batches. A retry may append them twice, unless they are idempotent.

        Args:
            acks: -1 for all in-sync replicas, 1 for the leader only.

        Raises:
            ApiError: the leader refused them.
            ClientError: the leader could not be asked.
        """

        def attempt() -> Appended:
            view = self.current_view((partition.topic,))
            topic_id = view.topic(partition.topic).topic_id
            timeout_ms = self.settings.request_timeout_ms
            request = produce_request(
                partition, topic_id, records, acks=acks, timeout_ms=timeout_ms
            )
            response = self.connection(view.leader_of(partition)).request(
                request, ProduceResponse, last_version=last_version(topic_id)
            )
            return appended(partition, response)

        return self.retrying(attempt)

    def open_leader(self, partition: TopicPartition) -> BlockingConnection:
        """Open a connection to the leader of a partition; the caller has to close it.

        Raises:
            ApiError: the partition does not exist or has no leader now, or another broker is at the
                leader's address.
            ClientError: the leader cannot be reached.
        """
        leader = self.current_view((partition.topic,)).leader_of(partition)
        with self._bootstrapping_again():
            return self._open(
                HostPort(leader.host, leader.port),
                self._expected(leader),
                self.settings.connect_timeout_ms,
            )

    def ask(
        self,
        request: Message,
        response: type[R],
        *,
        broker: BrokerAddress | None = None,
        first_version: int = 0,
        last_version: int | None = None,
        wait_ms: int = 0,
    ) -> R:
        """Send a request to a broker, or to any with None, and return its answer; no retry.

        Args:
            wait_ms: How long the broker may wait on purpose, added to the request timeout.

        Raises:
            ClientError: the broker could not be asked, or has no version within the bounds.
        """
        connection = self._any_connection() if broker is None else self.connection(broker)
        return connection.request(
            request,
            response,
            first_version=first_version,
            last_version=last_version,
            wait_ms=wait_ms,
        )

    def ask_spindle(
        self, broker: BrokerAddress, request: Message, response: type[R], *, wait_ms: int = 0
    ) -> R:
        """Send a request of one of Spindle's own APIs to a broker; no retry.

        Args:
            wait_ms: How long the broker may wait on purpose, added to the request timeout.

        Raises:
            UnsupportedByPeer: the broker is Kafka's, or an older Spindle. Such a broker closes the
                connection when it gets the request, and still accepts a new one.
            ClientError: the broker could not be asked.
        """
        connection = self.connection(broker)
        try:
            return connection.request(request, response, wait_ms=wait_ms)
        except ConnectionLost:
            self.connection(broker)
            raise UnsupportedByPeer(f"{broker} is not a Spindle broker, or an older one") from None

    def versions(self, broker: BrokerAddress | None = None) -> PeerVersions:
        """Return the API versions of a broker, or of any with None; no retry.

        Raises:
            ClientError: the broker cannot be reached.
        """
        connection = self._any_connection() if broker is None else self.connection(broker)
        return connection.versions

    def forget_metadata(self) -> None:
        """Drop the cached metadata because it has proved stale."""
        self._view = None
        self._active = None

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt with growing pauses until it succeeds or the API timeout ends."""
        try:
            return self._retrying(attempt)
        finally:
            self._failure = None

    def _retrying(self, attempt: Callable[[], T]) -> T:
        deadline = self._clock() + self.settings.api_timeout_ms / _MS
        unknown_until = math.inf
        pause_ms = self.settings.retry_backoff_ms
        while True:
            was_cached = self._view is not None
            try:
                return attempt()
            except BrokerNotRunning:
                if not was_cached:
                    raise
            except (ApiError, ClientError) as error:
                is_first_contact = not self._has_reached_cluster
                if is_first_contact and isinstance(error, ConnectionLost):
                    raise
                if not is_worth_retrying(error):
                    raise
                if not isinstance(error, NotInMetadata):
                    unknown_until = math.inf
                else:
                    unknown_until = min(unknown_until, self._clock() + _CREATION_MS / _MS)
                    if self._clock() + pause_ms / _MS > unknown_until:
                        raise
                if self._clock() + pause_ms / _MS > deadline:
                    raise RequestTimedOut(
                        f"gave up after {self.settings.api_timeout_ms} ms: {error}"
                    ) from error
                self._failure = error
            self.forget_metadata()
            self._sleep(pause_ms / _MS)
            pause_ms = min(2 * pause_ms, self.settings.retry_backoff_max_ms)

    def _fetch_metadata(self, topics: Sequence[str] | None) -> ClusterView:
        view = self._ask_metadata(metadata_request(topics))
        self._brokers = view.brokers
        self._has_reached_cluster = True
        self._cluster_id = self._given_cluster_id or view.cluster_id
        return view

    def _ask_metadata(self, request: MetadataRequest) -> ClusterView:
        connection = self._any_connection()
        with self._bootstrapping_again():
            return cluster_view(connection.request(request, MetadataResponse))

    def current_view(self, topics: Sequence[str]) -> ClusterView:
        """Return the cached view if it has these topics, else a fresh one; no retry."""
        if self._view is None or any(name not in self._known_topics for name in topics):
            wanted = tuple(dict.fromkeys((*self._known_topics, *topics)))
            self._view = self._fetch_metadata(wanted)
            self._known_topics = wanted
        return self._view

    def _list_offsets(
        self, topics: Sequence[str], timestamps: Mapping[TopicPartition, int], level: int
    ) -> dict[TopicPartition, FoundOffset]:
        offsets: dict[TopicPartition, FoundOffset] = {}
        for leader, partitions in self.current_view(topics).by_leader(timestamps).items():
            wanted = {partition: timestamps[partition] for partition in partitions}
            request = list_offsets_request(
                wanted, isolation_level=level, timeout_ms=self.settings.request_timeout_ms
            )
            needs_max = MAX_TIMESTAMP in wanted.values()
            response = self.connection(leader).request(
                request,
                ListOffsetsResponse,
                first_version=versions.LIST_OFFSETS_MAX_TIMESTAMP if needs_max else 0,
            )
            offsets |= found_offsets(response)
        return offsets

    def connection(self, broker: BrokerAddress) -> BlockingConnection:
        """Return the shared connection to a broker; open it if necessary; no retry.

        Raises:
            ApiError: REBOOTSTRAP_REQUIRED, another broker is at its address.
            ClientError: the broker cannot be reached.
        """
        with self._bootstrapping_again():
            return self._connect(
                HostPort(broker.host, broker.port),
                self._expected(broker),
                self.settings.connect_timeout_ms,
            )

    def _connect(
        self, address: HostPort, expected: ExpectedBroker | None, limit_ms: int | None = None
    ) -> BlockingConnection:
        connection = self._connections.get((address, expected))
        if connection is None or not connection.is_open:
            self._unreachable[address] = None
            connection = self._open(address, expected, limit_ms)
            self._connections[address, expected] = connection
            self._unreachable.pop(address, None)
        return connection

    def _open(
        self, address: HostPort, expected: ExpectedBroker | None, limit_ms: int | None
    ) -> BlockingConnection:
        self._opening[address] = time.monotonic()
        try:
            return BlockingConnection.open(
                address, self.settings, self._security, expected, limit_ms
            )
        finally:
            self._opening.pop(address, None)

    def _expected(self, broker: BrokerAddress) -> ExpectedBroker | None:
        """Return the cluster and node id that a broker must have; None accepts any."""
        is_checked = self.settings.rebootstraps and self.settings.checks_cluster
        if not is_checked or self._cluster_id is None:
            return None
        return ExpectedBroker(self._cluster_id, broker.node_id)

    @contextlib.contextmanager
    def _bootstrapping_again(self) -> Iterator[None]:
        """Forget the cluster if a broker asks for it, so that the next attempt bootstraps again."""
        try:
            yield
        except ApiError as error:
            if error.code is ErrorCode.REBOOTSTRAP_REQUIRED and self.settings.rebootstraps:
                self.close()
                self.forget_metadata()
                self._brokers = {}
                self._cluster_id = self._given_cluster_id
            raise

    def _easiest(self, nodes: Iterable[_Node]) -> list[_Node]:
        """Return the nodes: open connections first, then untried nodes, then broken connections."""

        def hurdle(node: _Node) -> int:
            connection = self._connections.get(node)
            if connection is not None and connection.is_open:
                return 0
            return 2 if connection is not None or node[0] in self._unreachable else 1

        return sorted(nodes, key=hurdle)

    def _any_connection(self) -> BlockingConnection:
        """Return a connection to a broker; with bootstrap controllers, to the active controller."""
        if not self.settings.asks_controllers:
            return self._reachable()
        if self._active is None:
            self._active = self._find_active()
        return self.connection(self._active)

    def _find_active(self) -> BrokerAddress:
        request = DescribeClusterRequest(endpoint_type=_CONTROLLERS)
        answer = self._reachable().request(request, DescribeClusterResponse, first_version=1)
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code), answer.error_message)
        self._has_reached_cluster = True
        self._cluster_id = answer.cluster_id
        self._brokers = {
            node.broker_id: BrokerAddress(node.broker_id, node.host, node.port, node.rack)
            for node in answer.brokers
        }
        active = self._brokers.get(answer.controller_id)
        if active is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "no controller is active")
        return active

    def _reachable(self) -> BlockingConnection:
        """Return a connection to the first node that answers; try the known nodes first.

        A node that hangs costs a second while there are others. If none answers in this time, all
        are tried again with the limits of the settings.
        """
        known: list[_Node] = [
            (HostPort(broker.host, broker.port), self._expected(broker))
            for broker in self._brokers.values()
        ]
        bootstrap: list[_Node] = [(address, None) for address in self.settings.bootstrap_servers]
        if known and not self.settings.rebootstraps:
            bootstrap = []
        nodes = list(dict.fromkeys((*self._easiest(known), *self._easiest(bootstrap))))
        failures: list[str] = []
        for limit_ms in (_FIRST_TRY_MS, None) if len(nodes) > 1 else (None,):
            failures.clear()
            for address, expected in nodes:
                try:
                    with self._bootstrapping_again():
                        connection = self._connect(address, expected, limit_ms)
                    if self._is_of_right_role(connection):
                        return connection
                    failures.append(f"{address} is a controller: give the address of a broker")
                except (ConnectionLost, RequestTimedOut) as error:
                    failures.append(str(error))
        raise ConnectionLost(f"no broker could be reached: {'; '.join(failures)}")

    def _is_of_right_role(self, connection: BlockingConnection) -> bool:
        """Return False for a controller if brokers are asked; controllers serve no Metadata."""
        if self.settings.asks_controllers:
            return True
        return connection.versions.served(MetadataRequest.API_KEY) is not None


def connect(bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> WireClient:
    """Return a client of a cluster, which connects with its first request.

    Args:
        bootstrap_servers: addresses of brokers, such as `broker1:9092,broker2:9092`.
        properties: further properties of Kafka's clients, such as `security.protocol`.

    Raises:
        ConfigError: an address or a property has no usable value.

    Examples:
        >>> with connect("127.0.0.1:9092") as client:
        ...     print(sorted(client.metadata().topics))
    """
    return WireClient(
        client_settings({**(properties or {}), "bootstrap.servers": bootstrap_servers})
    )
