"""Ask every broker of a cluster at the same time. One that hangs does not hold up the others."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, TypeVar

from spindle.client.admin.cluster import ClusterNode
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import HostPort
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import ClientError
from spindle.client.log_dirs import LogDirView, describe_log_dirs_request, log_dir_views
from spindle.common.errors import ApiError, ProtocolViolation
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsResponse

T = TypeVar("T")
BROKER_FAILURES: Final = (ApiError, ClientError, ProtocolViolation, OSError)
_WAIT_MS: Final = 10_000
_MAX_AT_ONCE: Final = 32


def ask_every_broker(
    client: WireClient,
    nodes: Sequence[ClusterNode | BrokerAddress],
    ask: Callable[[WireClient, BrokerAddress], T],
    wait_ms: int = _WAIT_MS,
) -> dict[int, T | Exception]:
    """Return what `ask` returned for each broker, or the failure of the request, by node id.

    Args:
        ask: is called on a thread of its own, with a client that knows this broker only.
        wait_ms: the time limit of an answer; a shorter `request.timeout.ms` applies as well.
    """

    def attempt(node: ClusterNode | BrokerAddress) -> T | Exception:
        try:
            with client_of_broker(client, node, wait_ms) as single:
                return ask(single, BrokerAddress(node.node_id, node.host, node.port))
        except BROKER_FAILURES as error:
            return error

    with ThreadPoolExecutor(_MAX_AT_ONCE) as threads:
        answers = list(threads.map(attempt, nodes))
    return dict(zip((node.node_id for node in nodes), answers, strict=True))


def client_of_broker(
    client: WireClient, node: ClusterNode | BrokerAddress, wait_ms: int
) -> WireClient:
    """Return a client for one broker, with the properties of another client."""
    return WireClient(
        replace(
            client.settings.within(wait_ms),
            bootstrap_servers=(HostPort(node.host, node.port),),
            asks_controllers=False,
        ),
        cluster_id=client.cluster_id,
    )


def log_dirs_of(client: WireClient, broker: BrokerAddress) -> list[LogDirView]:
    """Return the log directories of a broker; for `ask_every_broker`.

    Raises:
        ApiError: the broker refused.
        ClientError: it could not be asked.
    """
    answer = client.ask(describe_log_dirs_request(None), DescribeLogDirsResponse, broker=broker)
    return log_dir_views(answer)
