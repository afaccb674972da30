"""The coordinators of groups and of transactional ids."""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from spindle.client.admin.refusals import raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")


class CoordinatorKind(IntEnum):
    """The kinds of coordinators, as FindCoordinator names them."""

    GROUP = 0
    TRANSACTION = 1


def find_coordinator(
    client: WireClient, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP
) -> BrokerAddress:
    """Return the broker that coordinates a group or a transactional id; no retry.

    Raises:
        ApiError: there is no coordinator now.
        ClientError: no broker could be asked.
    """
    request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    answer = client.ask(request, FindCoordinatorResponse)
    raise_refusal(answer.error_code, answer.error_message)
    for coordinator in answer.coordinators:
        raise_refusal(coordinator.error_code, coordinator.error_message)
        return BrokerAddress(coordinator.node_id, coordinator.host, coordinator.port)
    return BrokerAddress(answer.node_id, answer.host, answer.port)


def coordinated(
    client: WireClient,
    key: str,
    ask: Callable[[BrokerAddress], T],
    kind: CoordinatorKind = CoordinatorKind.GROUP,
) -> T:
    """Send a request to the coordinator of a key; find it again if it moves."""
    return client.retrying(lambda: ask(find_coordinator(client, key, kind)))
