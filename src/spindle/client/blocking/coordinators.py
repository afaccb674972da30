"""Ask coordinators of groups and of transactional ids; remember where they are."""

from collections.abc import Callable
from typing import TypeVar

from spindle.client.admin.coordinators import CoordinatorKind, find_coordinator
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import ClientError
from spindle.common.errors import ApiError

T = TypeVar("T")


class CoordinatorCache:
    """The coordinators that one client has found; a failure makes it look for one again."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self._known: dict[tuple[CoordinatorKind, str], BrokerAddress] = {}

    def ask(self, kind: CoordinatorKind, key: str, question: Callable[[BrokerAddress], T]) -> T:
        """Send a request to the coordinator of a key, with retries.

        Raises:
            ApiError: the coordinator refused for good, or until the timeout.
            ClientError: no broker could be asked.
        """

        def attempt() -> T:
            coordinator = self._known.get((kind, key))
            if coordinator is None:
                coordinator = find_coordinator(self.client, key, kind)
                self._known[kind, key] = coordinator
            try:
                return question(coordinator)
            except (ApiError, ClientError):
                self._known.pop((kind, key), None)
                raise

        return self.client.retrying(attempt)
