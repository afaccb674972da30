"""Requests to the coordinator of a group or of a transactional id, wherever that is."""

from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.raft.ready import Destination
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient

OF_GROUPS: Final = 0
OF_TRANSACTIONS: Final = 1
MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class CoordinatorLink:
    """Finds the coordinator again after each request that it has not answered."""

    def __init__(self, client: SimulatedClient, key: str, key_type: int) -> None:
        self._client = client
        self._key = key
        self._key_type = key_type
        self._coordinator: Destination | None = None

    async def ask(self, request: Any, last_version: int | None = None) -> Any:
        """Return the answer, or None if there is none."""
        try:
            if self._coordinator is None:
                response = await self._client.ask_any(
                    FindCoordinatorRequest(coordinator_keys=[self._key], key_type=self._key_type)
                )
                row = response.coordinators[0]
                if row.error_code:
                    return None
                self._coordinator = Destination(row.node_id, row.host, row.port)
            return await self._client.ask(self._coordinator, request, last_version)
        except PeerUnavailable:
            self._coordinator = None
            return None

    @property
    def broker_id(self) -> int | None:
        """The broker that answers; None while it has to be found."""
        return None if self._coordinator is None else self._coordinator.id

    def forget(self) -> None:
        """Find the coordinator again."""
        self._coordinator = None
