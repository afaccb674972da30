"""The coordinators of groups and of transactional ids."""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeVar

from spindle.client.admin.refusals import raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from spindle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")


class CoordinatorKind(IntEnum):
    """The kinds of coordinators, as FindCoordinator names them."""

    GROUP = 0
    TRANSACTION = 1


_TOPICS: Final = {
    CoordinatorKind.GROUP: OFFSETS_TOPIC,
    CoordinatorKind.TRANSACTION: TRANSACTIONS_TOPIC,
}


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
    *,
    if_none_exist: Callable[[], T] | None = None,
) -> T:
    """Send a request to the coordinator of a key; find it again if it moves.

    Args:
        if_none_exist: called if the topic of the coordinators does not exist, so that no group or
            transactional id exists either; None waits until the topic is created.
    """

    def attempt() -> T:
        try:
            coordinator = find_coordinator(client, key, kind)
        except ApiError as error:
            is_unavailable = error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            if if_none_exist is None or not is_unavailable or not _is_missing(client, kind):
                raise
            return if_none_exist()
        return ask(coordinator)

    return client.retrying(attempt)


def _is_missing(client: WireClient, kind: CoordinatorKind) -> bool:
    topic = _TOPICS[kind]
    return client.metadata([topic]).refused.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
